"""Batches, threads, seeds and episodes of an engine: what one world does never depends on the others."""

from collections.abc import Callable

import numpy as np
import pytest

from babyai import LEVELS, Engine
from babyai.engine import MIN_SHARD
from babyai.world.codes import MAX_WORDS, Action
from babyai.world.state import NOT_RESET, WORLD
from tests.reference import differing_fields
from tests.scale import COMPILER_OFF, scaled

MIX = (0.15, 0.15, 0.4, 0.1, 0.08, 0.1, 0.02)
LEVEL_MIX = ["GoToLocal", "Unlock", "BossLevel", "PutNextS5N2Carrying", "OpenDoorsOrderN4Debug"]
OUTPUTS = ("images", "directions", "missions", "rewards", "terminated", "truncated", "done")
ROOM = """
    ##########
    ##>>..ro##
    ##......##
    ##bo....##
    ##########
"""


def outputs(engine: Engine) -> dict[str, np.ndarray]:
    return {name: getattr(engine, name).copy() for name in OUTPUTS}


def assert_same(a: Engine, b: Engine) -> None:
    """Asserts that two engines have the same outputs and the same worlds."""
    for name in OUTPUTS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    assert not differing_fields(a.worlds, b.worlds)


def play_on(engine: Engine, steps: int, seed: int = 0, after_step: Callable[[], None] = lambda: None) -> None:
    """Takes random actions; resets each world whose episode ends."""
    rng = np.random.default_rng(seed)
    for _ in range(steps):
        engine.step(rng.choice(7, size=engine.num_worlds, p=MIX))
        after_step()
        engine.reset_done()


# ---------------------------------------------------------------- the contract


def test_world_record_is_at_most_1536_bytes() -> None:
    assert WORLD.itemsize <= 1536


@pytest.mark.parametrize("view_size", [3, 7, 15])
def test_output_arrays_have_documented_shapes_and_stay_the_same_objects(view_size: int) -> None:
    engine = Engine("GoToLocal", 6, view_size=view_size)
    shown = {name: getattr(engine, name) for name in OUTPUTS}
    assert engine.done.all() and (engine.worlds.status == NOT_RESET).all()
    engine.reset(0)
    engine.step([Action.forward] * 6)
    assert {name: (array.dtype, array.shape) for name, array in shown.items()} == {
        "images": (np.uint8, (6, view_size, view_size, 3)),
        "directions": (np.int64, (6,)),
        "missions": (np.uint8, (6, MAX_WORDS)),
        "rewards": (np.float64, (6,)),
        "terminated": (bool, (6,)),
        "truncated": (bool, (6,)),
        "done": (bool, (6,)),
    }
    # The engine writes into the same arrays forever, so a reference to one shows every step.
    assert all(getattr(engine, name) is array for name, array in shown.items())
    assert all(array.flags.c_contiguous for array in shown.values())


def test_actions_may_be_any_sequence_of_integers() -> None:
    engines = [Engine("GoToLocal", 3) for _ in range(5)]
    forms = [[0, 2, 5], (0, 2, 5), np.array([0, 2, 5], dtype=np.uint8), [Action.left, Action.forward, Action.toggle]]
    strided = np.array([0, 9, 2, 9, 5, 9])[::2]
    for engine, actions in zip(engines, [*forms, strided], strict=True):
        engine.reset(3)
        engine.step(actions)
        assert_same(engine, engines[0])


def test_skip_done_leaves_finished_worlds_unchanged() -> None:
    engine = Engine("GoToObjS4", 16)
    engine.reset(0)
    rng = np.random.default_rng(0)
    ended: dict[int, tuple] = {}
    for _ in range(16):
        engine.step(rng.integers(0, 7, size=16), skip_done=True)
        for i, (image, snapshot) in ended.items():
            np.testing.assert_array_equal(engine.images[i], image)
            assert engine.snapshot(i) == snapshot
            assert engine.done[i] and engine.rewards[i] == 0
            assert not engine.terminated[i] and not engine.truncated[i]
        for i in np.flatnonzero(engine.done):
            ended.setdefault(int(i), (engine.images[i].copy(), engine.snapshot(i)))
    assert len(ended) == 16


def test_reset_done_resets_only_finished_worlds() -> None:
    engine = Engine("GoToObjS4", 32)
    engine.reset(0)
    rng = np.random.default_rng(0)
    for _ in range(12):
        engine.step(rng.integers(0, 7, size=32))
        done = engine.done.copy()
        before = engine.worlds.copy()
        reset = engine.reset_done()
        np.testing.assert_array_equal(reset, done)
        assert reset is not engine.done and not engine.done.any()
        assert not differing_fields(engine.worlds[~done], before[~done])
        assert (engine.worlds.step_count[done] == 0).all()


