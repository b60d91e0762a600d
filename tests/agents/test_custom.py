"""Models of one's own: found by import path, held to the contract, kept, and never run unasked."""

import json
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from torch import Tensor, nn

import babyai  # noqa: F401 - registers the environments
from babyai.agents import Agent, Model
from babyai.agents.config import CustomConfig, read_config
from babyai.agents.custom import ContractError, check_contract, load_class, make_config, make_model
from babyai.agents.unroll import Steps, Unroller

ROOT = Path(__file__).parents[2]


def example() -> str:
    """The block of the page that defines a model."""
    page = (ROOT / "docs" / "agents.md").read_text(encoding="utf-8")
    return next(block.split("```")[0] for block in page.split("```python\n") if "class BagReader" in block)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The page's example as a file; running it leaves a trace."""
    path = tmp_path / "my_models.py"
    trace = f"\nwith open({str(tmp_path / 'trace')!r}, 'a') as file:\n    file.write('run ')\n"
    path.write_text(example() + trace)
    return path


def runs(file: Path) -> int:
    trace = file.with_name("trace")
    return len(trace.read_text().split()) if trace.exists() else 0


def play(agent: Agent, steps: int = 8) -> list[list[int]]:
    envs = gym.make_vec("babyai/GoToLocal-v0", num_envs=5, max_steps=4)
    obs, _ = envs.reset(seed=0)
    agent.reset()
    first, played = None, []
    for _ in range(steps):
        actions = agent.act(obs, first=first)
        played.append(actions.tolist())
        obs, _, terminated, truncated, _ = envs.step(actions)
        first = terminated | truncated
    return played


# ---------------------------------------------------------------- the example


def test_the_example_plays_and_is_kept(file: Path) -> None:
    path = f"{file}:BagReader"
    agent = Agent.create(path, hidden=48, seed=0)
    assert agent.config == CustomConfig(path, {"hidden": 48}) and agent.model.remember.hidden_size == 48
    agent.save(file.parent / "agent", max_part_bytes=2**16)
    again = Agent.load(file.parent / "agent", device="cpu", trust=True)
    assert again.config == agent.config
    played = play(agent)
    assert play(again) == played and len({tuple(actions) for actions in played}) > 1
    for key, value in again.model.state_dict().items():
        assert torch.equal(value, agent.model.state_dict()[key])


def test_the_example_learns(file: Path) -> None:
    """Through the same door as the trainers: every parameter gets a gradient, and the loss goes down."""
    torch.manual_seed(0)
    model = make_model(f"{file}:BagReader", hidden=32)
    generator = torch.Generator().manual_seed(0)
    steps = Steps(
        images=torch.randint(0, 6, (4, 8, 7, 7, 3), generator=generator).to(torch.uint8),
        directions=torch.zeros(4, 8, dtype=torch.uint8),
        last_actions=torch.full((4, 8), -1),
        first=torch.rand(4, 8, generator=generator) < 0.3,
        missions=torch.randint(1, 33, (8, 8), generator=generator).to(torch.uint8),
        mission_index=torch.arange(8).expand(4, 8),
    )
    wanted = torch.randint(0, 7, (4, 8), generator=generator)
    optimizer, losses = torch.optim.Adam(model.parameters(), 0.01), []
    for _ in range(30):
        unrolled = Unroller(model)(steps, model.initial_memory(8))
        loss = nn.functional.cross_entropy(unrolled.logits.flatten(0, 1), wanted.flatten())
        optimizer.zero_grad()
        (loss + unrolled.values.square().mean()).backward()
        assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.2 * losses[0]


def test_loading_runs_no_code_unless_told_to(file: Path) -> None:
    path = f"{file}:BagReader"
    Agent.create(path, hidden=8).save(file.parent / "agent")
    before = runs(file)
    with pytest.raises(
        ValueError, match=r"somebody's own, '.*my_models\.py:BagReader', .* give model_class.*trust=True"
    ):
        Agent.load(file.parent / "agent")
    assert runs(file) == before
    Agent.load(file.parent / "agent", trust=True)
    assert runs(file) == before + 1
    own = load_class(path)
    file.write_text("raise RuntimeError")
    assert isinstance(Agent.load(file.parent / "agent", model_class=own).model, own)


def test_a_class_that_moved_is_found_where_the_caller_says(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Agent.create(f"{file}:BagReader", hidden=8, seed=0).save(file.parent / "agent")
    package = file.parent / "my_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    file.rename(package / "models.py")
    monkeypatch.syspath_prepend(file.parent)
    agent = Agent.load(file.parent / "agent", device="cpu", model_class="my_package.models:BagReader")
    assert type(agent.model).__module__ == "my_package.models" and len(play(agent)) == 8
    with pytest.raises(ValueError, match="there is no file"):
        Agent.load(file.parent / "agent", trust=True)


def test_a_checkpoint_of_the_paper_takes_no_class(tmp_path: Path) -> None:
    Agent.create("original", memory_dim=8).save(tmp_path / "agent")
    with pytest.raises(ValueError, match="holds the paper's 'original', so it takes no model_class"):
        Agent.load(tmp_path / "agent", model_class=Model)
    assert isinstance(Agent.load(tmp_path / "agent", trust=True).model, Model)


def test_says_when_the_class_has_changed(file: Path) -> None:
    Agent.create(f"{file}:BagReader", hidden=8).save(file.parent / "agent")
    file.write_text(file.read_text().replace("nn.Embedding(3 * 16, 8)", "nn.Embedding(3 * 20, 8)"))
    with pytest.raises(ValueError, match=r"tiles\.weight is \(48, 8\) there and \(60, 8\) here"):
        Agent.load(file.parent / "agent", trust=True)


# ---------------------------------------------------------------- naming


def test_a_config_survives_json() -> None:
    config = CustomConfig("a.b:C", {"sizes": [1, 2], "name": None, "deep": {"x": 0.5}}, pixels=True)
    assert read_config(json.loads(json.dumps(config.__dict__))) == config


def test_settings_go_to_the_class_and_a_size_is_one_of_them(file: Path) -> None:
    assert make_config(f"{file}:BagReader", "big", hidden=3) == CustomConfig(
        f"{file}:BagReader", {"size": "big", "hidden": 3}
    )
    with pytest.raises(ContractError, match=r"cannot be made with \{'hiden': 3\}: .*hiden"):
        make_model(f"{file}:BagReader", hiden=3)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("no_such_package.models:Net", "there is no module 'no_such_package.models'; install it or put"),
        ("torch.no_such:Net", "there is no module 'torch.no_such'"),
        ("models.py:Net", "there is no file models.py"),
        ("{file}:BagReder", "has no class 'BagReder'; did you mean 'BagReader'"),
        ("{file}:", "names no class; write 'package.module:ClassName'"),
        ("torch.nn:init", "torch.nn:init is no class derived from torch.nn.Module"),
        ("pathlib:Path", "is no class derived from"),
    ],
)
def test_says_why_there_is_no_such_class(file: Path, path: str, words: str) -> None:
    with pytest.raises(ValueError, match=words.replace(".", r"\.")):
        load_class(path.format(file=file))


