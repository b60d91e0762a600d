"""The two rule sets: what `rules="paper"` mends, what `rules="minigrid"` keeps, and that all else is the same."""

import re
from collections import Counter

import numpy as np
import pytest

from babyai import LEVELS, Engine
from babyai.world.codes import BEFORE, COLORS, OPEN, SINGLE, TRIPLES, Action
from babyai.world.language import words_of
from babyai.world.state import position_of
from tests.reference import differing_fields, doors_of, objects_of, room_of, rooms_beside, way_to_face
from tests.scale import COMPILER_OFF, scaled
from tests.scenario import play

MANY = scaled(3000, least=30)
CARRYING = [name for name in LEVELS if name.endswith("Carrying")]
STRICT_ORDER = ["OpenDoorsOrderN2Debug", "OpenDoorsOrderN4Debug"]
# Everything that differs under the two rule sets; the tests below say how.
DIFFERENT = {"Unlock", "GoToImpUnlock", "SynthS5R2", *CARRYING, *STRICT_ORDER}


# ---------------------------------------------------------------- keys and locked rooms


def locked_room(world: np.record) -> tuple[int, int]:
    """The room behind the locked door: of the two beside it, the one with no other door."""
    doors = doors_of(world)
    (locked,) = [place for place, door in doors.items() if door.startswith("locked")]
    count = Counter(room for door in doors for room in rooms_beside(world, door))
    (room,) = [room for room in rooms_beside(world, locked) if count[room] == 1]
    return room


def split_objects(world: np.record) -> tuple[list[str], list[str]]:
    """The objects inside and outside the locked room."""
    locked, objects = locked_room(world), objects_of(world)
    inside = [thing for place, thing in objects.items() if room_of(world, place) == locked]
    return inside, [thing for place, thing in objects.items() if room_of(world, place) != locked]


def key_of(world: np.record) -> str:
    """What opens the locked door, such as "red key"."""
    (door,) = [door for door in doors_of(world).values() if door.startswith("locked")]
    return door.removeprefix("locked ").replace("door", "key")


def test_the_paper_never_locks_the_key_in_nor_anything_else_in_unlock() -> None:
    engine = Engine("Unlock", MANY)
    engine.reset(0)
    for world in engine.worlds:
        inside, outside = split_objects(world)
        assert inside == []
        assert key_of(world) in outside and len(outside) == 1 + 8 * 3
        assert room_of(world, position_of(world.agent)) != locked_room(world)


def test_the_paper_locks_in_only_the_target_of_go_to_imp_unlock() -> None:
    engine = Engine("GoToImpUnlock", MANY)
    engine.reset(0)
    for world, tokens in zip(engine.worlds, engine.missions, strict=True):
        inside, outside = split_objects(world)
        (target,) = inside
        assert re.fullmatch(f"go to (the|a) {target}", words_of(tokens))
        assert key_of(world) in outside and len(outside) == 1 + 8 * 2


@pytest.mark.compiled
@pytest.mark.parametrize(("name", "known"), [("Unlock", 8), ("GoToImpUnlock", 16)])
def test_minigrid_locks_the_key_in_now_and_then(name: str, known: int) -> None:
    # The counts were taken from Minigrid 3.2.0 itself, over the same seeds.
    engine = Engine(name, 300, rules="minigrid")
    engine.reset(0)
    unsolvable = sum(key_of(world) not in split_objects(world)[1] for world in engine.worlds)
    assert unsolvable == known
    assert all(len(objects_of(world)) == 1 + (27 if name == "Unlock" else 18 + 1) for world in engine.worlds)


# ---------------------------------------------------------------- sizes


@pytest.mark.parametrize(("rules", "shape", "distractors"), [("paper", (9, 9), 7), ("minigrid", (13, 9), 18)])
def test_synth_s5r2(rules: str, shape: tuple[int, int], distractors: int) -> None:
    # Minigrid cannot make some of these worlds at all, and neither rule set may hang on them.
    engine = Engine("SynthS5R2", scaled(500), rules=rules)
    engine.reset(0)
    for world in engine.worlds:
        assert (world.width, world.height) == shape
        locked = any(door.startswith("locked") for door in doors_of(world).values())
        assert len(objects_of(world)) == distractors + locked


@pytest.mark.compiled
@pytest.mark.parametrize("seed", [1741, 2678, 3586, 4033, 4527, 5139])
def test_worlds_on_which_minigrid_never_returns(seed: int) -> None:
    engine = Engine("SynthS5R2", rules="minigrid")
    engine.reset(seed)
    assert not engine.done[0]


# ---------------------------------------------------------------- what is carried at the start


