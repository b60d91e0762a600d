"""Adam as both protocols use it, ready for CUDA graphs, and its state as named tensors that are never pickled."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.optim import Optimizer

# Appendices B and C of the paper.
BETAS = (0.9, 0.999)
EPSILON = 1e-5
# For the transformer that draws a map.
ADAMW_BETAS = (0.9, 0.98)
PREFIX = "optimizer."


def make_adam(model: nn.Module, learning_rate: float) -> torch.optim.Adam:
    """An Adam whose moments exist already, and whose learning rate `set_learning_rate` can change."""
    parameters = list(model.parameters())
    on_gpu = parameters[0].is_cuda
    # A CUDA graph reads the learning rate from the device, so that it can change between replays.
    rate = torch.tensor(learning_rate, device=parameters[0].device) if on_gpu else learning_rate
    adam = torch.optim.Adam(parameters, lr=rate, betas=BETAS, eps=EPSILON, fused=on_gpu, capturable=on_gpu)
    _create_moments(adam, parameters)
    return adam


def make_adamw(model: nn.Module, learning_rate: float, weight_decay: float) -> torch.optim.AdamW:
    """Like `make_adam`, but AdamW; vectors (biases, normalization) do not decay."""
    parameters = list(model.parameters())
    on_gpu = parameters[0].is_cuda
    rate = torch.tensor(0.0, device=parameters[0].device) if on_gpu else 0.0
    groups = [
        {"params": [parameter for parameter in parameters if parameter.ndim > 1]},
        {"params": [parameter for parameter in parameters if parameter.ndim <= 1], "weight_decay": 0.0},
    ]
    settings = {"betas": ADAMW_BETAS, "weight_decay": weight_decay, "fused": on_gpu, "capturable": on_gpu}
    adamw = torch.optim.AdamW(groups, lr=rate, **settings)
    _create_moments(adamw, parameters)
    set_learning_rate(adamw, learning_rate)
    return adamw


def _create_moments(optimizer: Optimizer, parameters: list[nn.Parameter]) -> None:
    # A step with zero gradients changes no weights, but creates the moments.
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    for state in optimizer.state.values():
        state["step"].zero_()
    optimizer.zero_grad()


def set_learning_rate(optimizer: Optimizer, learning_rate: float) -> None:
    """Changes the learning rate in place, so that CUDA graphs see it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate


def optimizer_state(optimizer: Optimizer) -> list[Tensor]:
    """All tensors of the optimizer's state."""
    return [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]


def save_optimizer(optimizer: Optimizer, model: nn.Module) -> dict[str, Tensor]:
    """The optimizer's state as named tensors, such as `optimizer.exp_avg.<parameter>`; not copies."""
    return {
        f"{PREFIX}{key}.{name}": value
        for name, parameter in model.named_parameters()
        for key, value in optimizer.state.get(parameter, {}).items()
    }


@torch.no_grad()
def load_optimizer(optimizer: Optimizer, model: nn.Module, tensors: Mapping[str, Tensor]) -> None:
    """Restores what `save_optimizer` returned, in place, because CUDA graphs keep using the same tensors.

    Args:
        optimizer: From `make_adam`, over the parameters of `model`.
        model: A model with the same parameters as the one that was saved.
        tensors: Named tensors; names that do not start with `optimizer.` are ignored.

    Raises:
        ValueError: They belong to another model.
    """
    own = save_optimizer(optimizer, model)
    saved = {name: tensor for name, tensor in tensors.items() if name.startswith(PREFIX)}
    if unknown := sorted(saved.keys() ^ own.keys()):
        raise ValueError(f"the checkpoint's optimizer does not fit this model: {unknown[0]} is only in one of them")
    for name, tensor in own.items():
        if tensor.shape != saved[name].shape:
            shapes = f"{tuple(saved[name].shape)}, not {tuple(tensor.shape)}"
            raise ValueError(f"the checkpoint's optimizer does not fit this model: {name} is {shapes}")
    for name, tensor in own.items():
        tensor.copy_(saved[name])
