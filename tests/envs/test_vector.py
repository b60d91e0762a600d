"""The vector environment equals Gymnasium's SyncVectorEnv of single environments, in every autoreset mode."""

from itertools import pairwise
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import data_equivalence
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics, TransformReward

from babyai.envs.vector import BabyAIVectorEnv
from babyai.world.language import detokenize

# Thousands of steps, which are too slow without the compiler.
pytestmark = pytest.mark.compiled

N = 6
MODES = list(AutoresetMode)


def make(level: str = "GoToLocal", num_envs: int = N, **settings: Any) -> BabyAIVectorEnv:
    env = gym.make_vec(f"babyai/{level}-v0", num_envs=num_envs, **settings)
    assert isinstance(env, BabyAIVectorEnv)
    return env


def make_sync(level: str, mode: AutoresetMode, **settings: Any) -> SyncVectorEnv:
    env = gym.make_vec(
        f"babyai/{level}-v0", N, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}, **settings
    )
    assert isinstance(env, SyncVectorEnv)
    return env


def random_actions(steps: int, num_envs: int = N, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).choice(6, size=(steps, num_envs), p=[0.15, 0.15, 0.35, 0.1, 0.05, 0.2])


def assert_same_observations(ours: dict[str, Any], theirs: dict[str, Any]) -> None:
    np.testing.assert_array_equal(ours["image"], theirs["image"])
    np.testing.assert_array_equal(ours["direction"], theirs["direction"])
    assert tuple(detokenize(tokens) for tokens in ours["mission"]) == theirs["mission"]
    assert ours.get("text") == theirs.get("text")


def assert_same_infos(ours: dict[str, Any], theirs: dict[str, Any], mode: AutoresetMode) -> None:
    """Asserts that our infos equal Gymnasium's, except for the additional episode statistics."""
    assert set(ours) - {"episode", "_episode"} == set(theirs)
    np.testing.assert_array_equal(ours["_success"], theirs["_success"])
    np.testing.assert_array_equal(ours["success"], theirs["success"])
    for key in {"effect", "_effect"} & set(theirs):
        np.testing.assert_array_equal(ours[key], theirs[key])
    if "final_obs" not in theirs:
        return
    assert mode is AutoresetMode.SAME_STEP
    for key in ("_final_obs", "_final_info"):
        np.testing.assert_array_equal(ours[key], theirs[key])
    for key in {"success", "_success", "effect", "_effect"} & set(theirs["final_info"]):
        np.testing.assert_array_equal(ours["final_info"][key], theirs["final_info"][key])
    for i in np.flatnonzero(ours["_final_obs"]):
        last = {key: part[i] for key, part in ours["final_obs"].items()}
        last["mission"] = detokenize(last["mission"])
        for key, part in theirs["final_obs"][i].items():
            np.testing.assert_array_equal(last[key], part)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(
    ("level", "settings"),
    [
        ("GoToLocal", {}),
        ("BossLevel", {"max_steps": 23}),
        ("GoToLocal", {"observation": "rgb", "view_size": 5}),
        ("GoToLocal", {"observation": "one_hot"}),
        ("UnlockPickup", {"observation": "full"}),
        ("UnlockPickup", {"observation": "full_rgb"}),
        ("GoToLocal", {"max_episode_steps": 6}),
        ("BossLevel", {"observation": "text", "max_steps": 23}),
        ("UnlockPickup", {"observation": "text", "wording": "babyai_text", "max_steps": 40}),
        ("PutNextS5N2Carrying", {"rules": "minigrid", "max_steps": 9}),
        ("PutNextS5N2Carrying", {"rules": "minigrid", "max_steps": 9, "observation": "rgb"}),
        ("OpenDoorsOrderN4Debug", {"done_actions": True, "max_steps": 40}),
    ],
)
def test_equals_gymnasiums_sync_vector_env(level: str, settings: dict[str, Any], mode: AutoresetMode) -> None:
    env = make(level, autoreset_mode=mode, **settings)
    sync = make_sync(level, mode, **settings)
    obs, infos = env.reset(seed=5)
    assert obs in env.observation_space
    expected, expected_infos = sync.reset(seed=5)
    assert_same_observations(obs, expected)
    assert_same_infos(infos, expected_infos, mode)
    ends = 0
    for actions in random_actions(150):
        obs, *results, infos = env.step(actions)
        expected, *expected_results, expected_infos = sync.step(actions)
        assert_same_observations(obs, expected)
        for part, expected_part in zip(results, expected_results, strict=True):
            np.testing.assert_array_equal(part, expected_part)
            assert part.dtype == expected_part.dtype
        assert_same_infos(infos, expected_infos, mode)
        ended = results[1] | results[2]
        ends += ended.sum()
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, infos = env.reset(options={"reset_mask": ended})
            expected, expected_infos = sync.reset(options={"reset_mask": ended})
            assert_same_observations(obs, expected)
            assert_same_infos(infos, expected_infos, mode)
    assert ends > N
    env.close()


