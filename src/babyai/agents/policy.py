"""The policy contract: what training, evaluation and `Agent` require of a model, the paper's or your own.

A policy is a `torch.nn.Module` with two methods, and optionally a third:

    initial_state(n)            the recurrent state of n lanes at the start of an episode
    forward(observation, state) one step: logits, value, next state
    unroll(batch, state)        many steps at once, for policies that have a faster way than one step after the other

The state is any structure of tensors (dict, tuple, named tuple, dataclass) whose first dimension is the lane. It may
hold integers, need not start as zeros, and may be updated without gradients. docs/policies.md has two examples.
"""

from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from torch import Tensor

from babyai.batch import Batch, ObservationKind
from babyai.tree import tree_map

Observation = dict[str, Tensor]
State = Any


class Unrolled(NamedTuple):
    """A policy's outputs over a batch: logits (T, N, 7), values (T, N), and the state after the last step."""

    logits: Tensor
    values: Tensor
    state: State


class Policy(Protocol):
    """What every policy provides.

    Optional attributes and methods:

    * `cuda_graphs`, bool: whether it can be captured in a CUDA graph. Default: True.
    * `pixels`, bool: whether it reads RGB frames (56 x 56) instead of symbolic views. Default: False.
    * `best_worlds`, int: with how many worlds at once evaluation on a GPU is fastest. Default: `evaluate` chooses.
    * `float32_modules()`: the submodules whose weights stay in float32 when all others are converted to bf16. A policy
      that has it computes in the dtype of its weights; one without runs under `torch.autocast` in bf16.
    """

    def initial_state(self, n: int) -> State:
        """The state of n lanes before an episode's first step, on the policy's device."""
        ...

    def __call__(self, observation: Observation, state: State) -> tuple[Tensor, Tensor, State]:
        """One step of n lanes.

        Args:
            observation: `image` (n, 7, 7, 3) uint8, or (n, 56, 56, 3) pixels; `mission` (n, L) uint8 token ids, padded
                with 0; `direction` (n,); `last_action` (n,), -1 at the start of an episode.
            state: The state before the step, already reset where an episode starts.

        Returns:
            logits (n, 7), value (n,), and the state after the step.
        """
        ...


@runtime_checkable
class UnrollPolicy(Protocol):
    """A policy with a method of its own for many steps."""

    def unroll(self, batch: Batch, state: State) -> Unrolled:
        """T steps of N lanes.

        Must agree with `forward` step by step: before a step, the state of lanes that `batch.starts` marks is reset.
        """
        ...


def unroll(policy: Policy, batch: Batch, state: State, *, step_by_step: bool = False) -> Unrolled:
    """Runs a policy over a batch, by its own `unroll` if it has one; outputs are float32.

    Truncated backpropagation through time: gradients flow through the T steps, and not into `state`.

    Args:
        policy: Any policy.
        batch: Tensors on the policy's device.
        state: The state before the first step.
        step_by_step: Call `forward` for each step even so. Batch normalization then averages over one step.
    """
    if step_by_step or not isinstance(policy, UnrollPolicy):
        return unroll_steps(policy, batch, state)
    state = tree_map(torch.detach, state)
    logits, values, next_state = policy.unroll(batch, state)
    return Unrolled(logits.float(), values.float(), match_dtypes(next_state, state))


def unroll_steps(policy: Policy, batch: Batch, state: State) -> Unrolled:
    """Runs any policy one step after the other."""
    logits = []
    values = []
    state = tree_map(torch.detach, state)
    initial = policy.initial_state(batch.num_lanes)
    for step, starts in enumerate(batch.starts):
        step_logits, step_values, next_state = policy(batch.observation(step), reset_state(state, initial, starts))
        logits.append(step_logits.float())
        values.append(step_values.float())
        state = match_dtypes(next_state, state)
    return Unrolled(torch.stack(logits), torch.stack(values), state)


@torch.no_grad()
def new_state(policy: Policy, n: int) -> State:
    """The initial state of n lanes in memory of its own, which can be changed in place."""
    return tree_map(torch.clone, policy.initial_state(n))


def reset_state(state: State, initial: State, starts: Tensor) -> State:
    """The state with lanes replaced by their initial state where `starts` (N,) is true."""

    def reset(tensor: Tensor, first: Tensor) -> Tensor:
        return torch.where(starts.reshape(-1, *[1] * (tensor.ndim - 1)), first.to(tensor.dtype), tensor)

    return tree_map(reset, state, initial)


def match_dtypes(state: State, like: State) -> State:
    """The state in the dtypes of another one: in mixed precision, a step may return it in bf16."""
    return tree_map(lambda tensor, other: tensor.to(other.dtype), state, like)


@torch.no_grad()
def copy_state(target: State, source: State) -> None:
    """Copies a state in place, as a CUDA graph needs it."""
    tree_map(lambda place, value: place.copy_(value), target, source)


def allows_cuda_graphs(policy: Any) -> bool:
    """Whether a policy can be captured in a CUDA graph."""
    return bool(getattr(policy, "cuda_graphs", True))


def observation_kind(policy: Any) -> ObservationKind:
    """Whether a policy reads pixels or symbolic views."""
    return "rgb" if getattr(policy, "pixels", False) else "symbolic"
