"""An agent plays: it acts the same after loading, and its recurrent state spans an episode and nothing else."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401 - registers its environments
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.fx.experimental.proxy_tensor import make_fx

import babyai
from babyai.agents import Agent, AgentConfig, FilmLSTM, actor
from babyai.agents.actor import ObservationPacker, choose_actions
from babyai.agents.config import ARCHITECTURES
from babyai.agents.cuda_graph import CudaGraphFunction
from babyai.tree import tree_map
from babyai.world.language import MissionError, tokenize
from tests.agents.test_film_lstm import PARAMETERS

LEVEL = "babyai/GoToLocal-v0"


class Counter(nn.Module):
    """Takes the number of steps since the episode started, modulo 7, as its action: its actions show its state."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(1))

    def initial_state(self, n: int) -> Tensor:
        return torch.zeros(n, dtype=torch.int64)

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = nn.functional.one_hot(state % 7, 7).float()
        return logits, state * self.unused, state + 1


class LearnedCounter(Counter):
    """Starts to count at a number that is a parameter."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.tensor([3.0]))

    def initial_state(self, n: int) -> Tensor:
        return self.start.expand(n)

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits, value, _ = super().forward(observation, state.long())
        return logits, value, state + 1


class Uniform(Counter):
    """All actions are equally good."""

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.zeros(len(state), 7), state * self.unused, state


class LastAction(Counter):
    """Takes the action after its last one; the first action is 3."""

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        last = observation["last_action"].long()
        return nn.functional.one_hot(torch.where(last < 0, 3, last + 1) % 7, 7).float(), state * self.unused, state


def first_observations(observation: str = "symbolic", count: int = 4, seed: int = 0) -> dict[str, Any]:
    envs = gym.make_vec(LEVEL, num_envs=count, observation=observation)
    return envs.reset(seed=seed)[0]


def logits_of(agent: Agent, observation: dict[str, Any]) -> Tensor:
    tensors = {key: torch.from_numpy(value) for key, value in observation.items()}
    count = len(tensors["image"])
    tensors["last_action"] = torch.full((count,), -1)
    with torch.no_grad():
        state = tree_map(lambda part: part + 0.5, agent.model.initial_state(count))
        return agent.model(tensors, state)[0]


# ------------------------------------------------------------ creating, saving, loading


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_an_agent_acts_the_same_after_saving_and_loading(tmp_path: Path, architecture: str) -> None:
    agent = Agent.create(architecture, seed=3, direction=True, last_action=True)
    agent.save(tmp_path / "agent")
    loaded = Agent.load(tmp_path / "agent", device="cpu")
    assert isinstance(loaded.model, FilmLSTM)
    assert loaded.config == agent.config
    # Short episodes, so that many of them start.
    observation = "rgb" if agent.config.pixels else "symbolic"
    envs = gym.make_vec(LEVEL, num_envs=4, observation=observation, max_steps=5, autoreset_mode="SameStep")
    obs, _ = envs.reset(seed=0)
    starts: Any = None
    for _ in range(12):
        assert torch.equal(logits_of(agent, obs), logits_of(loaded, obs))
        actions = agent.act(obs, episode_start=starts)
        assert np.array_equal(actions, loaded.act(obs, episode_start=starts))
        assert actions.shape == (4,)
        assert actions.dtype == np.int64
        obs, _, terminated, truncated, _ = envs.step(actions)
        starts = terminated | truncated


def test_an_agent_saved_in_bf16_is_within_rounding_and_half_the_size(tmp_path: Path) -> None:
    agent = Agent.create(size="big", memory_dim=64, seed=0)
    for dtype in ("float32", "bf16"):
        agent.save(tmp_path / dtype, dtype=dtype)
    full, half = ((tmp_path / dtype / "model.safetensors").stat().st_size for dtype in ("float32", "bf16"))
    assert 0.5 <= half / full < 0.51
    loaded = Agent.load(tmp_path / "bf16", device="cpu")
    assert next(loaded.model.parameters()).dtype == torch.float32
    obs = first_observations()
    assert not torch.equal(logits_of(agent, obs), logits_of(loaded, obs))
    torch.testing.assert_close(logits_of(loaded, obs), logits_of(agent, obs), rtol=0, atol=0.05)


def test_an_agent_computes_in_bf16_and_follows_its_weights(tmp_path: Path) -> None:
    Agent.create(seed=0).save(tmp_path / "agent")
    agent = Agent.load(tmp_path / "agent", device="cpu", precision="bf16")
    obs = first_observations()
    assert agent.act(obs).shape == (4,)
    # Weights that were changed count from the next reset on.
    with torch.no_grad():
        for parameter in agent.model.actor.parameters():
            parameter.zero_()
        agent.model.actor[-1].bias[5] = 1.0
    agent.reset()
    assert agent.act(obs).tolist() == [5] * 4
    with pytest.raises(ValueError, match=r"'float16'.*float32, bf16"):
        Agent.load(tmp_path / "agent", precision="float16")  # pyright: ignore[reportArgumentType]


def test_a_seed_decides_the_weights_and_leaves_torchs_generator_alone() -> None:
    torch.manual_seed(5)
    generator_state = torch.get_rng_state()
    one, same, other = (Agent.create("original", seed=seed).model.actor[0].weight for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), generator_state)
    assert torch.equal(one, same)
    assert not torch.equal(one, other)
    unseeded = [Agent.create("original").model.actor[0].weight for _ in range(2)]
    assert not torch.equal(*unseeded)


def test_settings_reach_the_configuration() -> None:
    agent = Agent.create("original", "big", memory_dim=16, instruction=False)
    assert agent.config == AgentConfig.of("original", "big", memory_dim=16, instruction=False)
    assert not agent.model.training
    assert agent.num_parameters == sum(parameter.numel() for parameter in agent.model.parameters())
    assert Agent.create().num_parameters == PARAMETERS["bow_endpool_res"][0]
    with pytest.raises(ValueError, match=r"'memry_dim'.*'memory_dim'"):
        Agent.create(memry_dim=3)
    with pytest.raises(ValueError, match="'bow'"):
        Agent.create("bow")


def test_a_device_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    agent = Agent.create("original")
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").device == torch.device("cpu")
    with pytest.raises(ValueError, match=r"'cuda'.*'cpu' or 'auto'"):
        Agent.load(tmp_path / "agent", device="cuda")
    for unknown in ("gpu", "meta"):
        with pytest.raises(ValueError, match=f"'{unknown}'.*'auto', 'cpu', 'cuda'"):
            Agent.create("original", device=unknown)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    with pytest.raises(ValueError, match=r"'cuda:2'.* 2 GPU"):
        Agent.create("original", device="cuda:2")


def test_configurations_are_available_without_torch() -> None:
    code = (
        "import sys, babyai.agents, babyai.agents.config;"
        "from babyai.agents import AgentConfig;"
        "assert 'torch' not in sys.modules and 'Agent' in dir(babyai.agents);"
        "sys.modules['torch'] = None;"
        "from babyai.agents import Agent"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pip install 'babyai[agents]'" in done.stderr
    with pytest.raises(AttributeError, match="'Agnet'"):
        babyai.agents.Agnet  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


# ------------------------------------------------------------ playing


def test_playing_one_environment_equals_calling_the_policy() -> None:
    agent = Agent.create(seed=0, last_action=True)
    env = gym.make(LEVEL, max_steps=8)
    for episode in range(2):
        obs, _ = env.reset(seed=episode)
        agent.reset()
        state = agent.model.initial_state(1)
        action = -1
        done = False
        while not done:
            tensors = {
                "image": torch.from_numpy(obs["image"][None]),
                "mission": torch.from_numpy(tokenize(obs["mission"])[None]),
                "direction": torch.tensor([obs["direction"]]),
                "last_action": torch.tensor([action]),
            }
            with torch.no_grad():
                logits, _, state = agent.model(tensors, state)
            action = agent.act(obs)
            assert type(action) is int
            assert action == int(logits.argmax())
            obs, _, terminated, truncated, _ = env.step(action)
            done = terminated or truncated


def test_minigrids_own_environments_are_played_like_ours() -> None:
    agent = Agent.create(seed=1, direction=True)
    theirs = gym.make("BabyAI-GoToLocal-v0")
    ours = gym.make(LEVEL, rules="minigrid")
    for seed in range(3):
        played = []
        for env in (theirs, ours):
            obs, _ = env.reset(seed=seed)
            agent.reset()
            actions = []
            for _ in range(10):
                actions.append(agent.act(obs))
                obs, *_ = env.step(actions[-1])
            played.append(actions)
        assert played[0] == played[1]


def test_minigrids_environments_can_be_played_in_parallel() -> None:
    envs = SyncVectorEnv([lambda: gym.make("BabyAI-GoToLocal-v0")] * 3)
    obs, _ = envs.reset(seed=0)
    assert isinstance(obs["mission"][0], str)
    tokens = obs | {"mission": np.stack([tokenize(sentence) for sentence in obs["mission"]])}
    agent = Agent.create(seed=0)
    actions = agent.act(obs)
    agent.reset()
    assert np.array_equal(agent.act(tokens), actions)
    envs.step(actions)


def test_a_mission_may_be_a_sentence_or_any_number_of_token_ids() -> None:
    agent = Agent.create(seed=0)
    obs, _ = gym.make(LEVEL).reset(seed=0)
    tokens = tokenize(obs["mission"])
    actions = set()
    for mission in (obs["mission"], np.str_(obs["mission"]), tokens, tokens[: np.count_nonzero(tokens)].tolist()):
        agent.reset()
        actions.add(agent.act(obs | {"mission": mission}))
    assert len(actions) == 1


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_the_state_is_reset_exactly_where_episodes_start(mode: AutoresetMode) -> None:
    """With all three ways in which Gymnasium's vector environments reset, the agent counts the steps of each world."""
    agent = Agent.create(Counter)
    envs = gym.make_vec(LEVEL, num_envs=6, autoreset_mode=mode)
    obs, _ = envs.reset(seed=0)
    worlds = envs.unwrapped.engine.worlds
    starts = None
    done = np.zeros(6, dtype=bool)
    episodes = 0
    for _ in range(40):
        # Different limits make the episodes of the worlds start at different times.
        worlds["max_steps"] = 3 + np.arange(6)
        actions = agent.act(obs, episode_start=starts)
        # In NEXT_STEP mode the last observation of an episode is returned, and the action after it is ignored.
        assert np.array_equal(actions[~done], worlds["step_count"][~done] % 7)
        obs, _, terminated, truncated, _ = envs.step(np.full(6, 6))
        ended = terminated | truncated
        episodes += ended.sum()
        if mode is AutoresetMode.NEXT_STEP:
            starts = done
            done = ended
            continue
        starts = ended
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})
    assert episodes > 30