def test_spaces_and_metadata() -> None:
    env = make()
    assert env.autoreset_mode is env.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    assert make(autoreset_mode="SameStep").autoreset_mode is AutoresetMode.SAME_STEP
    obs, _ = env.reset(seed=0)
    assert obs["image"].shape == (N, 7, 7, 3) and obs["image"].dtype == np.uint8
    assert obs["direction"].shape == (N,) and obs["direction"].dtype == np.int64
    assert obs["mission"].shape == (N, 72) and obs["mission"].dtype == np.uint8
    assert obs in env.observation_space
    assert {key: part[0] for key, part in obs.items()} in env.single_observation_space
    env.step(env.action_space.sample())
    assert env.spec is not None and env.spec.id == "babyai/GoToLocal-v0" and env.num_envs == N
    assert env.mission_text(2) == detokenize(obs["mission"][2])


def test_seed_may_be_an_integer_a_list_or_an_array() -> None:
    env = make()
    twin = make()
    first, _ = env.reset(seed=3)
    assert data_equivalence(first, twin.reset(seed=[3, 4, 5, 6, 7, 8])[0], exact=True)
    assert data_equivalence(first, twin.reset(seed=np.arange(3, 9))[0], exact=True)
    env.reset()
    mixed, _ = env.reset(seed=[3, None, None, None, None, 8])
    for key, part in mixed.items():
        np.testing.assert_array_equal(part[[0, 5]], first[key][[0, 5]])
    assert env.np_random_seed == 3


@pytest.mark.parametrize("mode", MODES)
def test_with_next_seed_the_next_episode_has_a_known_seed(mode: AutoresetMode) -> None:
    env = make(episodes="next_seed", max_steps=4, autoreset_mode=mode)
    env.reset(seed=10)
    for _ in range(5 if mode is AutoresetMode.NEXT_STEP else 4):
        obs, *_ = env.step(np.full(N, 6))
    if mode is AutoresetMode.DISABLED:
        obs, _ = env.reset()
    np.testing.assert_array_equal(env.engine.worlds.seed, np.arange(10 + N, 10 + 2 * N))
    assert data_equivalence(obs, make().reset(seed=10 + N)[0], exact=True)


def test_several_levels_in_one_environment() -> None:
    env = make(levels=["GoToObj", "BossLevel", "PutNext"])
    env.reset(seed=0)
    alone = make("BossLevel", num_envs=N)
    obs, _ = alone.reset(seed=0)
    assert env.mission_text(1) == detokenize(obs["mission"][1])
    assert [env.engine.levels[k].name for k in env.engine.worlds.level] == ["GoToObj", "BossLevel", "PutNext"] * 2


def test_results_do_not_depend_on_threads() -> None:
    one, two = (make("GoToLocal", num_envs=2500, threads=threads) for threads in (1, 2))
    assert data_equivalence(one.reset(seed=0), two.reset(seed=0), exact=True)
    for actions in random_actions(70, 2500):
        first = one.step(actions)
        second = two.step(actions)
        for infos in (first[-1], second[-1]):
            infos.get("episode", {}).pop("t", None)
        assert data_equivalence(first, second, exact=True)
    two.close()


# ---------------------------------------------------------------- copies


def arrays_in(data: Any) -> list[np.ndarray]:
    if isinstance(data, np.ndarray):
        return [data]
    parts = data.values() if isinstance(data, dict) else data if isinstance(data, tuple | list) else ()
    return [array for part in parts for array in arrays_in(part)]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("observation", ["symbolic", "rgb", "full"])
