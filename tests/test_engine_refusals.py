"""Invalid arguments to an engine raise an error that names the problem, and leave every world unchanged."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
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


def make_engine() -> Engine:
    engine = Engine("GoToLocal", 3)
    engine.reset(0)
    return engine


@contextmanager
def unchanged(engine: Engine) -> Iterator[None]:
    """Asserts that the engine's worlds and outputs are the same after the block as before it."""
    worlds = engine.worlds.copy()
    shown = outputs(engine)
    yield
    assert not differing_fields(engine.worlds, worlds)
    for name in OUTPUTS:
        np.testing.assert_array_equal(getattr(engine, name), shown[name], err_msg=name)


CONSTRUCTORS: dict[str, tuple[Callable, type[Exception], str]] = {
    "unknown level": (lambda: Engine("GoToLocl"), UnknownLevelError, "'GoToLocl'.* 'GoToLocal'"),
    "one unknown level of two": (lambda: Engine(["GoTo", "Gone"]), UnknownLevelError, "unknown level 'Gone'"),
    "no level": (lambda: Engine([]), ValueError, "at least one level"),
    "no worlds": (lambda: Engine("GoTo", 0), ValueError, "num_worlds.* not 0 and 1"),
    "no threads": (lambda: Engine("GoTo", threads=0), ValueError, "threads.* not 1 and 0"),
    "no shards": (lambda: Engine("GoTo", min_shard=0), ValueError, "min_shard .* not 0"),
    "unknown rules": (lambda: Engine("GoTo", rules="gym"), ValueError, "'gym'.* 'paper' or 'minigrid'"),
    "unknown episodes": (lambda: Engine("GoTo", episodes="new"), ValueError, "'stream' or 'next_seed'.* 'new'"),
    "even view size": (lambda: Engine("GoTo", view_size=8), ValueError, "view_size .*odd.* 3 and 15.* 8$"),
    "view size too small": (lambda: Engine("GoTo", view_size=1), ValueError, "view_size .* 3 and 15.* 1$"),
    "view size too large": (lambda: Engine("GoTo", view_size=17), ValueError, "view_size .* 3 and 15.* 17$"),
    "assignment too short": (lambda: Engine("GoTo", 3, assignment=[0, 0]), ValueError, r"assignment .*\b3\b.* 0\.\.0"),
    "assignment too high": (lambda: Engine("GoTo", 2, assignment=[0, 1]), ValueError, r"assignment .*\b2\b.* 0\.\.0"),
    "assignment below 0": (lambda: Engine("GoTo", 2, assignment=[0, -1]), ValueError, r"assignment .*\b2\b.* 0\.\.0"),
}


