"""Minigrid's wrappers, and the properties that Minigrid's own tests require of an environment, on our environments.

Every wrapper must do the same on ours as on Minigrid's: the same observations, rewards and ends, or the same kind of
error where Minigrid says that a wrapper is not for BabyAI.
"""

import contextlib
import io
import pickle
from collections.abc import Callable
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env, data_equivalence
from minigrid import wrappers
from minigrid.core.grid import Grid

import babyai
import babyai.envs
from tests.twin import MINIGRID_IDS, level_of

# Thousands of steps, which are too slow without the compiler.
pytestmark = pytest.mark.compiled

# The first of every family; `-m long` plays all ids.
SOME_IDS = [
    f"BabyAI-{name}-v0" for name in ("GoToLocal", "BossLevel", "UnlockPickup", "PutNextS5N2Carrying", "KeyInBox")
]
WRAPPERS: dict[str, Callable[[gym.Env], gym.Env]] = {
    "ReseedWrapper": lambda env: wrappers.ReseedWrapper(env, seeds=[4, 9]),
    "ActionBonus": wrappers.ActionBonus,
    "PositionBonus": wrappers.PositionBonus,
    "ImgObsWrapper": wrappers.ImgObsWrapper,
    "OneHotPartialObsWrapper": wrappers.OneHotPartialObsWrapper,
    "RGBImgObsWrapper": wrappers.RGBImgObsWrapper,
    "RGBImgPartialObsWrapper": wrappers.RGBImgPartialObsWrapper,
    "FullyObsWrapper": wrappers.FullyObsWrapper,
    "FlatObsWrapper": wrappers.FlatObsWrapper,
    "DictObservationSpaceWrapper": wrappers.DictObservationSpaceWrapper,
    "ViewSizeWrapper": lambda env: wrappers.ViewSizeWrapper(env, agent_view_size=5),
    "DirectionObsWrapper": wrappers.DirectionObsWrapper,
    "SymbolicObsWrapper": wrappers.SymbolicObsWrapper,
    "StochasticActionWrapper": wrappers.StochasticActionWrapper,
    "NoDeath": lambda env: wrappers.NoDeath(env, no_death_types=("ball",)),
}


def plain(obs: Any) -> Any:
    """The observation with its direction as an int, which in Minigrid may be a NumPy integer."""
    return obs | {"direction": int(obs["direction"])} if isinstance(obs, dict) else obs


def walk(env: gym.Env, steps: int) -> list[Any]:
    """All results of a reset and of a random walk with resets; infos, which Minigrid's environments lack, left out.

    Minigrid's errors are results too: two of its wrappers are not for BabyAI.
    """
    results: list[Any] = []
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            seed = None if isinstance(env, wrappers.ReseedWrapper) else 7
            results.append(plain(env.reset(seed=seed)[0]))
            for action in np.random.default_rng(7).integers(6, size=steps):
                obs, reward, terminated, truncated, _ = env.step(int(action))
                results.append((plain(obs), float(reward), terminated, truncated))
                if terminated or truncated:
                    results.append(plain(env.reset()[0]))
    except (ValueError, AssertionError) as error:
        results.append((type(error).__name__, str(error)))
    return results


def assert_wrapper_does_the_same(wrapper: str, minigrid_id: str, steps: int) -> None:
    ours = WRAPPERS[wrapper](gym.make(babyai.LEVELS[level_of(minigrid_id)].id, rules="minigrid"))
    theirs = WRAPPERS[wrapper](gym.make(minigrid_id, disable_env_checker=True))
    first = walk(ours, steps)
    second = walk(theirs, steps)
    assert len(first) == len(second)
    for number, (result, expected) in enumerate(zip(first, second, strict=True)):
        assert data_equivalence(result, expected), f"{wrapper} on {minigrid_id} differs at step {number}"
    is_error = isinstance(first[-1], tuple) and isinstance(first[-1][0], str)
    assert is_error or isinstance(ours.observation_space, gym.spaces.Dict) or first[0] in ours.observation_space


