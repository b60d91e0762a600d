"""CUDA graphs, as far as they can be tested without a GPU: the mutation check, and functions that just run."""

from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from babyai.agents.actor import Actor
from babyai.agents.config import AgentConfig
from babyai.agents.cuda_graph import CudaGraphFunction, UndeclaredMutationError, checking_mutations, own_workspaces
from babyai.agents.film_lstm.model import FilmLSTM
from tests.agents.random_batches import N, random_batch

CPU = torch.device("cpu")

# ------------------------------------------------------------ the mutation check


def change_by_operator(tensor: Tensor) -> None:
    tensor += 1


def change_by_copy(tensor: Tensor) -> None:
    tensor.copy_(torch.ones_like(tensor))


def change_by_index(tensor: Tensor) -> None:
    tensor[0] = 1


def change_by_view(tensor: Tensor) -> None:
    tensor.view(-1)[:2].fill_(1)


def change_by_out(tensor: Tensor) -> None:
    torch.add(tensor.detach().clone(), 1, out=tensor)


def change_many(tensor: Tensor) -> None:
    torch._foreach_add_([tensor], 1.0)


CHANGES = [change_by_operator, change_by_copy, change_by_index, change_by_view, change_by_out, change_many]


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_parameter", [pytest.param(False, marks=pytest.mark.long), True])
def test_only_an_undeclared_change_raises(change: Any, is_parameter: bool) -> None:
    tensor = nn.Parameter(torch.zeros(3, 5)) if is_parameter else torch.zeros(3, 5)
    with torch.no_grad():
        with pytest.raises(UndeclaredMutationError, match=r"1 tensor.*\(3, 5\) float32"), checking_mutations([]):
            change(tensor)
        with checking_mutations([tensor]):
            change(tensor)


def test_a_tensor_inside_a_structure_is_found() -> None:
    class State(NamedTuple):
        h: Tensor

    held = {"states": [State(torch.zeros(4))]}
    with pytest.raises(UndeclaredMutationError, match=r"\(4,\)"), checking_mutations([]):
        held["states"][0].h.add_(1)


def test_all_changed_tensors_are_counted_and_some_are_named() -> None:
    tensors = [torch.zeros(size, dtype=torch.int16) for size in range(1, 8)]
    with pytest.raises(UndeclaredMutationError, match=r"7 tensor.*\(1,\) int16, \(2,\) int16"), checking_mutations([]):
        torch._foreach_add_(tensors, 1)


def test_batch_normalization_in_training_mode_is_found() -> None:
    norm = nn.BatchNorm1d(3)
    with pytest.raises(UndeclaredMutationError), checking_mutations([]):
        norm(torch.randn(4, 3))
    with checking_mutations(norm.buffers()):
        norm(torch.randn(4, 3))
    with checking_mutations([]):
        norm.eval()(torch.randn(4, 3))


def test_new_tensors_may_change() -> None:
    with checking_mutations([]):
        made = torch.zeros(3)
        made += 1


def test_old_views_of_weights_may_exist() -> None:
    weight = nn.Parameter(torch.ones(3))
    views = weight.expand(2, 3).unbind(0)
    with torch.no_grad(), checking_mutations([weight]):
        weight += 1
    with pytest.raises(RuntimeError, match="modified inplace"):
        _ = views[0].is_leaf


def test_gradients_may_change() -> None:
    layer = nn.Linear(2, 2)
    layer(torch.ones(1, 2)).sum().backward()
    held = [parameter.grad for parameter in layer.parameters()]
    versions = [gradient._version for gradient in held]
    with checking_mutations([]):
        layer(torch.ones(1, 2)).sum().backward()
        nn.utils.clip_grad_norm_(layer.parameters(), 0.1)
    assert all(gradient._version > version for gradient, version in zip(held, versions, strict=True))


def test_an_optimizer_must_declare_weights_and_moments() -> None:
    layer = nn.Linear(2, 2)
    optimizer = torch.optim.Adam(layer.parameters())

    def step() -> None:
        optimizer.zero_grad()
        layer(torch.ones(1, 2)).sum().backward()
        optimizer.step()

    step()
    moments = [value for state in optimizer.state.values() for value in state.values()]
    with checking_mutations([*layer.parameters(), *moments]):
        step()
    with pytest.raises(UndeclaredMutationError, match=r"\(2, 2\)"), checking_mutations(layer.parameters()):
        step()


def test_another_reference_to_a_declared_tensor_is_declared_with_it() -> None:
    """`state_dict` returns detached tensors, which share the memory of the parameters and their version counters."""
    layer = nn.Linear(2, 2)
    weights = layer.state_dict()
    with torch.no_grad(), checking_mutations(layer.parameters()):
        layer.weight += 1
    assert torch.equal(weights["weight"], layer.weight)


def test_an_error_inside_is_passed_on() -> None:
    with pytest.raises(KeyError, match="inside"), checking_mutations([]):
        raise KeyError("inside")


@pytest.mark.parametrize("training", [pytest.param(False, marks=pytest.mark.long), True], ids=["eval", "train"])
@pytest.mark.parametrize("precision", ["float32", "bf16"])
@pytest.mark.parametrize("settings", [{}, {"size": "big", "memory_dim": 24}, {"memory_dim": 0}])
def test_an_actor_declares_all_that_it_changes(settings: dict[str, Any], precision: Any, training: bool) -> None:
    """It acts in the mode that the policy is in; in training mode, batch normalization changes its statistics."""
    actor = Actor(FilmLSTM(AgentConfig.of(**settings)).train(training), N, precision=precision)
    batch = random_batch().map(Tensor.numpy)
    missions = np.zeros((N, 72), dtype=np.uint8)
    with checking_mutations([*actor.mutated(), actor._packer._host]):
        actor.act(batch.images[0], missions, batch.directions[0], batch.starts[0])


# ------------------------------------------------------------ without a GPU


def test_without_a_gpu_the_function_just_runs() -> None:
    total = torch.zeros(3)

    def add(inputs: dict[str, Any], scale: Tensor) -> dict[str, Tensor]:
        total.add_(inputs["x"][0] * scale)
        return {"total": total.clone()}

    function = CudaGraphFunction(add, CPU, lambda: [total])
    for calls in (1, 2, 3):
        outputs = function({"x": (torch.ones(3),)}, torch.tensor(2.0))
        assert outputs["total"].tolist() == [2.0 * calls] * 3
    assert not function.enabled


def test_errors_of_the_function_are_shown_as_they_are() -> None:
    def fail(x: Tensor) -> Tensor:
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        CudaGraphFunction(fail, CPU)(torch.zeros(1))


def test_a_torch_that_cannot_clear_workspaces_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs that share a workspace hang when they are replayed concurrently."""
    monkeypatch.delattr(torch._C, "_cuda_clearCublasWorkspaces", raising=False)
    version = torch.__version__.partition("+")[0]
    with pytest.raises(RuntimeError, match=rf"{version}.*--no-cuda-graphs"), own_workspaces():
        pass
