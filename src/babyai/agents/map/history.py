"""The map agent's history: how often it has taken each action in the state that it is in.

An agent that always takes the most probable action can go around in circles: it turns left, sees no reason to have done
so, and turns back. A repetition penalty makes what it has already done in a state less probable there.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from babyai.world.codes import NUM_ACTIONS

# Steps that are remembered; circles are much shorter.
HISTORY_SIZE = 256
# The counts are stored as int8.
MAX_COUNT = 127
# What each time that an action was taken in a state takes from its logit there.
REPETITION_PENALTY = 2.0


class History(NamedTuple):
    """The last steps of N episodes, in a ring."""

    states: Tensor
    """(N, 256) int64, hashes of the states in which an action was taken."""
    actions: Tensor
    """(N, 256) int8, the action; -1 for steps that have not been made."""
    state: Tensor
    """(N,) int64, the hash of the current state."""
    counts: Tensor
    """(N, 7) int8, how often each action was taken in the current state."""


def new_history(n: int, device: torch.device | str = "cpu") -> History:
    """The history of n episodes before their first observation."""
    states = torch.zeros((n, HISTORY_SIZE), dtype=torch.long, device=device)
    counts = torch.zeros((n, NUM_ACTIONS), dtype=torch.int8, device=device)
    return History(states, torch.full_like(states, -1, dtype=torch.int8), states[:, 0].clone(), counts)


def extend_history(history: History, time: Tensor, action: Tensor, state: Tensor) -> History:
    """The history after a step.

    Args:
        history: Before it.
        time: (N,) steps since the start, this one included.
        action: (N,) the action that was taken; -1 at the start of an episode.
        state: (N,) the hash of the state that it led to.
    """
    slots = torch.arange(HISTORY_SIZE, device=state.device)
    is_last = slots == (time % HISTORY_SIZE)[:, None]
    states = torch.where(is_last, history.state[:, None], history.states)
    actions = torch.where(is_last, action[:, None].to(torch.int8), history.actions)
    was_here = states == state[:, None]
    counts = [(was_here & (actions == each)).sum(1).clamp(max=MAX_COUNT) for each in range(NUM_ACTIONS)]
    return History(states, actions, state, torch.stack(counts, 1).to(torch.int8))


def penalize_repetition(logits: Tensor, counts: Tensor) -> Tensor:
    """The logits (B, 7) of actions, reduced by how often each was taken in the same state, (B, 7).

    However sure the network is, an action that has led nowhere will at last be less probable than another. So an agent
    that takes the most probable action cannot go around in the same circle forever.
    """
    return logits - REPETITION_PENALTY * counts


def hash_parts(parts: list[Tensor], coefficients: Tensor) -> Tensor:
    """(N,) int64 hashes of integers (N, ...): a linear combination modulo 2^64.

    Args:
        parts: The integers.
        coefficients: (M,) int64, odd and random, at least one for each integer.
    """
    values = torch.cat([part.flatten(1).long() for part in parts], 1)
    return (values * coefficients[: values.shape[1]]).sum(1)


def make_coefficients(count: int) -> Tensor:
    """(count,) int64 for `hash_parts`, always the same."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(-(2**62), 2**62, (count,), generator=generator) * 2 + 1
