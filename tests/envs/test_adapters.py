"""Stable-Baselines3, sb3-contrib and TorchRL train on the environments, a few updates each; Minari records them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.wrappers.vector import ClipReward

import babyai
from babyai.envs.adapters import stable_baselines_env, torchrl_env
from babyai.world.language import detokenize

pytestmark = [pytest.mark.downstream, pytest.mark.filterwarnings("default")]


def make(**settings: Any) -> VectorEnv:
    return gym.make_vec("babyai/GoToLocal-v0", num_envs=4, **settings)


@pytest.fixture
def baselines() -> Iterator[Any]:
    module = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    import torch

    # For networks this small, several threads only cost time.
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield module
    torch.set_num_threads(threads)


@pytest.fixture
def torchrl() -> Any:
    return pytest.importorskip("torchrl", reason="TorchRL is not installed")


def test_stable_baselines_infos_of_finished_episodes(baselines: Any) -> None:
    env = stable_baselines_env(make(max_steps=7))
    plain = make(max_steps=7, autoreset_mode="SameStep")
    env.seed(3)
    obs = env.reset()
    expected, _ = plain.reset(seed=3)
    ends = 0
    for actions in np.random.default_rng(0).integers(6, size=(60, 4)):
        for key, part in expected.items():
            np.testing.assert_array_equal(obs[key], part)
        obs, rewards, dones, infos = env.step(actions)
        expected, expected_rewards, terminated, truncated, expected_infos = plain.step(actions)
        np.testing.assert_allclose(rewards, expected_rewards, rtol=1e-6)
        np.testing.assert_array_equal(dones, terminated | truncated)
        for i, info in enumerate(infos):
            assert bool(info) == dones[i]
            if info:
                ends += 1
                for key, part in expected_infos["final_obs"].items():
                    np.testing.assert_array_equal(info["terminal_observation"][key], part[i])
                assert info["TimeLimit.truncated"] == (truncated[i] and not terminated[i])
                assert info["is_success"] == (expected_rewards[i] > 0)
                assert (info["episode"]["r"], info["episode"]["l"]) == (
                    expected_infos["episode"]["r"][i],
                    expected_infos["episode"]["l"][i],
                )
    assert ends > 20
    assert env.env_method("mission_text", indices=[1]) == [detokenize(obs["mission"][1])]
    assert env.get_attr("num_envs") == [4] * 4
    assert env.get_attr("agent_pos", indices=[2]) == [tuple(plain.unwrapped.agent_pos[2].tolist())]
    env.set_attr("agent_dir", 3, indices=[0, 1])
    assert env.get_attr("agent_dir", indices=[0, 1]) == [3, 3]
    assert len(env.env_method("pprint_grid")) == 4
    env.close()


def test_stable_baselines_works_without_our_statistics(baselines: Any) -> None:
    from stable_baselines3.common.monitor import Monitor
    from stable_baselines3.common.vec_env import VecMonitor

    env = stable_baselines_env(make(max_steps=3, statistics=False))
    assert env.env_is_wrapped(Monitor) == [False] * 4
    monitored = VecMonitor(env)
    monitored.reset()
    for _ in range(3):
        *_, infos = monitored.step(np.full(4, 6))
    assert [info["episode"]["l"] for info in infos] == [3] * 4 and infos[0]["is_success"] is False
    assert stable_baselines_env(make()).env_is_wrapped(Monitor) == [True] * 4


def test_stable_baselines_on_a_single_environment_explains_the_adapter(baselines: Any) -> None:
    with pytest.raises(TypeError, match=r"stable_baselines_env\(gym\.make_vec"):
        baselines.PPO("MultiInputPolicy", gym.make("babyai/GoToLocal-v0"), device="cpu")


def test_recurrent_ppo_trains(baselines: Any) -> None:
    contrib = pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")
    env = stable_baselines_env(make(max_steps=10))
    model = contrib.RecurrentPPO(
        "MultiInputLstmPolicy", env, n_steps=32, batch_size=64, n_epochs=1, device="cpu", seed=0
    )
    model.learn(128)
    assert model.num_timesteps == 128 and len(model.ep_info_buffer) > 5


@pytest.mark.parametrize("observation", ["symbolic", "rgb"])
def test_stable_baselines_trains(baselines: Any, observation: str) -> None:
    env = stable_baselines_env(make(observation=observation, max_steps=10))
    model = baselines.PPO("MultiInputPolicy", env, n_steps=32, batch_size=64, n_epochs=1, device="cpu", seed=0)
    model.learn(128)
    assert model.num_timesteps == 128 and len(model.ep_info_buffer) > 5 and len(model.ep_success_buffer) > 5
    mean, _ = baselines.common.evaluation.evaluate_policy(model, env, n_eval_episodes=4)
    assert 0 <= mean <= 1


def test_torchrl_rolls_out_and_trains(torchrl: Any) -> None:
    import torch
    from tensordict.nn import TensorDictModule

    env = torchrl_env(make(max_steps=8, autoreset_mode="Disabled"))
    env.set_seed(0)
    path = env.rollout(20, break_when_any_done=False)
    assert path["image"].shape == (4, 20, 7, 7, 3) and path["mission"].shape == (4, 20, 72)
    done = path["next", "done"].squeeze(-1)
    assert done.any() and (path["next", "image"][done] != 0).any()
    # Within an episode, the next observation is the one that follows. After an end, the reset's observation follows.
    same = (path["next", "image"][:, :-1] == path["image"][:, 1:]).flatten(2).all(-1)
    assert same[~done[:, :-1]].all() and not same[done[:, :-1]].all()
    value = TensorDictModule(
        torch.nn.Sequential(torch.nn.Flatten(-3), torch.nn.Linear(147, 1)), in_keys=["pixels"], out_keys=["value"]
    )
    optimizer = torch.optim.Adam(value.parameters())
    batch = path.flatten(0, 1).select("image", ("next", "reward"))
    batch["pixels"] = batch["image"].float()
    losses = []
    for _ in range(5):
        loss = (value(batch)["value"] - batch["next", "reward"]).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_stable_baselines_rejects_other_environments(baselines: Any) -> None:
    assert stable_baselines_env(make()).vector_env.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    with pytest.raises(ValueError, match=r"autoreset_mode='SameStep'.* 'NextStep'.* wrapped"):
        stable_baselines_env(ClipReward(make(), 0, 1))
    started = make()
    started.reset(seed=0)
    with pytest.raises(ValueError, match=r"autoreset_mode='SameStep'.* reset"):
        stable_baselines_env(started)
    with pytest.raises(ValueError, match="missions='tokens'"):
        stable_baselines_env(make(missions="text"))
    with pytest.raises(ValueError, match="another observation than 'text'"):
        stable_baselines_env(make(observation="text"))
    with pytest.raises(ValueError, match="copy=True"):
        stable_baselines_env(make(copy=False))
    with pytest.raises(TypeError, match=r"babyai vector environment.*BabyAIEnv"):
        stable_baselines_env(gym.make("babyai/GoToLocal-v0"))  # pyright: ignore[reportArgumentType]


def test_torchrl_rejects_other_autoreset_modes(torchrl: Any) -> None:
    started = make()
    started.reset(seed=0)
    with pytest.raises(ValueError, match=r"autoreset_mode='Disabled'.* 'NextStep'"):
        torchrl_env(started)


def test_minari_records_infos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minari = pytest.importorskip("minari", reason="Minari is not installed")
    pytest.importorskip("jax", reason="Minari's DataCollector needs jax")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    env = minari.DataCollector(gym.make("babyai/GoToObj-v0", max_steps=20), record_infos=True)
    expert = babyai.Expert(env)
    for seed in range(3):
        env.reset(seed=seed)
        done = False
        while not done:
            *_, terminated, truncated, _ = env.step(expert.advise())
            done = terminated or truncated
    dataset = env.create_dataset("babyai/test-v0", algorithm_name="expert")
    for episode in dataset.iterate_episodes():
        success = episode.infos["success"]
        assert len(success) == len(episode.actions) + 1 and success[-1] and not success[:-1].any()


def test_human_render_mode_is_gymnasiums_window(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pygame", reason="pygame is not installed")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    env = gym.make("babyai/GoToObj-v0", render_mode="human", tile_size=8)
    assert isinstance(env, gym.wrappers.HumanRendering)
    env.reset(seed=0)
    env.step(0)
    assert env.render() is None and env.window.get_size() == (64, 64)
    env.close()
