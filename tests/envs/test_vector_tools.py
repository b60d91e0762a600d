"""Gymnasium's vector wrappers work on `make_vec` as it comes, and single worlds can be read and changed."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.wrappers import vector as vector_wrappers

from babyai.envs.vector import BabyAIVectorEnv

# Thousands of steps, which are too slow without the compiler.
pytestmark = pytest.mark.compiled

N = 4


def make(level: str = "GoToLocal", **settings: Any) -> BabyAIVectorEnv:
    env = gym.make_vec(f"babyai/{level}-v0", num_envs=N, max_steps=6, **settings)
    assert isinstance(env, BabyAIVectorEnv)
    return env


def images_only(env: Any) -> Any:
    """The environment with the images as its observations."""
    return vector_wrappers.TransformObservation(
        env, lambda obs: obs["image"], env.observation_space["image"], env.single_observation_space["image"]
    )


WRAPPERS = {
    "FlattenObservation": vector_wrappers.FlattenObservation,
    "FilterObservation": lambda env: vector_wrappers.FilterObservation(env, ["image", "direction"]),
    "TransformObservation": images_only,
    "DtypeObservation": lambda env: vector_wrappers.DtypeObservation(images_only(env), np.float32),
    "ReshapeObservation": lambda env: vector_wrappers.ReshapeObservation(images_only(env), (147,)),
    "RescaleObservation": lambda env: vector_wrappers.RescaleObservation(
        vector_wrappers.DtypeObservation(images_only(env), np.float32), np.float32(0), np.float32(1)
    ),
    "NormalizeObservation": lambda env: vector_wrappers.NormalizeObservation(
        vector_wrappers.DtypeObservation(images_only(env), np.float32)
    ),
    "NormalizeReward": vector_wrappers.NormalizeReward,
    "ClipReward": lambda env: vector_wrappers.ClipReward(env, 0, 0.5),
    "TransformReward": lambda env: vector_wrappers.TransformReward(env, lambda reward: 2 * reward),
    "TransformAction": lambda env: vector_wrappers.TransformAction(env, lambda action: action, env.action_space),
    "RecordEpisodeStatistics": vector_wrappers.RecordEpisodeStatistics,
    "DictInfoToList": vector_wrappers.DictInfoToList,
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_gymnasiums_vector_wrappers_work_on_the_default_environment(name: str) -> None:
    env = WRAPPERS[name](make(statistics=False))
    obs, _ = env.reset(seed=0)
    for step in range(20):
        assert obs in env.observation_space, step
        actions = env.action_space.sample()
        obs, rewards, terminated, truncated, _ = env.step(actions)
        assert len(rewards) == len(terminated) == len(truncated) == N


def test_normalized_observations_equal_those_of_gymnasiums_own_vector_environment() -> None:
    def normalize(env: Any) -> Any:
        return vector_wrappers.NormalizeObservation(vector_wrappers.DtypeObservation(images_only(env), np.float32))

    ours = normalize(make())
    sync = normalize(gym.make_vec("babyai/GoToLocal-v0", num_envs=N, max_steps=6, vectorization_mode="sync"))
    np.testing.assert_allclose(ours.reset(seed=0)[0], sync.reset(seed=0)[0])
    for actions in np.random.default_rng(0).integers(6, size=(20, N)):
        np.testing.assert_allclose(ours.step(actions)[0], sync.step(actions)[0])


# ---------------------------------------------------------------- single worlds


def test_attributes_of_worlds_equal_those_of_gymnasiums_own_vector_environment() -> None:
    env = make("BossLevel", rules="minigrid")
    sync: Any = gym.make_vec(
        "babyai/BossLevel-v0", num_envs=N, max_steps=6, rules="minigrid", vectorization_mode="sync"
    )
    env.reset(seed=0)
    sync.reset(seed=0)
    for actions in np.random.default_rng(0).integers(6, size=(15, N)):
        for name in ("agent_pos", "agent_dir", "mission", "step_count", "max_steps", "width", "room_size"):
            assert env.get_attr(name) == sync.get_attr(name), name
        assert env.call("pprint_grid") == sync.call("pprint_grid")
        assert env.call("hash", size=8) == sync.call("hash", size=8)
        np.testing.assert_array_equal(env.call("get_frame", tile_size=8)[1], sync.call("get_frame", tile_size=8)[1])
        assert [each.surface() for each in env.get_attr("instrs")] == list(sync.get_attr("mission"))
        np.testing.assert_array_equal(env.agent_pos, sync.get_attr("agent_pos"))
        np.testing.assert_array_equal(env.agent_dir, sync.get_attr("agent_dir"))
        assert env.missions == sync.get_attr("mission")
        env.step(actions)
        sync.step(actions)


def test_objects_of_worlds_follow_their_steps() -> None:
    env = make("GoToObj")
    env.reset(seed=0)
    worlds = [env.world(i) for i in range(N)]
    balls = [world.instrs.desc.obj_set[0] for world in worlds]  # pyright: ignore[reportAttributeAccessIssue]
    for world, ball in zip(worlds, balls, strict=True):
        assert ball.cur_pos is not None
        x, y = ball.cur_pos
        world.agent_pos = (x - 1, y) if x > 1 else (x + 1, y)
        world.agent_dir = 0 if x > 1 else 2
    env.step(np.full(N, 3))
    assert [world.carrying for world in worlds] == balls
    # The next step starts new episodes, because facing the object was the mission.
    env.step(np.full(N, 3))
    assert [world.step_count for world in worlds] == [0] * N
    assert all(world.instrs.desc.obj_set[0] not in balls for world in worlds)  # pyright: ignore[reportAttributeAccessIssue]


def test_attributes_of_worlds_can_be_set() -> None:
    env = make()
    env.reset(seed=0)
    env.set_attr("agent_dir", [0, 1, 2, 3])
    assert env.get_attr("agent_dir") == (0, 1, 2, 3)
    obs, *_ = env.step(np.full(N, 6))
    np.testing.assert_array_equal(obs["direction"], [0, 1, 2, 3])
    env.set_attr("max_steps", 3)
    assert env.get_attr("max_steps") == (3,) * N
    with pytest.raises(ValueError, match=rf"\({N}\), got 2"):
        env.set_attr("agent_dir", [1, 2])
    with pytest.raises(AttributeError, match=r"'see_through_walls'.*observation='full'"):
        env.set_attr("see_through_walls", True)
    with pytest.raises(AttributeError, match=r"'reward_scale' to set: agent_pos"):
        env.set_attr("reward_scale", 2)
    with pytest.raises(AttributeError, match="'agent_poss'"):
        env.get_attr("agent_poss")
    with pytest.raises(IndexError, match=f"no world {N}"):
        env.world(N)


def test_snapshots_of_worlds_through_views() -> None:
    env = make()
    env.reset(seed=0)
    snapshots = env.call("snapshot")
    env.step(np.full(N, 2))
    env.world(1).restore(snapshots[1])
    assert env.snapshot(1) == snapshots[1]


# ---------------------------------------------------------------- observations on request


def test_missions_as_text() -> None:
    env = make("BossLevel", missions="text", autoreset_mode="SameStep")
    tokens = make("BossLevel", autoreset_mode="SameStep")
    obs, _ = env.reset(seed=0)
    tokens.reset(seed=0)
    assert obs in env.observation_space and isinstance(env.single_observation_space, spaces.Dict)
    assert obs["mission"] == tokens.missions
    for actions in np.random.default_rng(0).integers(6, size=(8, N)):
        before = tokens.missions
        obs, *_, infos = env.step(actions)
        tokens.step(actions)
        assert obs["mission"] == tokens.missions
        if "final_obs" in infos:
            assert infos["final_obs"]["mission"] == before
    with pytest.raises(ValueError, match=r"missions 'words'.*'tokens', 'text'"):
        make(missions="words")


def test_truncation_by_steps_leaves_rewards_as_they_are() -> None:
    env = gym.make_vec("babyai/GoToRedBallNoDists-v0", num_envs=512, max_episode_steps=2)
    env.reset(seed=0)
    env.step(np.full(512, 2))
    _, rewards, terminated, truncated, _ = env.step(np.full(512, 2))
    took_two = env.unwrapped.engine.worlds.step_count == 2  # pyright: ignore[reportAttributeAccessIssue]
    assert terminated.any() and took_two.sum() > 256
    np.testing.assert_array_equal(truncated, took_two)
    # The level's own limit is 64 steps, and rewards depend on that one.
    np.testing.assert_allclose(rewards[terminated], 1 - 0.9 * 2 / 64)
    with pytest.raises(ValueError, match=r"max_episode_steps .* 0$"):
        gym.make_vec("babyai/GoToObj-v0", num_envs=2, max_episode_steps=0)


def test_the_autoreset_mode_cannot_change_after_a_reset() -> None:
    env = make()
    env.set_autoreset_mode("SameStep")
    assert env.metadata["autoreset_mode"] is env.autoreset_mode
    env.reset(seed=0)
    with pytest.raises(RuntimeError, match="before the first reset"):
        env.set_autoreset_mode("NextStep")
