"""Policies of your own: found by import path, checked against the contract, saved, and never run without consent."""

import inspect
import json
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import babyai  # noqa: F401 - registers the environments
from babyai.agents import Agent, FilmLSTM
from babyai.agents.config import AgentConfig, CustomConfig, read_config
from babyai.agents.custom import ContractError, build_policy, check_contract, example_batch, load_class, make_config
from babyai.agents.policy import Unrolled, unroll, unroll_steps
from tests.agents.own_policies import POLICIES, OwnUnroll
from tests.agents.random_batches import N, T, random_batch


class BagReader(nn.Module):
    """A policy as a user writes it: embeddings of tiles and words, and a GRU."""

    def __init__(self, hidden: int = 64) -> None:
        super().__init__()
        self.tiles = nn.Embedding(3 * 16, 8)
        self.words = nn.EmbeddingBag(100, hidden, mode="mean", padding_idx=0)
        self.encoder = nn.Linear(7 * 7 * 3 * 8, hidden)
        self.gru = nn.GRUCell(2 * hidden, hidden)
        self.actor = nn.Linear(hidden, 7)
        self.critic = nn.Linear(hidden, 1)

    def initial_state(self, n: int) -> Tensor:
        return torch.zeros(n, self.gru.hidden_size, device=self.actor.weight.device)

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        tiles = observation["image"].long() + 16 * torch.arange(3, device=state.device)
        image = self.encoder(self.tiles(tiles).flatten(1)).relu()
        state = self.gru(torch.cat([image, self.words(observation["mission"].long())], 1), state)
        return self.actor(state), self.critic(state).squeeze(1), state