def test_returned_arrays_are_never_modified_later(observation: str, mode: AutoresetMode) -> None:
    env = make(observation=observation, autoreset_mode=mode, max_steps=5)
    returned = [env.reset(seed=0)]
    copies = [array.copy() for array in arrays_in(returned)]
    for actions in random_actions(20):
        returned.append(env.step(actions))
        copies += [array.copy() for array in arrays_in(returned[-1])]
        if mode is AutoresetMode.DISABLED and (returned[-1][2] | returned[-1][3]).any():
            env.reset(options={"reset_mask": returned[-1][2] | returned[-1][3]})
    for array, copy in zip(arrays_in(returned), copies, strict=True):
        np.testing.assert_array_equal(array, copy)
    observations = [arrays_in(each[0]) for each in returned]
    for first, second in pairwise(observations):
        assert not any(np.shares_memory(a, b) for a, b in zip(first, second, strict=True))


@pytest.mark.parametrize("observation", ["symbolic", "rgb", "full"])
def test_without_copy_results_are_equal_and_in_the_engines_arrays(observation: str) -> None:
    env, copying = (make(observation=observation, copy=copy, max_steps=9) for copy in (False, True))
    assert data_equivalence(env.reset(seed=0), copying.reset(seed=0), exact=True)
    for actions in random_actions(30):
        first = env.step(actions)
        second = copying.step(actions)
        for infos in (first[-1], second[-1]):
            infos.get("episode", {}).pop("t", None)
        assert data_equivalence(first, second, exact=True)
    assert first[1] is env.engine.rewards and first[0]["mission"] is env.engine.missions
    assert observation != "symbolic" or np.shares_memory(first[0]["image"], env.engine.images)
    assert not first[0]["image"].flags.writeable


# ---------------------------------------------------------------- statistics


@pytest.mark.parametrize("mode", MODES)
def test_statistics_equal_gymnasiums_record_episode_statistics(mode: AutoresetMode) -> None:
    env = make(autoreset_mode=mode, max_steps=17)
    silent = make(autoreset_mode=mode, max_steps=17, statistics=False)
    recorder = RecordEpisodeStatistics(TransformReward(silent, lambda reward: reward))
    env.reset(seed=1)
    recorder.reset(seed=1)
    ends = 0
    for actions in random_actions(120):
        *_, terminated, truncated, infos = env.step(actions)
        *_, expected = recorder.step(actions)
        ended = terminated | truncated
        assert ("episode" in infos) == ("episode" in expected) == ended.any()
        if ended.any():
            ends += ended.sum()
            np.testing.assert_array_equal(infos["_episode"], expected["_episode"])
            assert list(infos["episode"]) == list(expected["episode"])
            for key in "rl":
                np.testing.assert_array_equal(infos["episode"][key], expected["episode"][key])
                assert infos["episode"][key].dtype == expected["episode"][key].dtype
            assert (infos["episode"]["t"][ended] > 0).all() and (infos["episode"]["t"] < 60).all()
            if mode is AutoresetMode.DISABLED:
                env.reset(options={"reset_mask": ended})
                recorder.reset(options={"reset_mask": ended})
    assert recorder.episode_count == ends > 20


def test_record_episode_statistics_with_another_key_works_alongside_ours() -> None:
    recorder = RecordEpisodeStatistics(make(max_steps=2), stats_key="theirs")
    recorder.reset(seed=0)
    recorder.step(np.full(N, 6))
    *_, infos = recorder.step(np.full(N, 6))
    np.testing.assert_array_equal(infos["theirs"]["l"], infos["episode"]["l"])


# ---------------------------------------------------------------- single worlds


def test_snapshot_can_be_restored_in_another_world() -> None:
    env = make("BossLevel", autoreset_mode="Disabled")
    env.reset(seed=0)
    env.step(random_actions(1)[0])
    snapshot = env.snapshot(1)
    env.restore(4, snapshot)
    assert env.snapshot(4) == snapshot and env.mission_text(4) == env.mission_text(1)
    for actions in np.repeat(random_actions(40, 1), N, axis=1):
        obs, *_ = env.step(actions)
        np.testing.assert_array_equal(obs["image"][1], obs["image"][4])