@pytest.mark.parametrize("name", CARRYING)
def test_what_is_carried_is_seen_from_the_first_moment(name: str) -> None:
    count = scaled(100, least=5)
    engines = {rules: Engine(name, count, rules=rules) for rules in ("paper", "minigrid")}
    for engine in engines.values():
        engine.reset(0)
    assert not differing_fields(engines["paper"].worlds, _without_options(engines))
    carried = TRIPLES[engines["paper"].worlds.carrying]
    assert (carried[:, 0] > 4).all()
    np.testing.assert_array_equal(engines["paper"].images[:, 3, 6], carried)
    # Minigrid's first picture still shows empty hands.
    assert (engines["minigrid"].images[:, 3, 6] == (1, 0, 0)).all()
    for engine in engines.values():
        engine.step([Action.done] * count)
        np.testing.assert_array_equal(engine.images[:, 3, 6], carried)
    np.testing.assert_array_equal(engines["paper"].images, engines["minigrid"].images)


@pytest.mark.parametrize("name", CARRYING)
def test_the_object_in_hand_is_the_one_to_be_put(name: str) -> None:
    engine = Engine(name, scaled(50))
    engine.reset(0)
    for world in engine.worlds:
        assert TRIPLES[world.carrying].tolist()[:2] == [world.nouns[0], world.colors[0]]
        # Each object is unique, so that none like it is left on the floor.
        assert len(objects_of(world)) == 2 * engine.levels[0].objects - 1


# ---------------------------------------------------------------- strict doors in order


def open_in_order(engine: Engine) -> str:
    """Opens the doors of the mission in the order it asks for; returns the verdict on each."""
    world = engine.worlds[0]
    clauses = {SINGLE: (0,), BEFORE: (0, 2)}.get(int(world.order), (2, 0))
    verdicts = ""
    for clause in clauses:
        assert world.verbs[clause] == OPEN
        color = COLORS[world.colors[2 * clause]]
        (door,) = [place for place, text in doors_of(world).items() if color in text]
        play(engine, way_to_face(world, door))
        verdicts += play(engine, [Action.toggle])
        if engine.done[0]:
            break
    return verdicts


@pytest.mark.parametrize("name", STRICT_ORDER)
def test_debug_missions_can_be_won_in_the_paper_alone(name: str) -> None:
    engines = {rules: Engine(name, rules=rules) for rules in ("paper", "minigrid")}
    verdicts = Counter()
    for seed in range(scaled(60, least=6)):
        for rules, engine in engines.items():
            engine.reset(seed)
            verdicts[rules, open_in_order(engine)] += 1
    assert {verdict for rules, verdict in verdicts if rules == "paper"} == {"W", ".W"}
    assert {verdict for rules, verdict in verdicts if rules == "minigrid"} == {"W", "L"}
    assert verdicts["paper", ".W"] == verdicts["minigrid", "L"] > 0


@pytest.mark.parametrize("name", STRICT_ORDER)
def test_debug_missions_are_still_strict_in_the_paper(name: str) -> None:
    engine = Engine(name)
    for seed in range(scaled(30, least=4)):
        engine.reset(seed)
        world = engine.worlds[0]
        if world.order == SINGLE:
            continue
        color = COLORS[world.colors[0 if world.order == BEFORE else 4]]
        wrong, *_ = [place for place, text in doors_of(world).items() if color not in text]
        play(engine, way_to_face(world, wrong))
        assert play(engine, [Action.toggle]) == "L"


# ---------------------------------------------------------------- all else


def _without_options(engines: dict[str, Engine]) -> np.ndarray:
    """Minigrid's worlds, with the one bit that says which rules judge them taken from the paper's."""
    worlds = engines["minigrid"].worlds.copy()
    worlds.options = engines["paper"].worlds.options
    return worlds


SAME = sorted(LEVELS.keys() - DIFFERENT)


@pytest.mark.parametrize("name", SAME[::12] if COMPILER_OFF else SAME)
def test_the_rule_sets_agree(name: str) -> None:
    count = scaled(64, least=2)
    engines = {rules: Engine(name, count, rules=rules) for rules in ("paper", "minigrid")}
    rng = np.random.default_rng(0)
    for engine in engines.values():
        engine.reset(0)
    for _ in range(scaled(100, least=10)):
        actions = rng.choice(7, size=count, p=(0.12, 0.12, 0.4, 0.12, 0.1, 0.12, 0.02))
        for engine in engines.values():
            engine.step(actions)
        paper, minigrid = engines.values()
        for what in ("images", "directions", "rewards", "terminated", "truncated", "done"):
            np.testing.assert_array_equal(getattr(paper, what), getattr(minigrid, what))
        for engine in engines.values():
            engine.reset_done()
    assert not differing_fields(paper.worlds, _without_options(engines))


@pytest.mark.parametrize("name", STRICT_ORDER)
def test_strict_missions_begin_alike(name: str) -> None:
    engines = {rules: Engine(name, scaled(100), rules=rules) for rules in ("paper", "minigrid")}
    for engine in engines.values():
        engine.reset(0)
    assert not differing_fields(engines["paper"].worlds, _without_options(engines))