SOURCE = "import torch\nfrom torch import Tensor, nn\n\n\n" + inspect.getsource(BagReader)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The policy in a file of its own; each time it is run, it leaves a trace."""
    path = tmp_path / "my_policies.py"
    trace = f"\nwith open({str(tmp_path / 'trace')!r}, 'a') as file:\n    file.write('run ')\n"
    path.write_text(SOURCE + trace)
    return path


def count_runs(file: Path) -> int:
    trace = file.with_name("trace")
    return len(trace.read_text().split()) if trace.exists() else 0


def play(agent: Agent, steps: int = 8) -> list[list[int]]:
    envs = gym.make_vec("babyai/GoToLocal-v0", num_envs=5, max_steps=4, autoreset_mode="SameStep")
    obs, _ = envs.reset(seed=0)
    agent.reset()
    starts = None
    played = []
    for _ in range(steps):
        actions = agent.act(obs, episode_start=starts)
        played.append(actions.tolist())
        obs, _, terminated, truncated, _ = envs.step(actions)
        starts = terminated | truncated
    return played


# ------------------------------------------------------------ playing, learning, loading


def test_a_policy_plays_and_is_saved(file: Path) -> None:
    path = f"{file}:BagReader"
    agent = Agent.create(path, hidden=48, seed=0)
    assert agent.config == CustomConfig(path, {"hidden": 48})
    assert agent.model.gru.hidden_size == 48
    agent.save(file.parent / "agent")
    loaded = Agent.load(file.parent / "agent", device="cpu", trust=True)
    assert loaded.config == agent.config
    played = play(agent)
    assert play(loaded) == played
    assert len({tuple(actions) for actions in played}) > 1
    for key, value in loaded.model.state_dict().items():
        assert torch.equal(value, agent.model.state_dict()[key])


def test_a_policy_learns() -> None:
    """Every parameter gets a gradient, and the loss decreases."""
    torch.manual_seed(0)
    policy = build_policy(make_config(BagReader, hidden=32), BagReader)
    batch = random_batch()
    labels = torch.randint(0, 7, (T, N), generator=torch.Generator().manual_seed(0))
    optimizer = torch.optim.Adam(policy.parameters(), 0.01)
    losses = []
    for _ in range(30):
        unrolled = unroll(policy, batch, policy.initial_state(N))
        loss = nn.functional.cross_entropy(unrolled.logits.flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        (loss + unrolled.values.square().mean()).backward()
        assert all(parameter.grad is not None and parameter.grad.abs().sum() > 0 for parameter in policy.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_loading_runs_no_code_without_consent(file: Path) -> None:
    path = f"{file}:BagReader"
    Agent.create(path, hidden=8).save(file.parent / "agent")
    before = count_runs(file)
    with pytest.raises(ValueError, match=r"my_policies\.py:BagReader.*trust=True.*model_class"):
        Agent.load(file.parent / "agent")
    assert count_runs(file) == before
    Agent.load(file.parent / "agent", trust=True)
    assert count_runs(file) == before + 1
    own = load_class(path)
    file.write_text("raise RuntimeError")
    assert isinstance(Agent.load(file.parent / "agent", model_class=own).model, own)


def test_a_class_that_has_moved_is_found_where_the_caller_says(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Agent.create(f"{file}:BagReader", hidden=8, seed=0).save(file.parent / "agent")
    package = file.parent / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    file.rename(package / "policies.py")
    monkeypatch.syspath_prepend(file.parent)
    agent = Agent.load(file.parent / "agent", device="cpu", model_class="my_package.policies:BagReader")
    assert type(agent.model).__module__ == "my_package.policies"
    assert len(play(agent)) == 8
    with pytest.raises(ValueError, match=str(file)):
        Agent.load(file.parent / "agent", trust=True)


def test_a_checkpoint_of_the_paper_takes_no_class(tmp_path: Path) -> None:
    Agent.create("original", memory_dim=8).save(tmp_path / "agent")
    with pytest.raises(ValueError, match=r"'original'.*model_class"):
        Agent.load(tmp_path / "agent", model_class=FilmLSTM)
    assert isinstance(Agent.load(tmp_path / "agent", trust=True).model, FilmLSTM)


def test_a_class_that_has_changed_is_reported(file: Path) -> None:
    Agent.create(f"{file}:BagReader", hidden=8).save(file.parent / "agent")
    file.write_text(file.read_text().replace("nn.Embedding(3 * 16, 8)", "nn.Embedding(3 * 20, 8)"))
    with pytest.raises(ValueError, match=r"tiles\.weight is \(48, 8\) there and \(60, 8\) here"):
        Agent.load(file.parent / "agent", trust=True)


# ------------------------------------------------------------ naming


def test_a_configuration_survives_json() -> None:
    for config in (
        CustomConfig("a.b:C", {"sizes": [1, 2], "name": None, "deep": {"x": 0.5}}, pixels=True),
        AgentConfig.of("original", "big", memory_dim=3, last_action=True),
    ):
        assert read_config(json.loads(json.dumps(asdict(config)))) == config


def test_settings_go_to_the_class_and_size_is_one_of_them(file: Path) -> None:
    path = f"{file}:BagReader"
    assert make_config(path, "big", hidden=3) == CustomConfig(path, {"size": "big", "hidden": 3})
    assert make_config(BagReader) == CustomConfig(f"{BagReader.__module__}:BagReader", {})
    with pytest.raises(ContractError, match=r"BagReader.*\{'hiden': 3\}.*'hiden'"):
        build_policy(make_config(path, hiden=3))


@pytest.mark.parametrize(
    ("path", "fact"),
    [
        ("no_such_package.policies:Net", r"'no_such_package\.policies'.*PYTHONPATH"),
        ("torch.no_such:Net", r"'torch\.no_such'"),
        ("policies.py:Net", r"no such file: policies\.py"),
        ("{file}:BagReder", "'BagReder'.*'BagReader'"),
        ("{file}:", "package.module:Name"),
        (":BagReader", "package.module:Name"),
        ("torch.nn:init", r"torch\.nn:init.*torch\.nn\.Module"),
        ("pathlib:Path", r"pathlib:Path.*torch\.nn\.Module"),
    ],
)
def test_a_class_that_cannot_be_found_is_explained(file: Path, path: str, fact: str) -> None:
    with pytest.raises(ValueError, match=fact):
        load_class(path.format(file=file))


class Outer:
    class Inner(nn.Module):
        pass


def test_a_class_inside_another_class_is_found() -> None:
    path = make_config(Outer.Inner).architecture
    assert path == f"{__name__}:Outer.Inner"
    assert load_class(path) is Outer.Inner
    with pytest.raises(ValueError, match=r"Module\.Inner"):
        load_class("torch.nn:Module.Inner")


def test_errors_in_a_users_file_are_shown_as_they_are(file: Path) -> None:
    file.write_text("import no_such_package")
    known = set(sys.modules)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        load_class(f"{file}:BagReader")
    assert set(sys.modules) == known


def test_files_of_the_same_name_are_different_modules(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / file.name
    other.parent.mkdir()
    other.write_text(SOURCE)
    one = load_class(f"{file}:BagReader")
    two = load_class(f"{other}:BagReader")
    assert one is not two
    assert one.__module__ != two.__module__


# ------------------------------------------------------------ the contract


class Valid(nn.Module):
    """Does nothing much, but satisfies the contract."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.seen: dict[str, Tensor] = {}

    def initial_state(self, n: int) -> Any:
        return torch.zeros(n, 4)

    def forward(self, observation: dict[str, Tensor], state: Any) -> Any:
        self.seen = observation
        count = len(observation["image"])
        return torch.zeros(count, 7), self.norm(torch.ones(count, 1))[:, 0], state


