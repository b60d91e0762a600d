"""What an optimizer must remember, as named tensors, never pickled.

Tensors are put back in place where there are some already, because a captured CUDA graph goes on using the old ones.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

PREFIX = "optimizer."


def optimizer_tensors(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """All that Adam remembers of each parameter, named such as `optimizer.exp_avg.<parameter>`.

    These are the tensors themselves, not copies. Parameters that have never had a gradient have none.
    """
    return {
        f"{PREFIX}{key}.{name}": value if isinstance(value, Tensor) else torch.tensor(value)
        for parameter, name in _names(optimizer, model).items()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


def load_optimizer_tensors(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Makes an optimizer remember what another one did; names that do not start with `optimizer.` are left alone.

    Args:
        optimizer: Adam over the parameters of `model`.
        model: A model with the same parameters as that of the other one.
        tensors: What `optimizer_tensors` gave.

    Raises:
        ValueError: These are not tensors of such a model.
    """
    memories, names = _split_by_parameter(tensors), _names(optimizer, model)
    _check(memories, {name: parameter for parameter, name in names.items()})
    for group in optimizer.param_groups:
        step_on_device = bool(group.get("capturable") or group.get("fused"))
        for parameter in group["params"]:
            _restore(optimizer.state[parameter], memories.get(names[parameter], {}), parameter, step_on_device)


def _names(optimizer: Optimizer, model: nn.Module) -> dict[nn.Parameter, str]:
    """The names in the model of the parameters that the optimizer changes."""
    changed = {parameter for group in optimizer.param_groups for parameter in group["params"]}
    names = {parameter: name for name, parameter in model.named_parameters() if parameter in changed}
    if len(names) < len(changed):
        raise ValueError(f"{len(changed) - len(names)} parameters of the optimizer are not parameters of the model")
    return names


def _split_by_parameter(tensors: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """From flat names to what is remembered of each parameter."""
    memories: dict[str, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        if name.startswith(PREFIX):
            key, _, parameter = name.removeprefix(PREFIX).partition(".")
            memories.setdefault(parameter, {})[key] = value
    return memories


def _check(memories: Mapping[str, Mapping[str, Tensor]], parameters: Mapping[str, Tensor]) -> None:
    """Raises if these are memories of other parameters."""
    for name, memory in memories.items():
        if name not in parameters:
            raise ValueError(f"the checkpoint's optimizer knows a parameter {name!r}, which this model has not")
        for key, value in memory.items():
            given, expected = tuple(value.shape), tuple(parameters[name].shape)
            if key != "step" and given != expected:
                raise ValueError(f"the checkpoint's optimizer has {given} for {name}, which is {expected} here")


@torch.no_grad()
def _restore(memory: dict[str, Any], saved: Mapping[str, Tensor], parameter: Tensor, step_on_device: bool) -> None:
    """Makes what is remembered of one parameter equal to what was saved."""
    for key in memory.keys() - saved.keys():
        # Zero is where every memory of Adam starts.
        memory[key] = memory[key].zero_() if isinstance(memory[key], Tensor) else 0
    for key, value in saved.items():
        if not isinstance(memory.get(key), Tensor):
            if key == "step":
                memory[key] = torch.zeros((), device=parameter.device if step_on_device else "cpu")
            else:
                # Like the parameter also in the order of its elements, on which the speed of the update depends.
                memory[key] = torch.zeros_like(parameter, dtype=value.dtype)
        memory[key].copy_(value)
