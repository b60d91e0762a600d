"""Adam's state: saved and restored, training continues as if nothing had happened."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from babyai.agents.checkpoint import write_tensors
from babyai.training.optimizer import (
    load_optimizer,
    make_adam,
    optimizer_state,
    save_optimizer,
    set_learning_rate,
)
from babyai.training.run import Run

gpu_only = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
DEVICES = ["cpu", pytest.param("cuda", marks=[gpu_only, pytest.mark.gpu])]


class Trainer:
    """A small model with noise in its data, a decaying learning rate, and a parameter that never has a gradient."""

    def __init__(self, seed: int, device: str = "cpu") -> None:
        torch.manual_seed(seed)
        self.model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 2))
        self.model.register_parameter("unused", nn.Parameter(torch.ones(3)))
        self.model.to(device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        self.optimizer = make_adam(self.model, 0.01)
        self.noise = torch.Generator(device).manual_seed(seed)
        self.steps = 0

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.steps += 1
            set_learning_rate(self.optimizer, 0.01 * 0.99**self.steps)
            images = torch.randn(5, 3, 3, 3, generator=self.noise, device=self.noise.device)
            self.optimizer.zero_grad()
            self.model(images).square().mean().backward()
            self.optimizer.step()

    def save(self, run: Run) -> None:
        tensors = save_optimizer(self.optimizer, self.model) | {"noise": self.noise.get_state()}
        run.save(1, lambda path: write_tensors(path, self.model.state_dict()), tensors, {"steps": self.steps})

    def load(self, run: Run) -> None:
        latest = run.latest()
        assert latest is not None
        self.model.load_state_dict(latest.model)
        load_optimizer(self.optimizer, self.model, latest.tensors)
        self.noise.set_state(latest.tensors["noise"])
        self.steps = latest.state["steps"]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("trained_before", [0, 2])
def test_a_restored_optimizer_continues_to_the_bit(tmp_path: Path, device: str, trained_before: int) -> None:
    undisturbed = Trainer(0, device)
    undisturbed.train(3)
    with Run.create(tmp_path, {}, "imitation") as run:
        undisturbed.save(run)
    undisturbed.train(4)
    resumed = Trainer(1, device)
    resumed.train(trained_before)
    with Run.resume(tmp_path) as run:
        resumed.load(run)
    resumed.train(4)
    for one, other in zip(undisturbed.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()
        ours = undisturbed.optimizer.state[one]
        theirs = resumed.optimizer.state[other]
        assert ours.keys() == theirs.keys()
        for key, value in ours.items():
            assert torch.equal(value, theirs[key]) and value.stride() == theirs[key].stride()
            assert value.dtype == theirs[key].dtype and value.device == theirs[key].device


def test_a_new_adam_has_all_moments_and_changes_nothing() -> None:
    torch.manual_seed(0)
    model = nn.Linear(3, 2)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    optimizer = make_adam(model, 0.5)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert len(optimizer_state(optimizer)) == 2 * 3 and not any(value.any() for value in optimizer_state(optimizer))
    assert all(parameter.grad is None for parameter in model.parameters())
    # The paper's hyperparameters, and from here on what a plain Adam does.
    plain_model = nn.Linear(3, 2)
    plain_model.load_state_dict(before)
    plain = torch.optim.Adam(plain_model.parameters(), lr=0.5, betas=(0.9, 0.999), eps=1e-5)
    for _ in range(3):
        for each, steps in ((model, optimizer), (plain_model, plain)):
            each.zero_grad()
            each(torch.arange(3.0)).square().sum().backward()
            steps.step()
    assert all(torch.equal(value, plain_model.state_dict()[name]) for name, value in model.state_dict().items())


def test_names_say_which_moment_of_which_parameter() -> None:
    trainer = Trainer(0)
    names = save_optimizer(trainer.optimizer, trainer.model)
    assert {"optimizer.exp_avg.0.weight", "optimizer.step.2.bias", "optimizer.exp_avg_sq.unused"} <= names.keys()
    assert len(names) == 3 * 5


def test_restoring_changes_tensors_in_place() -> None:
    saved = Trainer(0)
    saved.train(2)
    tensors = {name: value.clone() for name, value in save_optimizer(saved.optimizer, saved.model).items()}
    trainer = Trainer(1)
    trainer.train(1)
    before = save_optimizer(trainer.optimizer, trainer.model)
    load_optimizer(trainer.optimizer, trainer.model, tensors)
    for name, value in save_optimizer(trainer.optimizer, trainer.model).items():
        assert value is before[name] and torch.equal(value, tensors[name])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"optimizer.exp_avg.7.weight": torch.zeros(2)}, r"optimizer\.exp_avg\.7\.weight"),
        ({"optimizer.exp_avg.2.bias": torch.zeros(3)}, r"exp_avg\.2\.bias is \(3,\), not \(2,\)"),
        ({"optimizer.exp_avg.2.bias": None}, r"optimizer\.exp_avg\.2\.bias"),
    ],
    ids=["unknown parameter", "other shape", "missing"],
)
def test_a_checkpoint_of_another_model_is_refused(changed: dict[str, Tensor | None], message: str) -> None:
    trainer = Trainer(0)
    trainer.train(1)
    before = {name: value.clone() for name, value in save_optimizer(trainer.optimizer, trainer.model).items()}
    given = {name: value + 1 for name, value in before.items()} | changed
    tensors = {name: value for name, value in given.items() if value is not None}
    with pytest.raises(ValueError, match=message):
        load_optimizer(trainer.optimizer, trainer.model, tensors)
    after = save_optimizer(trainer.optimizer, trainer.model)
    assert all(torch.equal(after[name], value) for name, value in before.items())