def test_episode_start_and_reset_reset_the_state() -> None:
    agent = Agent.create(Counter)
    obs = first_observations(count=3)
    assert agent.act(obs).tolist() == [0, 0, 0]
    assert agent.act(obs).tolist() == [1, 1, 1]
    assert agent.act(obs, episode_start=np.array([False, True, False])).tolist() == [2, 0, 2]
    assert agent.act(obs).tolist() == [3, 1, 3]
    assert agent.act(obs, episode_start=True).tolist() == [0, 0, 0]
    assert agent.act(obs, episode_start=False).tolist() == [1, 1, 1]
    agent.reset()
    assert agent.act(obs, episode_start=False).tolist() == [0, 0, 0]
    agent.reset()
    assert agent.act(first_observations(count=2)).tolist() == [0, 0]


def test_a_learned_initial_state_is_used_follows_the_weights_and_is_not_overwritten() -> None:
    agent = Agent.create(LearnedCounter)
    for count in (3, 1):
        obs = first_observations(count=count)
        agent.reset()
        with torch.no_grad():
            agent.model.start.fill_(3)
        assert agent.act(obs).tolist() == [3] * count
        assert agent.act(obs).tolist() == [4] * count
        assert agent.model.start.item() == 3
        with torch.no_grad():
            agent.model.start.fill_(5)
        agent.reset()
        assert agent.act(obs).tolist() == [5] * count