def test_render_modes() -> None:
    env = make(num_envs=2, render_mode="rgb_array", tile_size=8)
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        env.render()
    env.reset(seed=4)
    frames = env.render()
    single = gym.make("babyai/GoToLocal-v0", render_mode="rgb_array", tile_size=8)
    single.reset(seed=5)
    assert isinstance(frames, tuple) and len(frames) == 2
    np.testing.assert_array_equal(frames[1], single.render())
    env = make(num_envs=2, render_mode="ansi")
    env.reset(seed=4)
    assert all(isinstance(text, str) for text in env.render() or [None])
    env = make()
    with pytest.warns(UserWarning, match="render_mode='rgb_array'"):
        assert env.render() is None


# ---------------------------------------------------------------- invalid input


@pytest.mark.parametrize(
    ("mask", "error", "message"),
    [
        ([True] * N, TypeError, rf"'reset_mask' .*\({N},\).* bool.* list"),
        (np.ones(N + 1, dtype=bool), ValueError, rf"\({N},\).* \({N + 1},\)"),
        (np.ones(N), TypeError, "bool.* float64"),
        (np.zeros(N, dtype=bool), ValueError, "at least one True"),
    ],
)
def test_invalid_masks_are_rejected(mask: Any, error: type[Exception], message: str) -> None:
    env = make(autoreset_mode="Disabled")
    env.reset(seed=0)
    with pytest.raises(error, match=message):
        env.reset(options={"reset_mask": mask})


@pytest.mark.parametrize("mode", MODES)
def test_steps_without_a_reset_are_rejected(mode: AutoresetMode) -> None:
    env = make(autoreset_mode=mode, max_steps=1)
    with pytest.raises(RuntimeError, match=r"not been reset.* call reset\(\)"):
        env.step(np.zeros(N, dtype=np.int64))
    env.reset(seed=0)
    env.step(np.zeros(N, dtype=np.int64))
    if mode is AutoresetMode.DISABLED:
        with pytest.raises(RuntimeError, match=r"is over.* call reset\(\)"):
            env.step(np.zeros(N, dtype=np.int64))


@pytest.mark.parametrize(
    ("actions", "error"),
    [(np.full(N, 7), ValueError), (np.zeros(N), TypeError), (np.zeros(2, int), ValueError), (["a"] * N, TypeError)],
)
def test_invalid_actions_are_rejected(actions: Any, error: type[Exception]) -> None:
    env = make()
    env.reset(seed=0)
    before = env.engine.worlds.tobytes()
    with pytest.raises(error, match="action"):
        env.step(actions)
    assert env.engine.worlds.tobytes() == before


@pytest.mark.parametrize(
    ("seed", "error", "message"),
    [
        (-1, ValueError, "seed .* -1$"),
        (1.5, TypeError, r"seed .*integer.* 1\.5"),
        ([1, 2], ValueError, rf"\({N}\).* 2$"),
        ([1.5] * N, TypeError, r"seed .*integer.* 1\.5"),
    ],
)
def test_invalid_seeds_are_rejected(seed: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make().reset(seed=seed)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"autoreset_mode": "same"}, "autoreset_mode 'same'.* 'NextStep', 'SameStep', 'Disabled'"),
        ({"observation": "words"}, "'words'.* 'symbolic', 'rgb', 'one_hot', 'full', 'full_rgb', 'text'"),
        ({"observation": "text", "wording": "long"}, "'long'.* 'plain', 'babyai_text'"),
        ({"episodes": "all"}, "'stream' or 'next_seed'.* 'all'"),
        ({"levels": ["GoToLocal", "GoTo"], "observation": "full"}, "8 x 8 and 22 x 22"),
        ({"levels": []}, "at least one level"),
        ({"levels": ["GoToLocl"]}, "did you mean 'GoToLocal'"),
        ({"level": None}, "`level`.* `levels`"),
        ({"num_envs": 0}, "at least 1.* 0 and 1"),
        ({"render_mode": "human"}, "render_mode 'human'"),
    ],
)
def test_invalid_settings_are_rejected(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        BabyAIVectorEnv(**{"num_envs": N, "level": "GoToLocal", **settings})


def test_unknown_options_are_rejected() -> None:
    with pytest.raises(ValueError, match=r"'mask'.* 'reset_mask'"):
        make().reset(options={"mask": 1})
