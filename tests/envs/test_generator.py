"""`np_random` is the generator of the world, as in Minigrid."""

import copy
from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401
import numpy as np
import pytest

import babyai  # noqa: F401 - registers the levels

LEVEL = "GoToLocal"


def make_pair() -> tuple[Any, Any]:
    ours = gym.make(f"babyai/{LEVEL}-v0", rules="minigrid").unwrapped
    return ours, gym.make(f"BabyAI-{LEVEL}-v0").unwrapped


def assert_same_episode(ours: Any, theirs: Any, seed: int | None = None) -> None:
    obs, _ = ours.reset(seed=seed)
    expected, _ = theirs.reset(seed=seed)
    assert obs["mission"] == expected["mission"]
    np.testing.assert_array_equal(obs["image"], expected["image"])
    np.testing.assert_array_equal(ours.grid.encode(), theirs.grid.encode())
    assert ours.np_random.bit_generator.state == theirs.np_random.bit_generator.state


def test_draws_change_the_next_episode_as_in_minigrid() -> None:
    ours, theirs = make_pair()
    assert_same_episode(ours, theirs, seed=1)
    kept = ours.np_random
    assert ours.np_random.integers(100, size=7).tolist() == theirs.np_random.integers(100, size=7).tolist()
    assert ours.np_random.random() == theirs.np_random.random()
    assert_same_episode(ours, theirs)
    # As in Gymnasium, a reset without a seed keeps the generator, and a reset with one replaces it.
    assert ours.np_random is kept
    ours.step(0)
    assert kept.integers(9) == theirs.np_random.integers(9)
    assert_same_episode(ours, theirs)
    assert_same_episode(ours, theirs, seed=2)
    assert ours.np_random is not kept
    kept.random()
    assert_same_episode(ours, theirs)


def test_a_generator_can_be_set_before_the_first_reset() -> None:
    ours, theirs = make_pair()
    for env in (ours, theirs):
        env.np_random = np.random.default_rng(12)
        assert env.np_random_seed == -1
    assert_same_episode(ours, theirs)
    assert_same_episode(ours, theirs)


def test_draws_before_the_first_reset_count() -> None:
    env, _ = make_pair()
    assert env.np_random_seed == env.np_random_seed >= 0
    twin = copy.deepcopy(env)
    assert env.np_random.random() == twin.np_random.random()
    assert env.reset()[0]["mission"] == twin.reset()[0]["mission"]


def test_snapshots_and_copies_include_draws() -> None:
    env, _ = make_pair()
    env.reset(seed=3)
    env.np_random.random(5)
    snapshot = env.snapshot()
    twin = copy.deepcopy(env)
    expected = env.np_random.random(3).tolist()
    assert twin.np_random.random(3).tolist() == expected
    env.restore(snapshot)
    assert env.np_random.random(3).tolist() == expected


def test_another_kind_of_generator_is_rejected() -> None:
    env, _ = make_pair()
    with pytest.raises(TypeError, match=r"PCG64.*default_rng.*MT19937"):
        env.np_random = np.random.Generator(np.random.MT19937(0))
    with pytest.raises(TypeError, match="None"):
        env.np_random = None


def test_the_seed_is_that_of_the_last_reset() -> None:
    env, _ = make_pair()
    env.reset()
    assert env.np_random_seed == env.engine.worlds[0].seed
    env.reset(seed=5)
    env.reset()
    assert env.np_random_seed == 5


def test_vector_environments_have_no_generator_of_their_own() -> None:
    envs = gym.make_vec(f"babyai/{LEVEL}-v0", num_envs=2)
    envs.reset(seed=0)
    with pytest.raises(AttributeError, match=r"own generator.*reset\(seed"):
        envs.np_random  # noqa: B018
    with pytest.raises(AttributeError, match=r"reset\(seed"):
        envs.np_random = np.random.default_rng(0)
    with pytest.raises(AttributeError, match="single environment"):
        envs.get_attr("np_random")  # pyright: ignore[reportAttributeAccessIssue]
