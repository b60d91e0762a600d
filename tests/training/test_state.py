"""What a trainer remembers: put away and taken out again, training goes on as if nothing had happened."""

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from babyai.training.run import Run
from babyai.training.state import load_optimizer_tensors, optimizer_tensors

gpu_only = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
ADAMS: list[Any] = [
    {},
    {"fused": True},
    {"foreach": True},
    {"foreach": False, "lr": torch.tensor(0.01)},
    {"amsgrad": True, "weight_decay": 0.1},
    pytest.param({"fused": True, "capturable": True}, marks=gpu_only),
]


class Trainer:
    """A small model with noise in its data, two groups of parameters, and one that never has a gradient."""

    def __init__(self, seed: int, **adam: Any) -> None:
        torch.manual_seed(seed)
        device = "cuda" if adam.get("capturable") else "cpu"
        self.model = nn.Sequential(nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 2))
        self.model.register_parameter("unused", nn.Parameter(torch.ones(3)))
        self.model.to(device, memory_format=torch.channels_last)  # pyright: ignore[reportCallIssue]
        convolution, *others = self.model.parameters()
        settings: dict[str, Any] = {"lr": 0.01} | copy.deepcopy(adam)
        self.optimizer = torch.optim.Adam([{"params": [convolution], "lr": 0.02}, {"params": others}], **settings)
        self.noise, self.order = torch.Generator(device).manual_seed(seed), np.random.default_rng(seed)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            images = torch.randn(5, 3, 3, 3, generator=self.noise, device=self.noise.device) * self.order.uniform()
            self.optimizer.zero_grad()
            self.model(images).square().mean().backward()
            self.optimizer.step()
            for group in self.optimizer.param_groups:
                group["lr"] *= 0.99

    def save(self, run: Run) -> None:
        tensors = optimizer_tensors(self.optimizer, self.model) | {"noise": self.noise.get_state()}
        state = {"rates": self.rates(), "order": self.order.bit_generator.state}
        weights = {name: value.contiguous() for name, value in self.model.state_dict().items()}
        run.save(1, lambda folder: save_file(weights, folder / "model.safetensors"), tensors, state)

    def load(self, run: Run) -> None:
        found = run.latest()
        assert found is not None
        folder, tensors, state = found
        self.model.load_state_dict(load_file(folder / "model.safetensors"))
        load_optimizer_tensors(self.optimizer, self.model, tensors)
        for group, rate in zip(self.optimizer.param_groups, state["rates"], strict=True):
            group["lr"] = group["lr"].fill_(rate) if isinstance(group["lr"], Tensor) else rate
        self.noise.set_state(tensors["noise"])
        self.order.bit_generator.state = state["order"]

    def rates(self) -> list[float]:
        return [float(group["lr"]) for group in self.optimizer.param_groups]


@pytest.mark.parametrize("adam", ADAMS, ids=str)
@pytest.mark.parametrize("trained_before", [0, 2])
def test_going_on_equals_not_having_stopped(tmp_path: Path, adam: dict[str, Any], trained_before: int) -> None:
    undisturbed = Trainer(0, **adam)
    undisturbed.train(3)
    with Run.create(tmp_path, {}, "imitation") as run:
        undisturbed.save(run)
    undisturbed.train(4)
    resumed = Trainer(1, **adam)
    resumed.train(trained_before)
    with Run.resume(tmp_path) as run:
        resumed.load(run)
    resumed.train(4)
    for one, other in zip(undisturbed.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(one, other) and one.stride() == other.stride()
    ours, theirs = undisturbed.optimizer.state, resumed.optimizer.state
    for one, other in zip(undisturbed.model.parameters(), resumed.model.parameters(), strict=True):
        assert ours[one].keys() == theirs[other].keys()
        for key, value in ours[one].items():
            assert torch.equal(value, theirs[other][key]) and value.stride() == theirs[other][key].stride()
            assert value.dtype == theirs[other][key].dtype and value.device == theirs[other][key].device
    assert undisturbed.rates() == resumed.rates()
    assert undisturbed.order.uniform() == resumed.order.uniform()


def test_names_say_what_is_remembered_of_what() -> None:
    trainer = Trainer(0)
    assert optimizer_tensors(trainer.optimizer, trainer.model) == {}
    trainer.train(1)
    names = optimizer_tensors(trainer.optimizer, trainer.model)
    assert "optimizer.exp_avg.0.weight" in names and "optimizer.step.2.bias" in names
    assert len(names) == 3 * 4 and not any("unused" in name for name in names)


def test_tensors_that_exist_are_changed_in_place() -> None:
    saved = Trainer(0, lr=torch.tensor(0.01), foreach=False)
    saved.train(2)
    tensors = {name: value.clone() for name, value in optimizer_tensors(saved.optimizer, saved.model).items()}
    trainer = Trainer(1, lr=torch.tensor(0.01), foreach=False)
    trainer.model.unused.grad = torch.ones(3)  # pyright: ignore[reportAttributeAccessIssue]
    trainer.optimizer.step()
    trainer.train(1)
    places = optimizer_tensors(trainer.optimizer, trainer.model)
    load_optimizer_tensors(trainer.optimizer, trainer.model, tensors)
    for name, value in optimizer_tensors(trainer.optimizer, trainer.model).items():
        assert value is places[name]
        # What had not been remembered is as on the first day.
        assert torch.equal(value, tensors[name]) if "unused" not in name else not value.any()


def test_checkpoints_of_another_model_are_refused() -> None:
    trainer = Trainer(0)
    trainer.train(1)
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    before = {name: value.clone() for name, value in optimizer_tensors(trainer.optimizer, trainer.model).items()}
    for tensors, complaint in (
        ({"optimizer.exp_avg.7.weight": torch.zeros(2)}, "knows a parameter '7.weight', which this model has not"),
        ({"optimizer.exp_avg.2.bias": torch.zeros(3)}, r"has \(3,\) for 2.bias, which is \(2,\) here"),
    ):
        with pytest.raises(ValueError, match=complaint):
            load_optimizer_tensors(trainer.optimizer, trainer.model, before | tensors)
    with pytest.raises(ValueError, match="5 parameters of the optimizer are not parameters of the model"):
        optimizer_tensors(trainer.optimizer, nn.Linear(2, 2))
    after: dict[str, Tensor] = optimizer_tensors(trainer.optimizer, trainer.model) | trainer.model.state_dict()
    assert all(torch.equal(after[name], value) for name, value in (before | weights).items())