def test_the_last_action_is_the_one_taken_and_none_at_the_start_of_an_episode() -> None:
    agent = Agent.create(LastAction)
    obs = first_observations(count=2)
    assert agent.act(obs).tolist() == [3, 3]
    assert agent.act(obs).tolist() == [4, 4]
    assert agent.act(obs, episode_start=np.array([True, False])).tolist() == [3, 5]
    assert agent.act(obs).tolist() == [4, 6]


def test_sampled_actions_depend_on_the_seed_and_do_not_repeat() -> None:
    obs = {key: value.repeat(700, axis=0) for key, value in first_observations(count=1).items()}
    agent = Agent.create(Uniform, seed=0)
    samples = []
    for count in (700, 700, 350, 700):
        agent.reset()
        samples.append(agent.act({key: value[:count] for key, value in obs.items()}, sample=True))
    assert np.bincount(samples[0], minlength=7).min() > 60
    assert not np.array_equal(samples[0], samples[1])
    assert not np.array_equal(samples[0], samples[3])
    assert agent.act(obs).tolist() == [0] * 700
    again = Agent.create(Uniform, seed=0)
    assert np.array_equal(again.act(obs, sample=True), samples[0])
    other = Agent.create(Uniform, seed=1)
    assert not np.array_equal(other.act(obs, sample=True), samples[0])


def test_sampling_follows_the_probabilities() -> None:
    logits = torch.tensor([[0.0, 2.0, -1.0, 1.0]]).expand(20_000, -1)
    uniforms = torch.rand(20_000, generator=torch.Generator().manual_seed(0))
    shares = torch.bincount(choose_actions(logits, uniforms), minlength=4) / 20_000
    torch.testing.assert_close(shares, logits[0].softmax(0), atol=0.02, rtol=0)
    assert choose_actions(logits).unique().tolist() == [1]
    # Rounding must not lead past the last action.
    assert choose_actions(logits[:2], torch.tensor([0.0, 1.0])).tolist() == [0, 3]


