"""The LSTM over a whole chunk, as one operation with its own gradient.

Run through autograd step by step, each step would add its share to the gradient of the weights. Here the steps only
pass on what flows back through time, and one product over all of them gives the weights' gradient at the end.
"""

from functools import cache
from typing import Any

import torch
from torch import Tensor

from babyai.agents.captured import compile_part


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
    states, h, c = _Recurrence.apply(inputs, h, c, ~first[..., None], weight, compiled)
    return states, torch.cat([h, c], 1)


class _Recurrence(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, inputs: Tensor, h: Tensor, c: Tensor, keep: Tensor, weight: Tensor, compiled: bool
    ) -> tuple[Tensor, Tensor, Tensor]:
        advance = _compile(_advance) if compiled else _advance
        gates, before, cells, states = [], [], [], []
        kept = (h * keep[0]).to(weight.dtype)
        for step, inputs_now in enumerate(inputs.unbind(0)):
            # What is cleared before the next step; after the last one nothing is.
            keep_next = keep[min(step + 1, len(keep) - 1)]
            before.append(kept)
            opened, cell, h, kept = advance(inputs_now, kept @ weight.T, c, keep[step], keep_next, weight.dtype)
            gates.append(opened)
            cells.append(c)
            states.append(h)
            c = cell
        ctx.save_for_backward(torch.stack(gates), torch.stack(before), torch.stack([*cells, c]), keep, weight)
        ctx.compiled = compiled
        return torch.stack(states), h, c

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        gates, before, cells, keep, weight = ctx.saved_tensors
        d_states, d_h, d_c = gradients
        retreat = _compile(_retreat) if ctx.compiled else _retreat
        flows: list[Tensor] = []
        for step in reversed(range(len(gates))):
            flow, d_c = retreat(
                *(gates[step], cells[step], cells[step + 1], keep[step], d_states[step], d_h, d_c, weight.dtype)
            )
            flows.append(flow)
            d_h = (flow @ weight).to(d_c.dtype) * keep[step]
        flows.reverse()
        flowed = torch.stack(flows)  # (T, N, 4 * D)
        d_weight = flowed.flatten(0, 1).T @ before.flatten(0, 1)
        return flowed, None, None, None, d_weight, None


def _advance(
    inputs: Tensor, recurrent: Tensor, c: Tensor, keep: Tensor, keep_next: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """One step: the gates as they opened, c, h, and what of h enters the next step."""
    gates = inputs.to(c.dtype) + recurrent
    enter, forget, candidate, leave = gates.chunk(4, 1)
    enter, forget, candidate, leave = enter.sigmoid(), forget.sigmoid(), candidate.tanh(), leave.sigmoid()
    cell = forget * (c * keep) + enter * candidate
    h = leave * cell.tanh()
    return torch.cat([enter, forget, candidate, leave], 1), cell, h, (h * keep_next).to(dtype)


def _retreat(
    gates: Tensor, c: Tensor, cell: Tensor, keep: Tensor, d_state: Tensor, d_h: Tensor, d_c: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """One step back: what flows to the gates before they opened, and to the c before the step."""
    enter, forget, candidate, leave = gates.chunk(4, 1)
    squashed = cell.tanh()
    d_h = d_h + d_state
    d_cell = d_c + d_h * leave * (1 - squashed**2)
    d_enter = d_cell * candidate * enter * (1 - enter)
    d_forget = d_cell * (c * keep) * forget * (1 - forget)
    d_candidate = d_cell * enter * (1 - candidate**2)
    d_leave = d_h * squashed * leave * (1 - leave)
    return torch.cat([d_enter, d_forget, d_candidate, d_leave], 1).to(dtype), d_cell * forget * keep


_compile = cache(compile_part)
