"""Adam as both protocols use it, ready to be recorded in a CUDA graph."""

import torch
from torch import Tensor, nn

from babyai.agents.precision import Working

# Appendices B and C of the paper.
BETAS = (0.9, 0.999)
EPSILON = 1e-5


def make_adam(model: nn.Module, learning_rate: float) -> torch.optim.Adam:
    """An Adam whose state exists already, and whose rate can be changed by `set_learning_rate`."""
    parameters = list(model.parameters())
    on_gpu = parameters[0].is_cuda
    # A recording reads the rate from the device, so that it can change between replays.
    rate = torch.tensor(learning_rate, device=parameters[0].device) if on_gpu else learning_rate
    adam = torch.optim.Adam(parameters, lr=rate, betas=BETAS, eps=EPSILON, fused=on_gpu, capturable=on_gpu)
    # A step without gradient changes nothing, but makes the averages.
    for parameter in parameters:
        parameter.grad = torch.zeros_like(parameter)
    adam.step()
    for state in adam.state.values():
        state["step"].zero_()
    adam.zero_grad()
    return adam


def set_learning_rate(optimizer: torch.optim.Optimizer, learning_rate: float) -> None:
    """Changes the rate, also where a recording reads it."""
    for group in optimizer.param_groups:
        if isinstance(group["lr"], Tensor):
            group["lr"].fill_(learning_rate)
        else:
            group["lr"] = learning_rate


def find_gradients(loss: Tensor, working: Working) -> None:
    """Gives the weights that are kept the gradients of a loss."""
    working.forget_gradients()
    loss.backward()
    working.hand_back()


def descend(working: Working, optimizer: torch.optim.Optimizer) -> None:
    """One step of the optimizer down the gradients."""
    optimizer.step()
    working.refresh()


def learning_state(working: Working, optimizer: torch.optim.Optimizer) -> list[Tensor]:
    """All that a step of learning changes in a model and its optimizer."""
    moments = [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    return [*working.kept.parameters(), *working.kept.buffers(), *working.tensors(), *moments]