class RecordedFunction(CudaGraphFunction):
    """Records what a GPU would: once for each set of shapes, with whatever the function decided then."""

    def __call__(self, *inputs: Tensor) -> Any:
        key = tuple(tensor.shape for tensor in inputs)
        if key not in self._graphs:
            before = [(tensor, tensor.clone()) for tensor in self.mutated()]
            self._graphs[key] = make_fx(self.function)(*inputs)  # pyright: ignore[reportArgumentType]
            for tensor, value in before:
                tensor.copy_(value)
        return self._graphs[key](*inputs)  # pyright: ignore[reportCallIssue]


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.parametrize("sample_first", [False, True])
def test_a_recorded_agent_can_switch_between_sampling_and_argmax(
    sample_first: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    obs = first_observations(count=64)
    plain = Agent.create("bow_endpool_res", seed=0)
    monkeypatch.setattr(actor, "CudaGraphFunction", RecordedFunction)
    agent = Agent.create("bow_endpool_res", seed=0)
    agent.act(obs, sample=sample_first)
    for sample in (True, False, True):
        agent.reset()
        plain.reset()
        argmax = plain.act(obs)
        assert np.array_equal(agent.act(obs, sample=sample), argmax) != sample


@pytest.mark.parametrize("kind", ["symbolic", "rgb"])
def test_packed_observations_are_unpacked_unchanged(kind: str) -> None:
    obs = first_observations(kind, count=5)
    packer = ObservationPacker(5, torch.device("cpu"))
    starts = np.array([True, False, True, False, False])
    uniforms = np.random.default_rng(0).random(5, dtype=np.float32)
    rows = packer.pack(obs["image"], obs["mission"], obs["direction"], starts, uniforms)
    last_actions = torch.arange(5)
    observation, again_starts, again_uniforms = packer.unpack(rows, last_actions)
    assert np.array_equal(observation["image"], obs["image"])
    words = observation["mission"].shape[1]
    assert np.array_equal(observation["mission"], obs["mission"][:, :words])
    assert not obs["mission"][:, words:].any()
    assert np.array_equal(observation["direction"], obs["direction"])
    assert observation["last_action"].tolist() == [-1, 1, -1, 3, 4]
    assert np.array_equal(again_starts, starts)
    assert np.array_equal(again_uniforms, uniforms)


# ------------------------------------------------------------ errors


@pytest.mark.parametrize(
    ("changes", "fact"),
    [
        ({"image": np.zeros((5, 7, 3), np.uint8)}, r"\(7, 7, 3\).* not \(5, 7, 3\) uint8.*'symbolic'"),
        ({"image": np.zeros((56, 56, 3), np.uint8)}, r"\(7, 7, 3\).* not \(56, 56, 3\) uint8"),
        ({"image": np.zeros((7, 7, 3))}, r"not \(7, 7, 3\) float64"),
        ({"image": np.zeros((0, 7, 7, 3), np.uint8)}, r"not \(0, 7, 7, 3\)"),
        ({"image": np.zeros((2, 7, 7, 3), np.uint8), "mission": ["go to a box"] * 2}, "2 images.*1 direction"),
        ({"mission": np.full(72, 40)}, r"0\.\.32.* 40$"),
        ({"mission": np.full(3, -1)}, r"0\.\.32.* -1$"),
        ({"mission": np.zeros(80, np.uint8)}, r"72 token ids.*\(1, 80\)"),
        ({"mission": None}, "sentences.*object"),
    ],
)
def test_other_observations_are_refused(changes: dict[str, Any], fact: str) -> None:
    obs, _ = gym.make(LEVEL).reset(seed=0)
    with pytest.raises(ValueError, match=fact):
        Agent.create("original").act(obs | changes)


def test_wrong_calls_are_explained() -> None:
    agent = Agent.create("original")
    obs = first_observations()
    with pytest.raises(MissionError, match=r"'bal'.*'ball'"):
        agent.act(gym.make(LEVEL).reset(seed=0)[0] | {"mission": "go to a bal"})
    with pytest.raises(ValueError, match=r"image, direction and mission.*\['image'\]"):
        agent.act({"image": obs["image"]})
    with pytest.raises(ValueError, match=r"image, direction and mission.*ndarray"):
        agent.act(obs["image"])
    with pytest.raises(ValueError, match=r"\(56, 56, 3\).*observation='rgb'"):
        Agent.create("pixels_endpool_res").act(obs)
    agent.act(obs)
    for starts in (np.zeros(3, dtype=bool), [0, 0, 0, 1], np.zeros((4, 1), dtype=bool)):
        with pytest.raises(ValueError, match=r"episode_start.*\(4,\) bool"):
            agent.act(obs, episode_start=starts)
    with pytest.raises(ValueError, match=r"3 observations after 4.*agent\.reset\(\)"):
        agent.act({key: value[:3] for key, value in obs.items()})