@pytest.mark.parametrize("minigrid_id", SOME_IDS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_do_the_same_as_on_minigrid(wrapper: str, minigrid_id: str) -> None:
    assert_wrapper_does_the_same(wrapper, minigrid_id, 15)


@pytest.mark.long
@pytest.mark.parametrize("minigrid_id", MINIGRID_IDS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_wrappers_do_the_same_as_on_minigrid_on_every_level(wrapper: str, minigrid_id: str) -> None:
    assert_wrapper_does_the_same(wrapper, minigrid_id, 40)


def test_two_wrappers_do_not_work_on_babyai_in_minigrid_either() -> None:
    """The documented exceptions: there is no goal to point at, and the wrapper's vocabulary lacks BabyAI's words."""
    for wrapper, error in (("DirectionObsWrapper", "Goal object"), ("DictObservationSpaceWrapper", "Unknown word")):
        ends = set()
        for level in ("GoToLocal", "BossLevel", "PutNextLocal"):
            *_, last = walk(WRAPPERS[wrapper](gym.make(f"babyai/{level}-v0")), 3)
            ends.add(last[1] if isinstance(last, tuple) and isinstance(last[0], str) else "")
        assert any(error in end for end in ends)


# ---------------------------------------------------------------- what Minigrid's tests require of an environment


def test_every_id_of_minigrid_exists_here() -> None:
    assert {babyai.LEVELS[level_of(name)].id for name in MINIGRID_IDS} <= set(gym.registry)


@pytest.mark.parametrize("minigrid_id", SOME_IDS)
def test_environments_are_deterministic(minigrid_id: str) -> None:
    level = level_of(minigrid_id)
    first, second = (gym.make(f"babyai/{level}-v0", rules="minigrid") for _ in range(2))
    assert data_equivalence(walk(first, 60), walk(second, 60))
    assert data_equivalence(first.action_space, second.action_space)


def test_the_in_operator_agrees_with_what_the_agent_sees() -> None:
    env: Any = gym.make("babyai/GoToRedBallNoDists-v0", rules="minigrid", max_steps=500).unwrapped
    seen = 0
    for seed in range(3):
        env.reset(seed=seed)
        assert ("red", "ball") in env.grid and ("blue", "key") not in env.grid
        (position,) = env.instrs.desc.obj_poss
        for action in np.random.default_rng(seed).integers(3, size=100):
            obs, _, terminated, truncated, _ = env.step(action)
            visible = ("red", "ball") in Grid.decode(obs["image"])[0]
            assert env.agent_sees(*position) == visible
            seen += visible
            if terminated or truncated:
                break
    assert seen > 0


@pytest.mark.parametrize("minigrid_id", SOME_IDS)
def test_max_steps_is_kept_over_episodes(minigrid_id: str) -> None:
    env: Any = gym.make(f"babyai/{level_of(minigrid_id)}-v0", max_steps=50, rules="minigrid")
    for seed in range(3):
        env.reset(seed=seed)
        assert env.unwrapped.max_steps == 50


@pytest.mark.parametrize("minigrid_id", SOME_IDS)
def test_environments_can_be_pickled(minigrid_id: str) -> None:
    env = gym.make(f"babyai/{level_of(minigrid_id)}-v0", rules="minigrid")
    twin = pickle.loads(pickle.dumps(env))
    assert data_equivalence(walk(env, 20), walk(twin, 20))


def test_the_symbolic_wrapper_has_a_valid_space() -> None:
    env = wrappers.SymbolicObsWrapper(gym.make("babyai/GoToLocal-v0"))
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space
    grid = obs["image"]
    x, y = env.unwrapped.agent_pos  # pyright: ignore[reportAttributeAccessIssue]
    assert grid[x, y].tolist() == [x, y, 10] and grid[0, 0].tolist() == [0, 0, 2]


@pytest.mark.filterwarnings("ignore:.*different from the unwrapped version")
@pytest.mark.parametrize("wrapper", ["ImgObsWrapper", "FullyObsWrapper", "ViewSizeWrapper", "RGBImgPartialObsWrapper"])
def test_wrapped_environments_pass_gymnasiums_checker(wrapper: str) -> None:
    # Without a spec: Minigrid's wrappers cannot be made again from one.
    check_env(WRAPPERS[wrapper](babyai.envs.BabyAIEnv("GoToLocal", rules="minigrid")), skip_render_check=True)


def test_environments_can_be_vectorized_by_gymnasium() -> None:
    envs = gym.make_vec("babyai/GoToLocal-v0", 3, vectorization_mode="sync", rules="minigrid")
    obs, _ = envs.reset(seed=0)
    assert obs["image"].shape == (3, 7, 7, 3)
    obs, *_ = envs.step(envs.action_space.sample())
    assert len(obs["mission"]) == 3
    envs.close()
