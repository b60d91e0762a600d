"""Recurrence over a whole chunk, with gradients of its own.

Run through autograd step by step, each step would add its share to the gradient of the weights. Here the steps only
pass on what flows back through time, and one product over all of them gives the weights' gradient at the end.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn import functional

from babyai.agents.captured import compile_part
from babyai.agents.model import pass_gates


def remember_all(inputs: Tensor, first: Tensor, memory: Tensor, weight: Tensor, compiled: bool = False) -> Any:
    """The states h of all steps, (T, N, D) float32, and the memory after the last one, (N, 2 * D).

    Args:
        inputs: (T, N, 4 * D), what the input and both biases contribute to the gates.
        first: (T, N) bool, where memory is cleared before the step.
        memory: (N, 2 * D) float32; gradients do not flow into it.
        weight: (4 * D, D), the recurrent weights.
        compiled: Have torch compile what happens between the products.
    """
    h, c = memory.detach().chunk(2, 1)
    states, h, c = _Recurrence.apply(inputs, h, c, what_to_keep(first), weight, compiled)
    return states, torch.cat([h, c], 1)


def what_to_keep(first: Tensor) -> Tensor:
    """Where memory is kept before each step and, everywhere, after the last: (T, N) -> (T + 1, N, 1) bool."""
    return functional.pad(~first, (0, 0, 0, 1), value=True)[..., None]


class SharedProduct:
    """A linear map that is used at many steps, and learns from all of them at once.

    Args:
        weight: (O, I).
        bias: (O,).
    """

    def __init__(self, weight: Tensor, bias: Tensor) -> None:
        self._shares: list[tuple[Tensor, Tensor] | None] = []
        self._weight, self._bias = _LearnAtOnce.apply(weight, bias, self._shares)

    def __call__(self, x: Tensor) -> Tensor:
        """x: (N, I) -> (N, O)."""
        self._shares.append(None)
        place = len(self._shares) - 1
        return _UseOnce.apply(x, self._weight, self._bias, self._shares, place)  # pyright: ignore[reportReturnType]


class _UseOnce(torch.autograd.Function):
    """Leaves its share of the gradient to `_LearnAtOnce`, which autograd calls after all uses."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, shares: list[Any], place: int) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.shares, ctx.place = shares, place
        return functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (flow,), (x, weight) = gradients, ctx.saved_tensors
        ctx.shares[ctx.place] = flow, x
        return flow @ weight, None, None, None, None


class _LearnAtOnce(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, bias: Tensor, shares: list[Any]) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        ctx.shares = shares
        return weight.view_as(weight), bias.view_as(bias)

    @staticmethod
    def backward(ctx: Any, *_: None) -> tuple[Tensor | None, ...]:
        shares = [share for share in ctx.shares if share is not None]
        ctx.shares[:] = [None] * len(ctx.shares)
        flows, inputs = (torch.cat(parts) for parts in zip(*shares, strict=True))
        return flows.T @ inputs, flows.sum(0), None


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, h: Tensor, c: Tensor, keep: Tensor, weight: Tensor, compiled: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        advance = _compile(_advance) if compiled else _advance
        recurrent, before, cells, states = torch.empty_like(inputs), [], [c], []
        kept = (h * keep[0]).to(weight.dtype)
        for step, inputs_now in enumerate(inputs.unbind(0)):
            before.append(kept)
            torch.mm(kept, weight.T, out=recurrent[step])
            c, h, kept = advance(inputs_now, recurrent[step], c, keep[step], keep[step + 1])
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
        retreat = _compile(_retreat) if ctx.compiled else _retreat
        flows: list[Tensor] = []
        d_kept = d_h.to(weight.dtype)
        for step in reversed(range(len(inputs))):
            flow, d_c = retreat(
                *(inputs[step], recurrent[step], cells[step], cells[step + 1]),
                *(keep[step], keep[step + 1], d_states[step], d_kept, d_c),
            )
            flows.append(flow)
            d_kept = flow @ weight
        flows.reverse()
        flowed = torch.stack(flows)  # (T, N, 4 * D)
        d_weight = flowed.flatten(0, 1).T @ before.flatten(0, 1)
        return flowed, None, None, None, d_weight, None


def _advance(
    inputs: Tensor, recurrent: Tensor, c: Tensor, keep: Tensor, keep_next: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One step: c, h, and what of h enters the next step."""
    h, cell = pass_gates(inputs.to(c.dtype) + recurrent, c * keep)
    return cell, h, (h * keep_next).to(recurrent.dtype)


def _retreat(
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
    """One step back: what flows to the gates before they opened, and to the c before the step.

    The gates are opened again, which costs less than to keep them.
    """
    enter, forget, candidate, leave = (inputs.to(c.dtype) + recurrent).chunk(4, 1)
    enter, forget, candidate, leave = enter.sigmoid(), forget.sigmoid(), candidate.tanh(), leave.sigmoid()
    squashed = cell.tanh()
    d_h = d_kept.to(c.dtype) * keep_next + d_state
    d_cell = d_c + d_h * leave * (1 - squashed**2)
    d_enter = d_cell * candidate * enter * (1 - enter)
    d_forget = d_cell * (c * keep) * forget * (1 - forget)
    d_candidate = d_cell * enter * (1 - candidate**2)
    d_leave = d_h * squashed * leave * (1 - leave)
    flow = torch.cat([d_enter, d_forget, d_candidate, d_leave], 1).to(recurrent.dtype)
    return flow, d_cell * forget * keep


_compile = cache(compile_part)