UPDATES_OF_WORLD_1: dict[str, Callable[[Engine], None]] = {
    "observe": lambda engine: engine.observe(1),
    "lay_out": lambda engine: engine.lay_out(1, ROOM, "go to the red ball"),
    "restore": lambda engine: engine.restore(1, engine.snapshot(1)),
    "reset": lambda engine: engine.reset(5, np.array([False, True, False])),
    "step": lambda engine: engine.step([Action.left] * 3, skip_done=True),
}


@pytest.mark.parametrize("view_size", [7, 5])
@pytest.mark.parametrize("update", UPDATES_OF_WORLD_1)
def test_updating_one_world_does_not_write_to_its_neighbors(update: str, view_size: int) -> None:
    engine = Engine("GoToLocal", 3, view_size=view_size)
    engine.reset(0)
    if update == "step":
        engine.done[[0, 2]] = True
    engine.images[:] = engine.missions[:] = engine.directions[:] = 77
    UPDATES_OF_WORLD_1[update](engine)
    assert not (engine.images[1] == 77).any() and (engine.images[[0, 2]] == 77).all()
    assert (engine.missions[[0, 2]] == 77).all() and (engine.directions[[0, 2]] == 77).all()


# ---------------------------------------------------------------- batches and threads


def test_batch_equals_single_worlds() -> None:
    count = 3 * len(LEVEL_MIX)
    batch = Engine(LEVEL_MIX, count)
    batch.reset(100)
    singles = [Engine(LEVEL_MIX[i % len(LEVEL_MIX)]) for i in range(count)]
    for i, single in enumerate(singles):
        single.reset(100 + i)
    rng = np.random.default_rng(1)
    for _ in range(scaled(300, least=20)):
        for i, single in enumerate(singles):
            for name in OUTPUTS:
                np.testing.assert_array_equal(getattr(single, name)[0], getattr(batch, name)[i], err_msg=name)
            assert set(differing_fields(single.worlds[0], batch.worlds[i])) <= {"level"}
        actions = rng.choice(7, size=count, p=MIX)
        batch.step(actions)
        for i, single in enumerate(singles):
            single.step(actions[i : i + 1])
            single.reset_done()
        batch.reset_done()


def test_assignment_selects_the_level_of_each_world() -> None:
    engine = Engine(["GoToLocal", "GoToObjS4"], 4, assignment=[1, 0, 0, 1])
    engine.reset(0)
    assert engine.worlds.width.tolist() == [4, 8, 8, 4]


@pytest.mark.compiled
@pytest.mark.parametrize("view_size", [7, 5])
def test_results_do_not_depend_on_threads(view_size: int) -> None:
    count = 3 * MIN_SHARD + 37
    engines = [Engine(LEVEL_MIX, count, threads=threads, view_size=view_size) for threads in (1, 2, 3)]
    assert [len(engine.shards) for engine in engines] == [1, 2, 3]
    for engine in engines:
        engine.reset(5)
        play_on(engine, 60)
    for engine in engines[1:]:
        assert_same(engines[0], engine)
        assert engine.worlds.tobytes() == engines[0].worlds.tobytes()
        engine.close()


def test_small_batches_use_one_thread() -> None:
    assert len(Engine("GoToLocal", MIN_SHARD, threads=8).shards) == 1
    assert len(Engine("GoToLocal", 300, threads=8, min_shard=100).shards) == 3


# ---------------------------------------------------------------- seeds and episodes


def test_same_seed_gives_the_same_world() -> None:
    fresh = Engine(LEVEL_MIX, 10)
    fresh.reset(7)
    # Earlier episodes do not affect the result.
    used = Engine(LEVEL_MIX, 10)
    used.reset(12345)
    play_on(used, scaled(100, least=10))
    used.reset(7)
    # Rewards, terminated and truncated still belong to the last step; everything else is reset.
    np.testing.assert_array_equal(fresh.images, used.images)
    np.testing.assert_array_equal(fresh.missions, used.missions)
    assert not differing_fields(fresh.worlds, used.worlds)


def test_seeds_may_be_one_integer_a_list_or_an_array() -> None:
    counted, listed, array = (Engine("BossLevel", 3) for _ in range(3))
    counted.reset(40)
    listed.reset([40, 41, 42])
    array.reset(np.array([40, 41, 42], dtype=np.int32))
    assert_same(counted, listed)
    assert_same(counted, array)


