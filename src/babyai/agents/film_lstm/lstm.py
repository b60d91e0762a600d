"""The LSTM: one step, and a scan over many steps with a hand-written gradient.

Left to autograd, each step would add its share to the gradient of the weights. Here the backward pass of a step only
computes the gradient that flows back through time, and one matrix product over all steps gives the weights' gradient.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional

from babyai.agents.compilation import compile_function


def lstm_step(cell: nn.LSTMCell, x: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """What `cell` computes, with h and c in float32 whatever the dtype of its weights."""
    dtype = cell.weight_ih.dtype
    inputs = functional.linear(x.to(dtype), cell.weight_ih, cell.bias_ih + cell.bias_hh)
    return lstm_gates(inputs.to(c.dtype) + functional.linear(h.to(dtype), cell.weight_hh), c)


def lstm_gates(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The new h and c, in the dtype of c; gates: (B, 4 * D), before the nonlinearities."""
    i, f, g, o = gates.to(c.dtype).chunk(4, 1)
    c = f.sigmoid() * c + i.sigmoid() * g.tanh()
    return o.sigmoid() * c.tanh(), c


def lstm_scan(
    inputs: Tensor, starts: Tensor, h: Tensor, c: Tensor, weight: Tensor, compiled: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs h of all steps, (T, N, D) float32, and h and c after the last one, (N, D).

    Args:
        inputs: (T, N, 4 * D), what the input and both biases contribute to the gates.
        starts: (T, N) bool, where the state is reset to zero before the step.
        h: (N, D) float32; gradients do not flow into it.
        c: (N, D) float32; gradients do not flow into it.
        weight: (4 * D, D), the recurrent weights.
        compiled: Compile the element-wise part of a step with torch.compile.
    """
    return _Scan.apply(inputs, h.detach(), c.detach(), keep_mask(starts), weight, compiled)  # pyright: ignore[reportReturnType]


def keep_mask(starts: Tensor) -> Tensor:
    """Where the state is kept before each step and, everywhere, after the last: (T, N) -> (T + 1, N, 1) bool."""
    return functional.pad(~starts, (0, 0, 0, 1), value=True)[..., None]


class SharedLinear:
    """A linear layer that is used at many steps; its weight gradient is one product over all of them.

    Args:
        weight: (O, I).
        bias: (O,).
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._shares: list[tuple[Tensor, Tensor] | None] = []
        self._weight, self._bias = _SharedWeights.apply(weight, bias, self._shares)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (N, I) -> (N, O)."""
        self._shares.append(None)
        place = len(self._shares) - 1
        return _SharedUse.apply(x, self._weight, self._bias, self._shares, place)  # pyright: ignore[reportReturnType]


class _SharedUse(torch.autograd.Function):
    """Leaves its share of the gradient to `_SharedWeights`, whose backward autograd runs after those of all uses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, shares: list[Any], place: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shares = shares
        ctx.place = place
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (grad,) = gradients
        x, weight = ctx.saved_tensors
        ctx.shares[ctx.place] = grad, x
        return grad @ weight, None, None, None, None


class _SharedWeights(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, shares: list[Any]) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.shares = shares
        return weight.view_as(weight), bias.view_as(bias)

    @staticmethod
    def backward(ctx: Any, *_: None) -> tuple[Tensor | None, ...]:
        shares = [share for share in ctx.shares if share is not None]
        ctx.shares[:] = [None] * len(ctx.shares)
        grads, inputs = (torch.cat(parts) for parts in zip(*shares, strict=True))
        return grads.T @ inputs, grads.sum(0), None


class _Scan(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, h: Tensor, c: Tensor, keep: Tensor, weight: Tensor, compiled: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        step_forward = compile_function(_step_forward) if compiled else _step_forward
        recurrent = torch.empty_like(inputs)
        before = []
        cells = [c]
        states = []
        kept = (h * keep[0]).to(weight.dtype)
        for step, inputs_now in enumerate(inputs.unbind(0)):
            before.append(kept)
            torch.mm(kept, weight.T, out=recurrent[step])
            c, h, kept = step_forward(inputs_now, recurrent[step], c, keep[step], keep[step + 1])
            cells.append(c)
            states.append(h)
        ctx.save_for_backward(inputs, recurrent, torch.stack(before), torch.stack(cells), keep, weight)
        ctx.compiled = compiled
        return torch.stack(states), h, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:  # pyright: ignore[reportIncompatibleMethodOverride]
        inputs, recurrent, before, cells, keep, weight = ctx.saved_tensors
        d_states, d_h, d_c = gradients
        step_backward = compile_function(_step_backward) if ctx.compiled else _step_backward
        d_gates_by_step: list[Tensor] = []
        d_kept = d_h.to(weight.dtype)
        for step in reversed(range(len(inputs))):
            d_gates, d_c = step_backward(
                *(inputs[step], recurrent[step], cells[step], cells[step + 1]),
                *(keep[step], keep[step + 1], d_states[step], d_kept, d_c),
            )
            d_gates_by_step.append(d_gates)
            d_kept = d_gates @ weight
        d_gates_by_step.reverse()
        d_inputs = torch.stack(d_gates_by_step)  # (T, N, 4 * D)
        d_weight = d_inputs.flatten(0, 1).T @ before.flatten(0, 1)
        return d_inputs, None, None, None, d_weight, None


def _step_forward(
    inputs: Tensor, recurrent: Tensor, c: Tensor, keep: Tensor, keep_next: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One step: c, h, and the h that enters the next step, zero where an episode starts."""
    h, cell = lstm_gates(inputs.to(c.dtype) + recurrent, c * keep)
    return cell, h, (h * keep_next).to(recurrent.dtype)


def _step_backward(
    inputs: Tensor,
    recurrent: Tensor,
    c: Tensor,
    cell: Tensor,
    keep: Tensor,
    keep_next: Tensor,
    d_state: Tensor,
    d_kept: Tensor,
    d_c: Tensor,
) -> tuple[Tensor, Tensor]:
    """The backward pass of one step: the gradients of the gates, before their nonlinearities, and of the c before it.

    The gates are computed again, which costs less than to store them.
    """
    i, f, g, o = (inputs.to(c.dtype) + recurrent).chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    tanh_cell = cell.tanh()
    d_h = d_kept.to(c.dtype) * keep_next + d_state
    d_cell = d_c + d_h * o * (1 - tanh_cell**2)
    d_i = d_cell * g * i * (1 - i)
    d_f = d_cell * (c * keep) * f * (1 - f)
    d_g = d_cell * i * (1 - g**2)
    d_o = d_h * tanh_cell * o * (1 - o)
    d_gates = torch.cat([d_i, d_f, d_g, d_o], 1).to(recurrent.dtype)
    return d_gates, d_cell * f * keep