class Watcher(Valid):
    pixels = True


def returning(**parts: Any) -> nn.Module:
    """A policy that returns something else than a valid one."""
    valid = {"logits": torch.zeros(2, 7), "value": torch.zeros(2), "state": torch.zeros(2, 4)}

    class Invalid(Valid):
        def forward(self, observation: dict[str, Tensor], state: Any) -> Any:
            return tuple((valid | parts).values())

    return Invalid()


def starting_with(state: Any) -> nn.Module:
    class Invalid(Valid):
        def initial_state(self, n: int) -> Any:
            return state

    return Invalid()


class ReturnsOnlyState(Valid):
    def forward(self, observation: dict[str, Tensor], state: Any) -> Any:
        return state


class Broken(Valid):
    def forward(self, observation: dict[str, Tensor], state: Any) -> Any:
        return observation["text"]


class BrokenUnroll(OwnUnroll):
    def unroll(self, batch: Any, state: Any) -> Any:
        raise KeyError("unroll")


class ShapelessUnroll(OwnUnroll):
    """Forgets to separate steps and lanes."""

    def unroll(self, batch: Any, state: Any) -> Any:
        logits, values, state = super().unroll(batch, state)
        return Unrolled(logits.flatten(0, 1), values.flatten(), state)


@pytest.mark.parametrize(
    ("policy", "fact"),
    [
        (nn.Linear(2, 2), r"Linear.*initial_state\(n\)"),
        (returning(logits=torch.zeros(2, 6)), r"logits.*\(2, 7\).*\(2, 6\) float32"),
        (returning(value=torch.zeros(2, 1)), r"value.*\(2,\).*\(2, 1\) float32"),
        (returning(logits=torch.zeros(2, 7).long()), r"logits.*\(2, 7\) int64"),
        (returning(logits=[0.0] * 7), "logits.*list"),
        (returning(state=torch.zeros(2, 5)), r"state.*\(2, 4\).*\(2, 5\)"),
        (returning(state=(torch.zeros(2, 4),)), r"state.*state\.0"),
        (returning(state=None), r"state.*\(2, 4\).*\[\]"),
        (returning(extra=None), r"\(logits, value, state\).*NoneType\)"),
        (ReturnsOnlyState(), r"\(logits, value, state\).*\(2, 4\) float32"),
        (Broken(), "KeyError.*'text'"),
        (starting_with(torch.zeros(4)), r"initial_state\(2\).*\(4,\) float32"),
        (starting_with(torch.tensor(0.0)), r"initial_state\(2\).*\(\) float32"),
        (starting_with({"h": torch.zeros(2), "deep": [0]}), r"initial_state\(2\).*state\.deep\.0 is int"),
        (BrokenUnroll(), "KeyError.*'unroll'"),
        (ShapelessUnroll(), "unroll"),
    ],
)
def test_a_violation_of_the_contract_is_named(policy: nn.Module, fact: str) -> None:
    with pytest.raises(ContractError, match=fact):
        check_contract(policy)