def test_only_the_chosen_worlds_are_reset() -> None:
    engine = Engine("GoToLocal", 4)
    engine.reset(0)
    engine.step([Action.left] * 4)
    before = engine.worlds.copy()
    engine.reset([9, None, 11, None], np.array([True, False, True, False]))
    assert engine.worlds.seed.tolist() == [9, 1, 11, 3]
    assert not differing_fields(engine.worlds[[1, 3]], before[[1, 3]])
    assert engine.worlds.step_count.tolist() == [0, 1, 0, 1]


def test_reset_without_a_seed_continues_the_random_stream() -> None:
    played = Engine("GoToLocal", 8)
    skipped = Engine("GoToLocal", 8)
    played.reset(0)
    skipped.reset(0)
    # Steps draw no random numbers, so the next episode does not depend on the actions of the last one.
    for _ in range(3):
        for _ in range(5):
            played.step([Action.left] * 8, skip_done=True)
        played.reset()
        skipped.reset()
        assert not differing_fields(played.worlds, skipped.worlds)
    assert (played.worlds.seed == np.arange(8)).all()
    other = Engine("GoToLocal", 8)
    other.reset(0)
    assert "cells" in differing_fields(played.worlds, other.worlds)


@pytest.mark.parametrize("name", ["GoToObjS4", "PutNextLocalS5N3", "OpenRedDoor"])
def test_with_next_seed_every_episode_can_be_reproduced_by_its_seed(name: str) -> None:
    count = 6
    first = 1000
    engine = Engine(name, count, episodes="next_seed")
    engine.reset(first)
    episode = np.zeros(count, dtype=int)
    rng = np.random.default_rng(0)
    reproduced = Engine(name)
    for _ in range(scaled(200, least=60)):
        engine.step(rng.choice(7, size=count, p=MIX))
        reset = engine.reset_done()
        episode += reset
        assert (engine.worlds.seed == first + np.arange(count) + episode * count).all()
        for i in np.flatnonzero(reset):
            reproduced.reset(int(engine.worlds[i].seed))
            assert not differing_fields(engine.worlds[i], reproduced.worlds[0])
            np.testing.assert_array_equal(engine.images[i], reproduced.images[0])
    assert episode.sum() > 0


@pytest.mark.parametrize("episodes", ["stream", "next_seed"])
def test_first_reset_without_a_seed_is_random(episodes: str) -> None:
    engines = [Engine("GoToLocal", 4, episodes=episodes) for _ in range(2)]
    for engine in engines:
        engine.reset()
    seeds = np.concatenate([engine.worlds.seed for engine in engines])
    assert len(set(seeds.tolist())) == 8 and (seeds >= 0).all()
    if episodes == "next_seed":
        # Seeds from 10^9 on are reserved for validation and test.
        assert (seeds < 10**9).all()


def test_world_laid_out_before_the_first_reset_can_be_reset() -> None:
    # The generator of such a world has not been seeded yet.
    for reset in (Engine.reset, Engine.reset_done):
        engine = Engine("GoToObj")
        engine.lay_out(0, ROOM, "pick up the red ball")
        engine.step([Action.forward])
        engine.step([Action.pickup])
        assert engine.rewards[0] > 0
        reset(engine)
        assert engine.worlds[0].width == 8 and not engine.done[0]


@pytest.mark.compiled
def test_world_restored_from_an_unseeded_snapshot_can_be_reset() -> None:
    engine = Engine("GoToObj")
    engine.lay_out(0, ROOM, "pick up the red ball")
    engine.restore(0, engine.snapshot(0))
    engine.reset()
    assert engine.worlds[0].width == 8


@pytest.mark.parametrize("name", sorted(LEVELS)[:: 20 if COMPILER_OFF else 1])
def test_outputs_of_every_level_stay_in_range(name: str) -> None:
    """Images, step counts and rewards stay in range over many random episodes."""
    engine = Engine(name, scaled(32, least=2))
    engine.reset(0)
    play_on(engine, scaled(200, least=20))
    assert (
        (engine.images[..., 0] <= 7).all() and (engine.images[..., 1] <= 5).all() and (engine.images[..., 2] <= 2).all()
    )
    assert (engine.worlds.step_count < engine.worlds.max_steps).all()
    assert ((engine.rewards >= 0) & (engine.rewards <= 1)).all()
