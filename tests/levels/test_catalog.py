"""The catalog: its levels, validation of settings, and lookup by name."""

from typing import Any

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


def test_the_catalog_has_the_levels_of_minigrid_and_of_the_original() -> None:
    assert set(LEVELS) == {level_of(name) for name in MINIGRID_IDS} | ONLY_IN_THE_ORIGINAL
    assert all(level.name == name for name, level in LEVELS.items())


def test_the_paper_has_19_levels() -> None:
    assert len(PAPER_LEVELS) == len(set(PAPER_LEVELS)) == 19
    assert set(PAPER_LEVELS) <= set(LEVELS)


def test_every_recipe_is_used() -> None:
    assert {level.recipe for level in LEVELS.values()} == set(RECIPES)


@pytest.mark.parametrize("rules", ["paper", "minigrid"])
@pytest.mark.parametrize("name", LEVELS)
def test_every_level_has_a_short_task(name: str, rules: str) -> None:
    task = find_level(name, rules).task
    assert task and len(task) <= 90
    assert "{" not in task and task == task.strip()


def test_tasks_follow_the_settings() -> None:
    assert LEVELS["GoToLocalS6N3"].task == "go to one of 3 objects in a single room"
    assert LEVELS["GoToObjMazeOpen"].task == "go to the only object in a maze with open doors"
    assert "fails" in LEVELS["PickupDistDebug"].task and "fails" not in LEVELS["PickupDist"].task
    assert "locked" in LEVELS["Synth"].task and "lock" not in LEVELS["BossLevelNoUnlock"].task


def test_the_task_of_a_custom_recipe_is_its_docstring() -> None:
    def documented(s, d, level):
        """Find the hidden key.

        More about it.
        """

    def undocumented(s, d, level):
        pass

    assert Level("Own", documented).task == "Find the hidden key."
    assert Level("Own", undocumented).task == ""


@pytest.mark.parametrize("name", ["GoToLocal", "BabyAI-GoToLocal-v0", "babyai/GoToLocal-v0"])
def test_a_level_is_found_by_any_of_its_names(name: str) -> None:
    assert find_level(name) is LEVELS["GoToLocal"]


def test_minigrid_ids_with_another_version_number_are_found() -> None:
    assert find_level("BabyAI-GoToObjS6-v1") is LEVELS["GoToObjS6"]


def test_find_level_returns_a_level_object_unchanged() -> None:
    own = Level("Own", "go_to_object", rows=1, columns=1)
    assert find_level(own) is own


def test_unknown_levels_raise_with_suggestions() -> None:
    with pytest.raises(UnknownLevelError, match=r"'GoToLocl'; did you mean 'GoToLocal'"):
        find_level("GoToLocl")
    with pytest.raises(UnknownLevelError, match=r"'qqq'; .babyai levels. lists all"):
        find_level("qqq")


def test_unknown_rules_raise() -> None:
    with pytest.raises(ValueError, match=r"'gym'; .*'paper' or 'minigrid'"):
        find_level("GoTo", "gym")


BAD = {
    "recipe": ({"recipe": "fly"}, "unknown recipe 'fly'"),
    "tiny rooms": ({"room_size": 2}, rf"room_size .*3\.\.{MAX_SIZE}, not 2"),
    "no rows": ({"rows": 0}, r"rows .*1\.\.60, not 0"),
    "too wide": ({"columns": 4}, f"29 x 22 cells; at most {MAX_SIZE} x {MAX_SIZE} cells"),
    "too many rooms": ({"room_size": 3, "rows": 11, "columns": 11}, f"{MAX_ROOMS} rooms are possible"),
    "negative objects": ({"objects": -1}, r"objects .*1\.\.576, not -1"),
    "negative max_steps": ({"max_steps": -5}, r"max_steps .*0\.\.2147483647, not -5"),
    "max_steps that wraps": ({"max_steps": 2**31}, r"max_steps .*0\.\.2147483647, not 2147483648"),
    "fractional size": ({"room_size": 6.5}, "room_size .*integer.* not 6.5"),
    "more doors than walls": ({"recipe": "open_doors_in_order", "objects": 100}, r"objects .*2\.\.4, not 100"),
    "no second room": ({"recipe": "open_red_door", "columns": 1}, "columns .*not 1"),
    "not square": ({"recipe": "find_object", "rows": 2}, "as many rows as columns, not 2 and 3"),
    "unknown variant": ({"recipe": "open_one_door", "variant": 3}, r"variant .*0\.\.2, not 3"),
    "unknown color": ({"colors": (6, 0)}, r"colors .*0\.\.5.*\(6, 0\)"),
    "no probability": ({"locked_room": float("nan")}, "locked_room .*nan"),
    "strictness": ({"strict": 7}, "strict must be True or False, not 7"),
    "verbs": ({"verbs": ("fly to",)}, "verbs must be among go to, pick up, open, put next; got .*'fly to'"),
    "no verbs": ({"verbs": ()}, "verbs must be among"),
    "joins": ({"joins": ("seq",)}, r"joins must be .*got \('seq',\)"),
}


@pytest.mark.parametrize(("settings", "message"), BAD.values(), ids=BAD.keys())
def test_invalid_settings_raise(settings: dict, message: str) -> None:
    with pytest.raises(ValueError, match="level 'Own': .*" + message):
        Level(**({"name": "Own", "recipe": "go_to_maze"} | settings))


@pytest.mark.parametrize("name", ["", "\x1b[2J", 3])
def test_a_name_can_be_printed(name: Any) -> None:
    with pytest.raises(ValueError, match="name"):
        Level(name, "go_to_maze")


def test_settings_take_effect_in_worlds() -> None:
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
