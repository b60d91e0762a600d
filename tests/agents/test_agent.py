"""An agent plays: it acts the same after it was saved, and remembers an episode, all of it, and nothing else."""

import re
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
from babyai.agents import Agent, AgentConfig, Model, actor
from babyai.agents.captured import Captured
from babyai.agents.config import ARCHITECTURES
from babyai.world.language import MissionError, tokenize
from tests.agents.test_model import PARAMETERS

LEVEL = "babyai/GoToLocal-v0"
# Short episodes, so that many of them begin.
SHORT = {"max_steps": 5}


class Counter(nn.Module):
    """Plays the number of steps since the episode began, modulo 7: what it remembers can be read off its actions."""

    def __init__(self) -> None:
        super().__init__()
        self.nothing = nn.Parameter(torch.zeros(1))

    def forward(self, observation: dict[str, Tensor], memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        logits = nn.functional.one_hot(memory[:, 0].long() % 7, 7).float()
        return logits, memory[:, 0] * self.nothing, memory + 1

    def initial_memory(self, count: int, device: Any = None) -> Tensor:
        return torch.zeros(count, 1, device=device)


class Thrower(Counter):
    """Thinks all actions equally good."""

    def forward(self, observation: dict[str, Tensor], memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        return torch.zeros(len(memory), 7), memory[:, 0], memory


def view(observation: str = "symbolic", count: int = 4, seed: int = 0) -> dict[str, Any]:
    envs = gym.make_vec(LEVEL, num_envs=count, observation=observation)
    return envs.reset(seed=seed)[0]


def logits_of(agent: Agent, observation: dict[str, Any]) -> Tensor:
    seen = {key: torch.from_numpy(value) for key, value in observation.items()}
    seen["last_action"] = torch.full((len(seen["image"]),), -1)
    with torch.no_grad():
        memory = agent.model.initial_memory(len(seen["image"]), "cpu") + 0.5  # pyright: ignore[reportCallIssue]
        return agent.model(seen, memory)[0]


# ---------------------------------------------------------------- making, keeping


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_acts_the_same_after_it_was_saved_and_loaded(tmp_path: Path, architecture: str) -> None:
    agent = Agent.create(architecture, seed=3, direction=True, last_action=True)
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert isinstance(again.model, Model) and again.config == agent.config
    envs = gym.make_vec(LEVEL, num_envs=4, observation="rgb" if agent.config.pixels else "symbolic", **SHORT)
    obs, _ = envs.reset(seed=0)
    first: Any = None
    for _ in range(12):
        assert torch.equal(logits_of(agent, obs), logits_of(again, obs))
        actions = agent.act(obs, first=first)
        assert np.array_equal(actions, again.act(obs, first=first))
        assert actions.shape == (4,) and actions.dtype == np.int64
        obs, _, terminated, truncated, _ = envs.step(actions)
        first = terminated | truncated


def test_bf16_is_within_rounding_and_half_the_size(tmp_path: Path) -> None:
    agent = Agent.create(size="big", memory_dim=64, seed=0)
    for dtype in ("float32", "bf16"):
        agent.save(tmp_path / dtype, dtype=dtype)
    whole, half = ((tmp_path / dtype / "model.safetensors").stat().st_size for dtype in ("float32", "bf16"))
    assert 0.5 <= half / whole < 0.51
    again = Agent.load(tmp_path / "bf16", device="cpu")
    assert next(again.model.parameters()).dtype == torch.float32
    obs = view()
    assert not torch.equal(logits_of(agent, obs), logits_of(again, obs))
    torch.testing.assert_close(logits_of(again, obs), logits_of(agent, obs), rtol=0, atol=0.05)


def test_computes_in_bf16_when_asked(tmp_path: Path) -> None:
    Agent.create(seed=0).save(tmp_path / "agent")
    agent = Agent.load(tmp_path / "agent", device="cpu", precision="bf16")
    assert agent.act(view()).shape == (4,)
    # Weights that were changed count from the next episodes on.
    with torch.no_grad():
        for parameter in agent.model.actor.parameters():
            parameter.zero_()
        agent.model.actor[-1].bias[5] = 1.0
    agent.reset()
    assert (agent.act(view()) == 5).all()
    with pytest.raises(ValueError, match="unknown precision 'float16'"):
        Agent.load(tmp_path / "agent", precision="float16")  # pyright: ignore[reportArgumentType]


def test_a_big_agent_comes_in_parts(tmp_path: Path) -> None:
    agent = Agent.create(size="big", memory_dim=512, seed=0)
    agent.save(tmp_path / "agent", max_part_bytes=2**20)
    files = list((tmp_path / "agent").iterdir())
    assert len(files) > 10 and max(file.stat().st_size for file in files) <= 2**20
    again = Agent.load(tmp_path / "agent", device="cpu")
    assert torch.equal(logits_of(agent, view()), logits_of(again, view()))


def test_a_seed_decides_the_weights_and_disturbs_nothing() -> None:
    torch.manual_seed(5)
    state = torch.get_rng_state()
    one, same, other = (Agent.create("original", seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    weights = [agent.model.state_dict()["actor.0.weight"] for agent in (one, same, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    unseeded = [Agent.create("original").model.state_dict()["actor.0.weight"] for _ in range(2)]
    assert not torch.equal(*unseeded)


def test_takes_the_settings_of_the_config() -> None:
    agent = Agent.create("original", "big", memory_dim=16, instruction=False)
    assert agent.config == AgentConfig.of("original", "big", memory_dim=16, instruction=False)
    assert not agent.model.training and agent.num_parameters == sum(p.numel() for p in agent.model.parameters())
    assert Agent.create().num_parameters == PARAMETERS["bow_endpool_res"][0]
    with pytest.raises(ValueError, match="no setting 'memry_dim'; did you mean 'memory_dim'"):
        Agent.create(memry_dim=3)
    with pytest.raises(ValueError, match="unknown architecture 'bow'"):
        Agent.create("bow")


def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    agent = Agent.create("original")
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").device == torch.device("cpu")
    with pytest.raises(ValueError, match="no GPU that torch can use"):
        Agent.load(tmp_path / "agent", device="cuda")
    with pytest.raises(ValueError, match="unknown device 'gpu'"):
        Agent.create("original", device="gpu")


def test_settings_can_be_read_without_torch() -> None:
    code = (
        "import sys, babyai.agents, babyai.agents.config;"
        "from babyai.agents import AgentConfig;"
        "assert 'torch' not in sys.modules and 'Agent' in dir(babyai.agents);"
        "sys.modules['torch'] = None;"
        "from babyai.agents import Agent"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "babyai's agents need torch: pip install 'babyai[agents]'" in done.stderr
    with pytest.raises(AttributeError, match="has no attribute 'Agnet'"):
        babyai.agents.Agnet  # noqa: B018  # pyright: ignore[reportAttributeAccessIssue]


def test_the_page_tells_the_right_counts() -> None:
    page = (Path(__file__).parents[2] / "docs" / "agents.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)` .*\| ([\d ]+) \| ([\d ]+) \|$", page, re.MULTILINE)
    told = {name: tuple(int(count.replace(" ", "")) for count in counts) for name, *counts in rows}
    assert told == PARAMETERS


# ---------------------------------------------------------------- playing


def test_plays_one_environment() -> None:
    """The loop of the page, beside the plain network with its memory carried by hand."""
    agent, env = Agent.create(seed=0, last_action=True), gym.make(LEVEL, max_steps=8)
    for episode in range(2):
        obs, _ = env.reset(seed=episode)
        agent.reset()
        memory, last, over = agent.model.initial_memory(1), -1, False  # pyright: ignore[reportCallIssue]
        while not over:
            seen = {
                "image": torch.from_numpy(obs["image"][None]),
                "mission": torch.from_numpy(tokenize(obs["mission"])[None]),
                "last_action": torch.tensor([last]),
            }
            with torch.no_grad():
                logits, _, memory = agent.model(seen, memory)
            last = agent.act(obs)
            assert type(last) is int and last == int(logits.argmax())
            obs, _, terminated, truncated, _ = env.step(last)
            over = terminated or truncated


def test_plays_minigrids_own_environments() -> None:
    agent = Agent.create(seed=1, direction=True)
    theirs, ours = gym.make("BabyAI-GoToLocal-v0"), gym.make(LEVEL, rules="minigrid")
    for seed in range(3):
        agent.reset()
        actions = [[], []]
        for env, chosen in zip((theirs, ours), actions, strict=True):
            obs, _ = env.reset(seed=seed)
            agent.reset()
            for _ in range(10):
                chosen.append(agent.act(obs))
                obs, *_ = env.step(chosen[-1])
        assert actions[0] == actions[1]


def test_plays_minigrids_environments_side_by_side() -> None:
    envs = SyncVectorEnv([lambda: gym.make("BabyAI-GoToLocal-v0")] * 3)
    obs, _ = envs.reset(seed=0)
    assert isinstance(obs["mission"][0], str)
    tokens = obs | {"mission": np.stack([tokenize(sentence) for sentence in obs["mission"]])}
    agent = Agent.create(seed=0)
    actions = agent.act(obs)
    agent.reset()
    assert np.array_equal(agent.act(tokens), actions)
    envs.step(actions)


def test_a_mission_may_be_a_sentence_or_tokens_of_any_length() -> None:
    env, agent = gym.make(LEVEL), Agent.create(seed=0)
    obs, _ = env.reset(seed=0)
    tokens = tokenize(obs["mission"])
    actions = []
    for mission in (obs["mission"], np.str_(obs["mission"]), tokens, tokens[: np.count_nonzero(tokens)].tolist()):
        agent.reset()
        actions.append(agent.act(obs | {"mission": mission}))
    assert len(set(actions)) == 1


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_memory_is_cleared_exactly_where_episodes_begin(mode: AutoresetMode) -> None:
    """The three loops of the page: whatever the worlds do, the agent knows how long its episodes last."""
    agent = Agent.create(Counter)
    envs = gym.make_vec(LEVEL, num_envs=6, autoreset_mode=mode)
    obs, _ = envs.reset(seed=0)
    worlds = envs.unwrapped.engine.worlds
    first, over, episodes = None, np.zeros(6, dtype=bool), 0
    for _ in range(40):
        # Limits of their own make the episodes of the worlds begin at different times.
        worlds["max_steps"] = 3 + np.arange(6)
        actions = agent.act(obs, first=first)
        # In NEXT_STEP mode the last observation of an episode is shown, and what the agent does then does not matter.
        assert np.array_equal(actions[~over], worlds["step_count"][~over] % 7)
        obs, _, terminated, truncated, _ = envs.step(np.full(6, 6))
        ended = terminated | truncated
        episodes += ended.sum()
        if mode is AutoresetMode.NEXT_STEP:
            first, over = over, ended
            continue
        first = ended
        if mode is AutoresetMode.DISABLED and ended.any():
            obs, _ = envs.reset(options={"reset_mask": ended})
    assert episodes > 30


def test_first_overrides_and_reset_forgets() -> None:
    agent, obs = Agent.create(Counter), view(count=3)
    assert agent.act(obs).tolist() == [0, 0, 0]
    assert agent.act(obs).tolist() == [1, 1, 1]
    assert agent.act(obs, first=np.array([False, True, False])).tolist() == [2, 0, 2]
    assert agent.act(obs).tolist() == [3, 1, 3]
    assert agent.act(obs, first=True).tolist() == [0, 0, 0]
    assert agent.act(obs, first=False).tolist() == [1, 1, 1]
    agent.reset()
    assert agent.act(obs, first=False).tolist() == [0, 0, 0]
    agent.reset()
    assert agent.act(view(count=2)).tolist() == [0, 0]


def test_draws_actions_when_asked_and_never_the_same_again() -> None:
    obs = {key: value.repeat(700, axis=0) for key, value in view(count=1).items()}
    agent, draws = Agent.create(Thrower, seed=0), []
    for count in (700, 700, 350, 700):
        agent.reset()
        draws.append(agent.act({key: value[:count] for key, value in obs.items()}, sample=True))
    assert np.bincount(draws[0], minlength=7).min() > 60
    assert not np.array_equal(draws[0], draws[1]) and not np.array_equal(draws[0], draws[3])
    assert (agent.act(obs) == 0).all()
    again = Agent.create(Thrower, seed=0)
    assert np.array_equal(again.act(obs, sample=True), draws[0])
    assert not np.array_equal(Agent.create(Thrower, seed=1).act(obs, sample=True), draws[0])


class Recorded(Captured):
    """Records as a GPU does, once for each set of shapes, with whatever the function chose then."""

    def __call__(self, *inputs: Tensor) -> Any:
        key = tuple(tensor.shape for tensor in inputs)
        if key not in self._recordings:
            before = [(tensor, tensor.clone()) for tensor in self.changes()]
            self._recordings[key] = make_fx(self.function)(*inputs)  # pyright: ignore[reportArgumentType]
            for tensor, value in before:
                tensor.copy_(value)
        return self._recordings[key](*inputs)  # pyright: ignore[reportCallIssue]


@pytest.mark.filterwarnings("ignore:.*script_method:DeprecationWarning")
@pytest.mark.parametrize("first", [False, True])
def test_who_has_drawn_can_still_take_the_likeliest(first: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    obs, expected = view(count=64), Agent.create("bow_endpool_res", seed=0)
    monkeypatch.setattr(actor, "Captured", Recorded)
    agent = Agent.create("bow_endpool_res", seed=0)
    agent.act(obs, sample=first)
    for sample in (True, False, True):
        agent.reset()
        expected.reset()
        likeliest = expected.act(obs)
        assert np.array_equal(agent.act(obs, sample=sample), likeliest) != sample


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"image": np.zeros((5, 7, 3), np.uint8)},
            r"sees images of \(7, 7, 3\) integers.* not \(5, 7, 3\) uint8; .*symb",
        ),
        ({"image": np.zeros((56, 56, 3), np.uint8)}, r"not \(56, 56, 3\) uint8"),
        ({"image": np.zeros((7, 7, 3))}, "not .* float64"),
        ({"image": np.zeros((0, 7, 7, 3), np.uint8)}, r"not \(0, 7, 7, 3\)"),
        (
            {"image": np.zeros((2, 7, 7, 3), np.uint8), "mission": ["go to a box"] * 2},
            "2 images came with 1 directions",
        ),
        ({"mission": np.full(72, 40)}, "tokens are 0 to 32"),
        ({"mission": np.full(3, -1)}, "tokens are 0 to 32"),
        ({"mission": np.zeros(80, np.uint8)}, "at most 72 token ids"),
        ({"mission": None}, "missions must be sentences"),
    ],
)
def test_refuses_observations_of_something_else(changes: dict[str, Any], words: str) -> None:
    obs, _ = gym.make(LEVEL).reset(seed=0)
    with pytest.raises(ValueError, match=words):
        Agent.create("original").act(obs | changes)


def test_says_what_is_wrong_with_a_call() -> None:
    agent, obs = Agent.create("original"), view()
    with pytest.raises(MissionError, match=r"unknown word 'bal' \(word 4\); did you mean 'ball'"):
        agent.act(gym.make(LEVEL).reset(seed=0)[0] | {"mission": "go to a bal"})
    with pytest.raises(ValueError, match=r"must have image, direction and mission, not \['image'\]"):
        agent.act({"image": obs["image"]})
    with pytest.raises(ValueError, match="must have image, direction and mission, not ndarray"):
        agent.act(obs["image"])
    with pytest.raises(ValueError, match=r"sees images of \(56, 56, 3\).*observation='rgb'"):
        Agent.create("pixels_endpool_res").act(obs)
    agent.act(obs)
    for first in (np.zeros(3, dtype=bool), [0, 0, 0, 1], np.zeros((4, 1), dtype=bool)):
        with pytest.raises(ValueError, match=r"`first` must be a bool or \(4,\) bool"):
            agent.act(obs, first=first)
    with pytest.raises(ValueError, match=r"3 observations came after 4; call agent\.reset\(\)"):
        agent.act({key: value[:3] for key, value in obs.items()})