def test_errors_in_a_users_file_are_shown_as_they_are(file: Path) -> None:
    file.write_text("import no_such_package")
    known = set(sys.modules)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        load_class(f"{file}:BagReader")
    assert set(sys.modules) == known


def test_files_of_one_name_are_told_apart(file: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / file.name
    other.parent.mkdir()
    other.write_text(example())
    one, two = load_class(f"{file}:BagReader"), load_class(f"{other}:BagReader")
    assert one is not two and one.__module__ != two.__module__


# ---------------------------------------------------------------- the contract


class Sound(nn.Module):
    """Does nothing much, and all that is asked."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(1)
        self.seen: dict[str, Tensor] = {}

    def forward(self, observation: dict[str, Tensor], memory: Tensor) -> Any:
        self.seen = observation
        count = len(memory)
        return torch.zeros(count, 7), self.norm(torch.ones(count, 1))[:, 0], memory

    def initial_memory(self, count: int, device: Any) -> Any:
        return torch.zeros(count, 4, device=device)


class Watcher(Sound):
    pixels = True


def answering(**parts: Any) -> nn.Module:
    """A model whose answer differs from a sound one."""
    sound = {"logits": torch.zeros(2, 7), "value": torch.zeros(2), "memory": torch.zeros(2, 4)}

    class Wrong(Sound):
        def forward(self, observation: dict[str, Tensor], memory: Tensor) -> Any:
            return tuple((sound | parts).values())

    return Wrong()


def remembering(memory: Any) -> nn.Module:
    class Wrong(Sound):
        def initial_memory(self, count: int, device: Any) -> Any:
            return memory

    return Wrong()


class Silent(Sound):
    def forward(self, observation: dict[str, Tensor], memory: Tensor) -> Any:
        return memory


class Broken(Sound):
    def forward(self, observation: dict[str, Tensor], memory: Tensor) -> Any:
        return observation["text"]


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (nn.Linear(2, 2), r"Linear needs a method initial_memory\(count, device\) that gives zeros \(count, D\)"),
        (
            answering(logits=torch.zeros(2, 6)),
            r"return logits of shape \(2, 7\) for a batch of two, not \(2, 6\) float32",
        ),
        (answering(value=torch.zeros(2, 1)), r"return value of shape \(2,\) for a batch of two, not \(2, 1\)"),
        (answering(memory=torch.zeros(2, 5)), r"return memory of shape \(2, 4\) for a batch of two, not \(2, 5\)"),
        (answering(logits=torch.zeros(2, 7).long()), r"not \(2, 7\) int64"),
        (answering(extra=None), r"must return \(logits, value, memory\), not \(\(2, 7\) float32, .*, NoneType\)"),
        (Silent(), r"must return \(logits, value, memory\), not \(2, 4\) float32"),
        (Broken(), "failed on a batch of two: KeyError: 'text'"),
        (remembering(torch.zeros(4)), r"must give zeros \(2, D\), not \(4,\) float32"),
        (
            remembering((torch.zeros(2, 4),) * 2),
            r"must give zeros \(2, D\), not \(\(2, 4\) float32, \(2, 4\) float32\)",
        ),
        (remembering(torch.ones(2, 4)), r"not \(2, 4\) float32 with other values than 0"),
    ],
)
def test_a_broken_contract_is_named(model: nn.Module, words: str) -> None:
    with pytest.raises(ContractError, match=words):
        check_contract(model)


@pytest.mark.parametrize(("own", "shape"), [(Sound, (2, 7, 7, 3)), (Watcher, (2, 56, 56, 3))])
def test_a_sound_model_is_left_as_it_was(own: type[nn.Module], shape: tuple[int, ...]) -> None:
    model = own()
    model.norm.eval()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    check_contract(model, make_config(own).pixels)
    assert model.training and not model.norm.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert model.seen["image"].shape == shape and model.seen["image"].dtype == torch.uint8


def test_a_model_that_sees_pixels_is_shown_them(tmp_path: Path) -> None:
    agent = Agent.create(Watcher)
    agent.save(tmp_path / "agent")
    agent = Agent.load(tmp_path / "agent", device="cpu", model_class=Watcher)
    assert agent.config.pixels
    obs, _ = gym.make("babyai/GoToLocal-v0", observation="rgb").reset(seed=0)
    agent.act(obs)
    assert np.array_equal(agent.model.seen["image"][0], obs["image"])
