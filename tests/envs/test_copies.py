"""Copies of engines, vector environments and experts work and are independent; threads survive a fork."""

import copy
import os
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

import babyai
from babyai.engine import Engine

# Thousands of steps, which are too slow without the compiler.
pytestmark = pytest.mark.compiled

COPIES = [copy.deepcopy, copy.copy, lambda each: pickle.loads(pickle.dumps(each))]
ARRAYS = ("worlds", "images", "directions", "missions", "rewards", "terminated", "truncated", "done")


def random_actions(steps: int, count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(6, size=(steps, count))


def assert_same_arrays(first: Engine, second: Engine) -> None:
    for name in ARRAYS:
        assert getattr(first, name).tobytes() == getattr(second, name).tobytes(), name


@pytest.mark.parametrize("duplicate", COPIES)
@pytest.mark.parametrize("settings", [{}, {"episodes": "next_seed", "view_size": 5}, {"threads": 2}])
def test_copied_engine_continues_independently(duplicate: Callable[[Any], Any], settings: dict[str, Any]) -> None:
    count = 2048 if "threads" in settings else 8
    engine = Engine(["GoToLocal", "BossLevel"], count, rules="minigrid", **settings)
    engine.reset(3)
    for actions in random_actions(20, count):
        engine.step(actions)
        engine.reset_done()
    twin = duplicate(engine)
    before = twin.worlds.tobytes()
    for actions in random_actions(30, count, seed=1):
        engine.step(actions)
        engine.reset_done()
    assert twin.worlds.tobytes() == before
    for actions in random_actions(30, count, seed=1):
        twin.step(actions)
        twin.reset_done()
    assert_same_arrays(engine, twin)
    # Snapshots are read from the worlds that are stepped.
    assert twin.snapshot(1) == engine.snapshot(1) == twin.kernel_worlds[1].tobytes()
    twin.close()
    engine.close()


@pytest.mark.parametrize("duplicate", COPIES)
@pytest.mark.parametrize("mode", list(AutoresetMode)[:2])
@pytest.mark.parametrize("observation", ["symbolic", "full_rgb"])
def test_copied_vector_environment_continues_independently(
    duplicate: Callable[[Any], Any], mode: AutoresetMode, observation: str
) -> None:
    env = gym.make_vec(
        "babyai/GoToObj-v0", num_envs=4, autoreset_mode=mode, observation=observation, max_steps=9, copy=False
    )
    env.reset(seed=0)
    for actions in random_actions(10, 4):
        env.step(actions)
    twin = duplicate(env)
    assert twin.spec == env.spec
    for actions in random_actions(40, 4, seed=1):
        obs, rewards, terminated, truncated, infos = env.step(actions)
        again, rewards_again, terminated_again, truncated_again, infos_again = twin.step(actions)
        for key, part in obs.items():
            np.testing.assert_array_equal(part, again[key])
        np.testing.assert_array_equal(rewards, rewards_again)
        np.testing.assert_array_equal(terminated, terminated_again)
        np.testing.assert_array_equal(truncated, truncated_again)
        if "episode" in infos:
            # The lengths are read from the worlds of the copy, not from those of the original.
            np.testing.assert_array_equal(infos["episode"]["l"], infos_again["episode"]["l"])


def test_an_environment_that_was_never_reset_can_be_copied() -> None:
    for duplicate in COPIES:
        twin = duplicate(gym.make("babyai/GoToObj-v0").unwrapped)
        assert twin.reset(seed=1)[0]["mission"] == gym.make("babyai/GoToObj-v0").reset(seed=1)[0]["mission"]
        duplicate(gym.make_vec("babyai/GoToObj-v0", num_envs=2)).reset(seed=0)


def test_a_copy_keeps_attributes_that_were_set() -> None:
    env: Any = gym.make("babyai/GoToObj-v0").unwrapped
    env.tile_size = 11
    env.note = "mine"
    twin = copy.deepcopy(env)
    assert (twin.tile_size, twin.note) == (11, "mine")


@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each))])
def test_experts_can_be_copied_with_their_engine(duplicate: Callable[[Any], Any]) -> None:
    engine = Engine("GoToObjMaze", 3)
    engine.reset(0)
    experts = babyai.ExpertBatch(engine)
    for _ in range(5):
        engine.step(experts.advise())
    engine_twin, experts_twin = duplicate((engine, experts))
    assert experts_twin.engine is engine_twin
    for _ in range(60):
        for each, advisers in ((engine, experts), (engine_twin, experts_twin)):
            advisers.reset(each.reset_done())
            each.step(advisers.advise())
        assert_same_arrays(engine, engine_twin)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs os.fork")
@pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
def test_threads_work_after_a_fork() -> None:
    engine = Engine("GoToObj", 2048, threads=2)
    engine.reset(0)
    (actions,) = random_actions(1, 2048)
    twin = copy.deepcopy(engine)
    twin.step(actions)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            engine.step(actions)
            os.write(writing, b"same" if engine.worlds.tobytes() == twin.worlds.tobytes() else b"different")
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as results:
        assert results.read() == b"same"
    os.waitpid(child, 0)
    # The parent's threads still work as well.
    engine.step(actions)
    assert_same_arrays(engine, twin)
    twin.close()
    engine.close()
