"""The policy contract: unrolling any policy, with any state, equals playing each lane's episodes on their own."""

from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from babyai.agents.config import AgentConfig
from babyai.agents.custom import check_contract
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.policy import (
    Unrolled,
    copy_state,
    match_dtypes,
    observation_kind,
    reset_state,
    unroll,
    unroll_steps,
)
from babyai.batch import Batch
from babyai.tree import tree_leaves, tree_map
from tests.agents.own_policies import POLICIES, ClockAndMap, LearnedStart, OwnUnroll, Recurrent
from tests.agents.random_batches import N, T, gradients, random_batch


def play_lane(policy: Recurrent, batch: Batch, lane: int, state: Any) -> tuple[list[Tensor], list[Tensor], Any]:
    """One lane alone, one step after the other; at the start of an episode its state is a new initial one."""
    logits = []
    values = []
    for step in range(T):
        if batch.starts[step, lane]:
            state = policy.initial_state(1)
        observation = {
            "image": batch.images[step, lane][None],
            "mission": batch.missions[int(batch.mission_index[step, lane])][None],
            "direction": batch.directions[step, lane][None],
            "last_action": batch.last_actions[step, lane][None],
        }
        step_logits, step_value, state = policy(observation, state)
        logits.append(step_logits[0])
        values.append(step_value[0])
    return logits, values, state


def play_lanes(policy: Recurrent, batch: Batch, state: Any) -> Unrolled:
    lanes = [
        play_lane(policy, batch, lane, tree_map(lambda part, lane=lane: part[lane : lane + 1], state))
        for lane in range(N)
    ]
    logits = torch.stack([torch.stack(logits) for logits, _, _ in lanes], 1)
    values = torch.stack([torch.stack(values) for _, values, _ in lanes], 1)
    return Unrolled(logits, values, tree_map(lambda *parts: torch.cat(parts), *(state for _, _, state in lanes)))


def state_after_some_steps(policy: Recurrent) -> Any:
    """Not the initial state."""
    with torch.no_grad():
        state = policy.initial_state(N)
        for step in range(3):
            _, _, state = policy(random_batch(seed=1).observation(step), state)
    return state


@pytest.mark.parametrize("own", POLICIES)
@pytest.mark.parametrize("way", [unroll, unroll_steps])
def test_unrolling_equals_playing_each_lane_alone(own: type[Recurrent], way: Any) -> None:
    torch.manual_seed(0)
    policy = own()
    check_contract(policy)
    batch = random_batch()
    state = state_after_some_steps(policy)
    expected = play_lanes(policy, batch, state)
    given = way(policy, batch, state)
    torch.testing.assert_close(given.logits, expected.logits)
    torch.testing.assert_close(given.values, expected.values)
    torch.testing.assert_close(tree_leaves(given.state), tree_leaves(expected.state))
    assert type(given.state) is type(state)
    expected_gradients = gradients(policy, expected.logits, expected.values)
    given_gradients = gradients(policy, given.logits, given.values)
    assert given_gradients.keys() == expected_gradients.keys()
    torch.testing.assert_close(given_gradients, expected_gradients, atol=1e-6, rtol=1e-4)


def test_a_learned_initial_state_gets_a_gradient_from_the_episodes_that_start() -> None:
    policy = LearnedStart()
    batch = random_batch()
    assert batch.starts.any()
    state = policy.initial_state(N).detach()
    unroll(policy, batch, state).logits.sum().backward()
    assert policy.start.grad is not None
    assert policy.start.grad.abs().sum() > 0
    policy.zero_grad()
    batch.starts = torch.zeros_like(batch.starts)
    unroll(policy, batch, state).logits.sum().backward()
    assert policy.start.grad is None or policy.start.grad.abs().sum() == 0


def test_a_policys_own_unroll_is_used_unless_step_by_step() -> None:
    policy = OwnUnroll()
    batch = random_batch()
    unroll(policy, batch, (), step_by_step=True)
    unroll_steps(policy, batch, ())
    assert policy.unrolled_batches == 0
    unroll(policy, batch, ())
    assert policy.unrolled_batches == 1


@pytest.mark.parametrize("step_by_step", [False, True])
@pytest.mark.parametrize(
    "policy",
    [Recurrent(), FilmLSTM(AgentConfig.of(memory_dim=8)), FilmLSTM(AgentConfig.of(size="big", memory_dim=8))],
    ids=["own", "small", "big"],
)
def test_no_gradient_flows_into_the_state_before_a_batch(policy: Any, step_by_step: bool) -> None:
    state = tree_map(lambda part: torch.randn_like(part).requires_grad_(), policy.initial_state(N))
    unroll(policy, random_batch(), state, step_by_step=step_by_step).logits.sum().backward()
    assert [leaf.grad for leaf in tree_leaves(state)] == [None] * len(tree_leaves(state))


# ------------------------------------------------------------ states


class Pair(NamedTuple):
    vector: Tensor
    count: Tensor


def test_resetting_replaces_the_lanes_that_start_whatever_the_shapes_and_dtypes() -> None:
    state = {"pair": Pair(torch.zeros(3, 2), torch.tensor([7, 8, 9])), "map": torch.zeros(3, 2, 2, dtype=torch.uint8)}
    initial = {"pair": Pair(torch.ones(3, 2), torch.tensor([100] * 3)), "map": torch.full((3, 2, 2), 5)}
    reset = reset_state(state, initial, torch.tensor([False, True, False]))
    assert isinstance(reset["pair"], Pair)
    assert reset["pair"].vector.tolist() == [[0, 0], [1, 1], [0, 0]]
    assert reset["pair"].count.tolist() == [7, 100, 9]
    assert reset["map"][:, 0, 0].tolist() == [0, 5, 0]
    assert reset["map"].dtype == torch.uint8
    assert state["pair"].count.tolist() == [7, 8, 9], "the state itself is unchanged"


def test_integers_in_a_state_count_exactly_across_episodes() -> None:
    policy = ClockAndMap()
    batch = random_batch()
    unrolled = unroll(policy, batch, policy.initial_state(N))
    clock, seen = unrolled.state["memory"]
    for lane in range(N):
        starts = [step for step in range(T) if batch.starts[step, lane]]
        first = max(starts, default=0)
        assert clock[lane] == 100 - (T - first)
        assert torch.equal(seen[lane], batch.images[first:, lane, :, :, 0].amax(0).short())
    assert clock.dtype == torch.int64
    assert seen.dtype == torch.int16


def test_a_state_can_be_copied_in_place_and_cast() -> None:
    target = {"a": torch.zeros(2), "b": (torch.zeros(2, dtype=torch.int64),)}
    vector = target["a"]
    source = {"a": torch.ones(2, requires_grad=True), "b": (torch.tensor([3, 4]),)}
    copy_state(target, source)
    assert vector.tolist() == [1, 1]
    assert target["b"][0].tolist() == [3, 4]
    assert not vector.requires_grad
    halved = tree_map(lambda part: part.bfloat16(), source)
    assert [leaf.dtype for leaf in tree_leaves(match_dtypes(halved, target))] == [torch.float32, torch.int64]


def test_the_kind_of_observation_is_the_policys_choice() -> None:
    class Watcher(Recurrent):
        pixels = True

    assert observation_kind(Recurrent()) == "symbolic"
    assert observation_kind(Watcher()) == "rgb"
    assert observation_kind(FilmLSTM(AgentConfig.of("pixels_endpool_res"))) == "rgb"
    assert observation_kind(FilmLSTM(AgentConfig.of("original"))) == "symbolic"