class OtherLogits(OwnUnroll):
    def unroll(self, batch: Any, state: Any) -> Unrolled:
        unrolled = super().unroll(batch, state)
        return unrolled._replace(logits=unrolled.logits + 0.1)


class OtherValues(OwnUnroll):
    def unroll(self, batch: Any, state: Any) -> Unrolled:
        unrolled = super().unroll(batch, state)
        return unrolled._replace(values=unrolled.values + 0.1)


class CountingSteps(OwnUnroll):
    """The state is the number of steps since the start of an episode."""

    def initial_state(self, n: int) -> Any:
        return torch.zeros(n, dtype=torch.int64)

    def forward(self, observation: dict[str, Tensor], state: Any) -> Any:
        logits, value, _ = super().forward(observation, ())
        return logits, value, state + 1

    def unroll(self, batch: Any, state: Any) -> Unrolled:
        stepped = unroll_steps(self, batch, state)
        return stepped._replace(state=self.state_after(batch, state, stepped.state))

    def state_after(self, batch: Any, before: Any, after: Any) -> Any:
        return after


class OtherState(CountingSteps):
    def state_after(self, batch: Any, before: Any, after: Any) -> Any:
        """Ignores that episodes start."""
        return before + batch.num_steps


@pytest.mark.parametrize(("own", "part"), [(OtherLogits, "logits"), (OtherValues, "values"), (OtherState, "state")])
def test_unroll_must_agree_with_forward(own: type[nn.Module], part: str) -> None:
    with pytest.raises(ContractError, match=rf"{own.__name__}\.unroll.*{part}"):
        check_contract(own())


@pytest.mark.parametrize("own", [*POLICIES, BagReader, Valid, Watcher, CountingSteps])
def test_states_of_any_structure_satisfy_the_contract(own: type[nn.Module]) -> None:
    check_contract(own())


@pytest.mark.parametrize("architecture", ["original", "pixels_endpool_res"])
@pytest.mark.parametrize("settings", [{}, {"size": "big", "memory_dim": 8}, {"memory_dim": 0}])
def test_the_papers_agents_satisfy_the_contract(architecture: str, settings: dict[str, Any]) -> None:
    check_contract(FilmLSTM(AgentConfig.of(architecture, **settings)))


@pytest.mark.parametrize(("own", "shape"), [(Valid, (2, 7, 7, 3)), (Watcher, (2, 56, 56, 3))])
def test_checking_leaves_a_policy_as_it_was(own: type[Valid], shape: tuple[int, ...]) -> None:
    policy = own()
    policy.norm.eval()
    before = {key: value.clone() for key, value in policy.state_dict().items()}
    check_contract(policy)
    assert policy.training
    assert not policy.norm.training
    assert all(torch.equal(value, before[key]) for key, value in policy.state_dict().items())
    assert policy.seen["image"].shape == shape
    assert policy.seen["image"].dtype == torch.uint8
    broken = Broken()
    broken.norm.eval()
    with pytest.raises(ContractError):
        check_contract(broken)
    assert broken.training
    assert not broken.norm.training


def test_the_example_batch_starts_episodes_in_the_middle() -> None:
    batch = example_batch()
    assert batch.starts.any(1).sum() > 1
    assert batch.last_actions[batch.starts].unique().tolist() == [-1]
    assert (batch.last_actions[~batch.starts] >= 0).all()
    assert example_batch(pixels=True).images.shape == (3, 2, 56, 56, 3)


def test_a_policy_that_reads_pixels_gets_them(tmp_path: Path) -> None:
    agent = Agent.create(Watcher)
    agent.save(tmp_path / "agent")
    agent = Agent.load(tmp_path / "agent", device="cpu", model_class=Watcher)
    assert agent.config.pixels
    obs, _ = gym.make("babyai/GoToLocal-v0", observation="rgb").reset(seed=0)
    agent.act(obs)
    assert np.array_equal(agent.model.seen["image"][0], obs["image"])