@pytest.mark.parametrize(("make", "error", "message"), CONSTRUCTORS.values(), ids=CONSTRUCTORS.keys())
def test_invalid_constructor_arguments_are_rejected(make: Callable, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


RESETS: dict[str, tuple[tuple, type[Exception], str]] = {
    "negative seed": ((-1,), ValueError, r"seed .*0\.\.2\*\*63 - 1.* -1$"),
    "negative seed in a list": (([0, -5, 2],), ValueError, "seed .* -5$"),
    "seed too large": ((LARGEST + 1,), ValueError, f"seed .* {LARGEST + 1}"),
    "last seed too large": ((LARGEST - 1,), ValueError, f"seed .* {LARGEST + 1}"),
    "seed too large in a list": (([0, 1, LARGEST + 1],), ValueError, f"seed .* {LARGEST + 1}"),
    "bool as seed": ((True,), TypeError, "seed .*integer.* True"),
    "bool in a list of seeds": (([0, True, 2],), TypeError, "seed .*integer.* True"),
    "floats as seeds": (([0.5, 1.5, 2.5],), TypeError, r"seed .*integer.* 0\.5"),
    "too few seeds": (([1, 2],), ValueError, r"seed per world \(3\).* 2$"),
    "too many seeds": (([1, 2, 3, 4],), ValueError, r"seed per world \(3\).* 4$"),
    "mask of integers": ((0, np.array([0, 1, 1])), ValueError, r"\(3,\).* bool.* \(3,\) int64"),
    "mask too short": ((0, np.array([True])), ValueError, r"\(3,\).* bool.* \(1,\) bool"),
}


@pytest.mark.parametrize(("arguments", "error", "message"), RESETS.values(), ids=RESETS.keys())
def test_invalid_resets_are_rejected(arguments: tuple, error: type[Exception], message: str) -> None:
    engine = make_engine()
    with unchanged(engine), pytest.raises(error, match=message):
        engine.reset(*arguments)


@pytest.mark.parametrize("seed", [1.5, "7", np.True_])
def test_error_names_a_seed_that_is_not_an_integer(seed: Any) -> None:
    with pytest.raises(TypeError, match="seed"):
        make_engine().reset(seed)


STEPS: dict[str, tuple[Any, type[Exception], str]] = {
    "action too high": ([0, 7, 2], ValueError, "action 7 for world 1.* 0 left, 1 right, 2 forward"),
    "negative action": ([0, 0, -1], ValueError, "action -1 for world 2"),
    "action beyond int64": (np.array([0, 2**64 - 1, 0], dtype=np.uint64), ValueError, "action .* for world 1"),
    "floats": ([0.0, 1.0, 2.0], TypeError, r"actions .*integers 0\.\.6.* float64"),
    "bools": ([True, False, True], TypeError, r"actions .*integers 0\.\.6.* bool"),
    "strings": (["left"] * 3, TypeError, "actions .*integers"),
    "one integer": (2, ValueError, r"\(3,\).* \(\)"),
    "too few": ([2, 2], ValueError, r"\(3,\).* \(2,\)"),
    "two-dimensional": ([[2], [2], [2]], ValueError, r"\(3,\).* \(3, 1\)"),
}


@pytest.mark.parametrize(("actions", "error", "message"), STEPS.values(), ids=STEPS.keys())
def test_invalid_actions_are_rejected(actions: Any, error: type[Exception], message: str) -> None:
    engine = make_engine()
    with unchanged(engine), pytest.raises(error, match=message):
        engine.step(actions)


@pytest.mark.compiled
@pytest.mark.parametrize("invalid", [0, 2 * MIN_SHARD - 1])
def test_rejected_step_changes_no_shard(invalid: int) -> None:
    engine = Engine("GoToLocal", 2 * MIN_SHARD, threads=2)
    engine.reset(0)
    actions = np.ones(2 * MIN_SHARD, dtype=int)
    actions[invalid] = 9
    with unchanged(engine), pytest.raises(ValueError, match=f"action 9 for world {invalid};"):
        engine.step(actions)


def test_step_before_the_first_reset_is_rejected() -> None:
    engine = Engine("GoToLocal", 2)
    with pytest.raises(RuntimeError, match=r"world 0 .*not been reset.* reset\(\)"):
        engine.step([0, 0])
    engine.reset(0, np.array([True, False]))
    with pytest.raises(RuntimeError, match=r"world 1 .*not been reset"):
        engine.step([0, 0])
    assert engine.worlds[0].step_count == 0


def test_step_after_the_end_of_an_episode_is_rejected() -> None:
    engine = make_engine()
    engine.lay_out(1, ROOM, "go to the red ball")
    engine.step([0, 2, 0])
    assert engine.terminated.tolist() == [False, True, False]
    with unchanged(engine), pytest.raises(RuntimeError, match=r"world 1 is over.* reset\(\)"):
        engine.step([0, 2, 0])


MISSIONS: dict[str, tuple[str, type[Exception], str]] = {
    "not in the language": ("walk to the red ball", MissionError, "expected 'go to'"),
    "no such object": ("go to the grey key", ValueError, "no 'grey key'"),
    "no such target": ("put the red ball next to the door", ValueError, "no 'door'"),
    "next to itself": ("put a ball next to the red ball", ValueError, "next to itself"),
    "no such object in the second half": ("go to a ball, then open the door", ValueError, "no 'door'"),
}


@pytest.mark.parametrize(("mission", "error", "message"), MISSIONS.values(), ids=MISSIONS.keys())
def test_invalid_missions_are_rejected(mission: str, error: type[Exception], message: str) -> None:
    engine = make_engine()
    engine.lay_out(1, ROOM, "go to the red ball")
    with unchanged(engine), pytest.raises(error, match=message):
        engine.instruct(1, mission)
    with unchanged(engine), pytest.raises(error, match=message):
        engine.lay_out(0, ROOM, mission)


def test_layout_without_an_agent_is_rejected() -> None:
    engine = make_engine()
    with unchanged(engine), pytest.raises(ValueError, match="no agent"):
        engine.lay_out(0, ROOM.replace(">>", ".."), "go to the red ball")


def test_world_index_out_of_range_is_rejected() -> None:
    engine = make_engine()
    for call in (
        lambda: engine.lay_out(3, ROOM, "go to the red ball"),
        lambda: engine.instruct(3, "go to a ball"),
        lambda: engine.observe(3),
        lambda: engine.snapshot(3),
        lambda: engine.restore(3, engine.snapshot(0)),
    ):
        with pytest.raises(IndexError):
            call()


def test_invalid_snapshots_are_rejected() -> None:
    engine = make_engine()
    two_levels = Engine(["GoToLocal", "GoToObj"], 2)
    with unchanged(engine):
        with pytest.raises(ValueError, match=r"snapshot .*level"):
            engine.restore(0, two_levels.snapshot(1))
        two_levels.reset(0)
        with pytest.raises(ValueError, match=r"snapshot .*level"):
            engine.restore(0, two_levels.snapshot(1))
        for invalid in (b"", b"world", 7, engine.snapshot(0)[:-1]):
            with pytest.raises(ValueError, match="not a snapshot"):
                engine.restore(0, invalid)


def test_next_seed_does_not_wrap_around() -> None:
    """There is no seed after the largest one, so the reset is rejected."""
    engine = Engine("GoToObjS4", episodes="next_seed")
    engine.reset([LARGEST])
    with pytest.raises(ValueError, match="seed"):
        engine.reset()
