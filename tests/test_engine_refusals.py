"""What an engine refuses: each fault is explained, and no world has changed."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from babyai import Engine
from babyai.engine import MIN_SHARD
from babyai.levels.catalog import UnknownLevelError
from babyai.world.language import MissionError
from tests.reference import differing_fields
from tests.test_engine import OUTPUTS, ROOM, outputs

LARGEST = 2**63 - 1


def begun(**options: Any) -> Engine:
    engine = Engine("GoToLocal", 3, **options)
    engine.reset(0)
    return engine


MAKING: dict[str, tuple[Callable, type[Exception], str]] = {
    "unknown level": (
        lambda: Engine("GoToLocl"),
        UnknownLevelError,
        "unknown level 'GoToLocl'; did you mean 'GoToLocal'",
    ),
    "one unknown of several": (lambda: Engine(["GoTo", "Gone"]), UnknownLevelError, "unknown level 'Gone'"),
    "no level": (lambda: Engine([]), ValueError, "at least one level"),
    "no worlds": (lambda: Engine("GoTo", 0), ValueError, "at least one world and one thread, not 0 and 1"),
    "no threads": (lambda: Engine("GoTo", threads=0), ValueError, "at least one world and one thread, not 1 and 0"),
    "rules": (lambda: Engine("GoTo", rules="gym"), ValueError, "unknown rules 'gym'; they are 'paper' or 'minigrid'"),
    "episodes": (lambda: Engine("GoTo", episodes="new"), ValueError, "'stream' or 'next_seed', not 'new'"),
    "an even view": (
        lambda: Engine("GoTo", view_size=8),
        ValueError,
        "view_size must be odd and between 3 and 15, not 8",
    ),
    "a tiny view": (lambda: Engine("GoTo", view_size=1), ValueError, "view_size must be odd"),
    "a huge view": (lambda: Engine("GoTo", view_size=17), ValueError, "view_size must be odd"),
    "an assignment too short": (
        lambda: Engine("GoTo", 3, assignment=[0, 0]),
        ValueError,
        "assignment must give one of",
    ),
    "an assignment too high": (lambda: Engine("GoTo", 2, assignment=[0, 1]), ValueError, "assignment must give one of"),
    "an assignment below 0": (lambda: Engine("GoTo", 2, assignment=[0, -1]), ValueError, "assignment must give one of"),
}


@pytest.mark.parametrize(("make", "error", "message"), MAKING.values(), ids=MAKING.keys())
def test_engines_that_cannot_be(make: Callable, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


RESETTING: dict[str, tuple[tuple, type[Exception], str]] = {
    "a negative seed": ((-1,), ValueError, r"a seed must be in 0..2\*\*63 - 1, not -1"),
    "a negative seed of several": (([0, -5, 2],), ValueError, "not -5"),
    "a seed too large": ((LARGEST + 1,), ValueError, "a seed must be in"),
    "seeds that grow too large": ((LARGEST - 1,), ValueError, "a seed must be in"),
    "a seed too large of several": (([0, 1, LARGEST + 1],), ValueError, "a seed must be in"),
    "a truth as seed": ((True,), TypeError, "a seed must be an integer, not True"),
    "a truth among seeds": (([0, True, 2],), TypeError, "a seed must be an integer, not True"),
    "fractions": (([0.5, 1.5, 2.5],), TypeError, "a seed must be an integer, not 0.5"),
    "too few seeds": (([1, 2],), ValueError, "2 seeds were given for 3 worlds"),
    "too many seeds": (([1, 2, 3, 4],), ValueError, "4 seeds were given for 3 worlds"),
    "a mask of numbers": ((0, np.array([0, 1, 1])), ValueError, r"must be given as \(3,\) bool, not \(3,\) int64"),
    "a mask too short": ((0, np.array([True])), ValueError, r"must be given as \(3,\) bool, not \(1,\) bool"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), RESETTING.values(), ids=RESETTING.keys())
def test_resets_that_cannot_be(arguments: tuple, error: type[Exception], message: str) -> None:
    engine = begun()
    before, shown = engine.worlds.copy(), outputs(engine)
    with pytest.raises(error, match=message):
        engine.reset(*arguments)
    assert_unchanged(engine, before, shown)


@pytest.mark.parametrize("seed", [1.5, "7", np.True_])
def test_a_seed_that_is_no_number_is_named(seed: Any) -> None:
    with pytest.raises(TypeError, match="seed"):
        begun().reset(seed)


STEPPING: dict[str, tuple[Any, type[Exception], str]] = {
    "an action too high": ([0, 7, 2], ValueError, "world 1 was given action 7; actions are 0 left, 1 right, 2 forward"),
    "an action below 0": ([0, 0, -1], ValueError, "world 2 was given action -1"),
    "a huge action": (np.array([0, 2**64 - 1, 0], dtype=np.uint64), ValueError, "world 1 was given action"),
    "fractions": ([0.0, 1.0, 2.0], TypeError, "actions must be integers 0..6, not float64"),
    "truths": ([True, False, True], TypeError, "actions must be integers 0..6, not bool"),
    "words": (["left"] * 3, TypeError, "actions must be integers"),
    "one action": (2, ValueError, "one action for each of 3 worlds, not an array of"),
    "too few": ([2, 2], ValueError, r"one action for each of 3 worlds, not an array of \(2,\)"),
    "a table": ([[2], [2], [2]], ValueError, "one action for each of 3 worlds"),
}


def assert_unchanged(engine: Engine, before: np.ndarray, shown: dict[str, np.ndarray]) -> None:
    assert not differing_fields(engine.worlds, before)
    for name in OUTPUTS:
        np.testing.assert_array_equal(getattr(engine, name), shown[name], err_msg=name)


@pytest.mark.parametrize(("actions", "error", "message"), STEPPING.values(), ids=STEPPING.keys())
def test_steps_that_cannot_be(actions: Any, error: type[Exception], message: str) -> None:
    engine = begun()
    before, shown = engine.worlds.copy(), outputs(engine)
    with pytest.raises(error, match=message):
        engine.step(actions)
    assert_unchanged(engine, before, shown)


@pytest.mark.compiled
@pytest.mark.parametrize("guilty", [0, 2 * MIN_SHARD - 1])
def test_a_refused_step_changes_nothing_in_any_shard(guilty: int) -> None:
    engine = Engine("GoToLocal", 2 * MIN_SHARD, threads=2)
    engine.reset(0)
    before, shown = engine.worlds.copy(), outputs(engine)
    actions = np.ones(2 * MIN_SHARD, dtype=int)
    actions[guilty] = 9
    with pytest.raises(ValueError, match=f"world {guilty} was given action 9"):
        engine.step(actions)
    assert_unchanged(engine, before, shown)


def test_no_step_before_the_first_reset() -> None:
    engine = Engine("GoToLocal", 2)
    with pytest.raises(RuntimeError, match=r"world 0 has not been reset yet: call reset\(\) before step\(\)"):
        engine.step([0, 0])
    engine.reset(0, np.array([True, False]))
    with pytest.raises(RuntimeError, match="world 1 has not been reset yet"):
        engine.step([0, 0])
    assert engine.worlds[0].step_count == 0


def test_no_step_after_the_end() -> None:
    engine = begun()
    engine.lay_out(1, ROOM, "go to the red ball")
    engine.step([0, 2, 0])
    assert engine.terminated.tolist() == [False, True, False]
    before, shown = engine.worlds.copy(), outputs(engine)
    with pytest.raises(RuntimeError, match=r"the episode of world 1 is over: call reset\(\) before the next step\(\)"):
        engine.step([0, 2, 0])
    assert_unchanged(engine, before, shown)


TELLING: dict[str, tuple[str, type[Exception], str]] = {
    "no sentence": ("walk to the red ball", MissionError, "expected 'go to'"),
    "nothing like it": ("go to the grey key", ValueError, "there is no 'grey key' in it"),
    "no such target": ("put the red ball next to the door", ValueError, "there is no 'door' in it"),
    "next to itself": ("put a ball next to the red ball", ValueError, "next to itself"),
    "in the second side": ("go to a ball, then open the door", ValueError, "there is no 'door' in it"),
}


@pytest.mark.parametrize(("mission", "error", "message"), TELLING.values(), ids=TELLING.keys())
def test_instructions_that_cannot_be(mission: str, error: type[Exception], message: str) -> None:
    engine = begun()
    engine.lay_out(1, ROOM, "go to the red ball")
    before, shown = engine.worlds.copy(), outputs(engine)
    with pytest.raises(error, match=message):
        engine.instruct(1, mission)
    assert_unchanged(engine, before, shown)
    with pytest.raises(error, match=message):
        engine.lay_out(0, ROOM, mission)
    assert_unchanged(engine, before, shown)


def test_a_drawing_that_is_none() -> None:
    engine = begun()
    before, shown = engine.worlds.copy(), outputs(engine)
    with pytest.raises(ValueError, match="there is no agent"):
        engine.lay_out(0, ROOM.replace(">>", ".."), "go to the red ball")
    assert_unchanged(engine, before, shown)


def test_worlds_that_there_are_not() -> None:
    engine = begun()
    for act in (
        lambda: engine.lay_out(3, ROOM, "go to the red ball"),
        lambda: engine.instruct(3, "go to a ball"),
        lambda: engine.observe(3),
        lambda: engine.snapshot(3),
        lambda: engine.restore(3, engine.snapshot(0)),
    ):
        with pytest.raises(IndexError):
            act()


def test_snapshots_that_are_none() -> None:
    engine = begun()
    two = Engine(["GoToLocal", "GoToObj"], 2)
    before, shown = engine.worlds.copy(), outputs(engine)
    with pytest.raises(ValueError, match="this snapshot is of a world that this engine does not have"):
        engine.restore(0, two.snapshot(1))
    two.reset(0)
    with pytest.raises(ValueError, match="this snapshot is of a world that this engine does not have"):
        engine.restore(0, two.snapshot(1))
    for nonsense in (b"", b"world", 7, engine.snapshot(0)[:-1]):
        with pytest.raises(ValueError, match="not a snapshot of a world"):
            engine.restore(0, nonsense)
    assert_unchanged(engine, before, shown)


def test_seeds_come_to_an_end() -> None:
    """The last seed there is has no next one; going on is refused rather than wrapped around."""
    engine = Engine("GoToObjS4", episodes="next_seed")
    engine.reset([LARGEST])
    with pytest.raises(ValueError, match="seed"):
        engine.reset()
