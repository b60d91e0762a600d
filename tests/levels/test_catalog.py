"""The table of levels: what it holds, what it refuses, and how its names are found."""

import numpy as np
import pytest

from babyai import LEVELS, PAPER_LEVELS, Engine, Level, find_level
from babyai.levels.catalog import RECIPES, UnknownLevelError
from babyai.levels.draft import MAX_ROOMS
from babyai.world.state import MAX_SIZE
from tests.twin import MINIGRID_IDS, level_of

ONLY_IN_THE_ORIGINAL = {
    *("PutNext", "OpenTwoDoorsDebug", "TestGoToBlocked", "TestPutNextToBlocked", "TestPutNextToCloseToDoor1"),
    *("TestPutNextToCloseToDoor2", "TestPutNextToIdentical", "TestUnblockingLoop", "TestPutNextCloseToDoor"),
    "TestLotsOfBlockers",
}


def test_the_catalog_is_minigrids_and_the_originals() -> None:
    assert set(LEVELS) == {level_of(name) for name in MINIGRID_IDS} | ONLY_IN_THE_ORIGINAL
    assert all(level.name == name for name, level in LEVELS.items())


def test_the_paper_has_19_levels() -> None:
    assert len(PAPER_LEVELS) == len(set(PAPER_LEVELS)) == 19
    assert set(PAPER_LEVELS) <= set(LEVELS)


def test_every_recipe_is_used() -> None:
    assert {level.recipe for level in LEVELS.values()} == set(RECIPES)


@pytest.mark.parametrize("name", ["GoToLocal", "BabyAI-GoToLocal-v0", "babyai/GoToLocal-v0"])
def test_a_level_is_found_by_any_of_its_names(name: str) -> None:
    assert find_level(name) is LEVELS["GoToLocal"]


def test_minigrids_odd_version_number_is_no_obstacle() -> None:
    assert find_level("BabyAI-GoToObjS6-v1") is LEVELS["GoToObjS6"]


def test_a_level_itself_is_taken_as_it_is() -> None:
    own = Level("Own", "go_to_object", rows=1, columns=1)
    assert find_level(own) is own


def test_unknown_levels_are_answered_with_near_names() -> None:
    with pytest.raises(UnknownLevelError, match=r"unknown level 'GoToLocl'; did you mean 'GoToLocal'"):
        find_level("GoToLocl")
    with pytest.raises(UnknownLevelError, match=r"unknown level 'qqq'; see babyai.LEVELS"):
        find_level("qqq")


def test_unknown_rules_are_refused() -> None:
    with pytest.raises(ValueError, match="unknown rules 'gym'; they are 'paper' or 'minigrid'"):
        find_level("GoTo", "gym")


BAD = {
    "recipe": ({"recipe": "fly"}, "unknown recipe 'fly'"),
    "tiny rooms": ({"room_size": 2}, "room_size 2 is not in 3"),
    "no rows": ({"rows": 0}, "at least one row"),
    "too wide": ({"columns": 4}, f"29 x 22 cells; at most {MAX_SIZE} x {MAX_SIZE} cells"),
    "too many rooms": ({"room_size": 3, "rows": 11, "columns": 11}, f"{MAX_ROOMS} rooms are possible"),
    "fewer than no objects": ({"objects": -1}, "cannot be negative"),
    "a limit below zero": ({"max_steps": -5}, "cannot be negative"),
    "verbs": ({"verbs": ("fly to",)}, "verbs must be among go to, pick up, open, put next"),
    "no verbs": ({"verbs": ()}, "verbs must be among"),
    "joins": ({"joins": ("seq",)}, "joins must be"),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_impossible_settings_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match="level 'Own': .*" + message):
        Level(**({"name": "Own", "recipe": "go_to_maze"} | settings))


def test_settings_reach_the_worlds() -> None:
    level = Level("Own", "go_to_local", room_size=6, rows=1, columns=1, objects=3, max_steps=17)
    engine = Engine(level, 4)
    engine.reset(0)
    for world in engine.worlds:
        assert (world.width, world.height, world.max_steps) == (6, 6, 17)
        assert np.count_nonzero(world.cells & 7 > 4) == 3


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
def test_every_level_can_be_played_under_both_rules(rules: str) -> None:
    engine = Engine(list(LEVELS), len(LEVELS), rules=rules)
    engine.reset(0)
    for world, name in zip(engine.worlds, LEVELS, strict=True):
        level = find_level(name, rules)
        assert (world.width, world.height) == (level.width, level.height)
        assert world.max_steps > 0
