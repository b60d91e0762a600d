"""Rollouts: what is recorded is what the worlds showed, what the policy did, and what it remembered."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from babyai.agents.config import AgentConfig
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.policy import reset_state, unroll_steps
from babyai.agents.precision import MixedPrecision
from babyai.engine import Engine
from babyai.render.blit import rgb_views
from babyai.training.options import PPOHyperparameters
from babyai.training.ppo import PPO
from babyai.training.rollout import Collector, Rollout
from babyai.tree import tree_leaves
from tests.training.tiny import Tiny, TwoMemories


def make_collector(policy: nn.Module, engine: Engine, steps: int, recurrence: int, seed: int = 0) -> Collector:
    return Collector(MixedPrecision(policy), engine, steps, recurrence, seed=seed)


def make_engine(count: int, seed: int, levels: Any = "GoToObjS4") -> Engine:
    engine = Engine(levels, count)
    engine.reset(seed)
    return engine


@pytest.mark.parametrize("levels", [["GoToObjS4"], ["GoToObjS4", "GoToRedBallGrey"]], ids=["one level", "two levels"])
def test_rollouts_are_what_the_worlds_showed(levels: list[str]) -> None:
    torch.manual_seed(0)
    twin = make_engine(5, 30, levels)
    collector = make_collector(Tiny(), make_engine(5, 30, levels), 40, 20, seed=3)
    starts = np.ones(5, dtype=bool)
    before = np.full(5, -1)
    returns = np.zeros(5)
    lengths = np.zeros(5, dtype=int)
    num_ended = 0
    for _ in range(3):
        rollout = collector.collect()
        batch = rollout.batch
        ended_returns = []
        ended_lengths = []
        for t in range(40):
            assert np.array_equal(batch.images[t], twin.images) and np.array_equal(batch.directions[t], twin.directions)
            assert np.array_equal(batch.missions[batch.mission_index[t]], twin.missions)
            assert np.array_equal(batch.starts[t], starts)
            assert np.array_equal(batch.last_actions[t], np.where(starts, -1, before))
            assert np.array_equal(batch.levels[t], twin.worlds.level) and np.array_equal(
                batch.seeds[t], twin.worlds.seed
            )
            before = batch.actions[t].astype(int)
            twin.step(before)
            assert np.array_equal(batch.rewards[t], twin.rewards.astype(np.float32))
            assert np.array_equal(batch.terminated[t], twin.terminated)
            assert np.array_equal(batch.truncated[t], twin.truncated)
            returns += twin.rewards
            lengths += 1
            starts = twin.reset_done()
            ended_returns += returns[starts].tolist()
            ended_lengths += lengths[starts].tolist()
            returns[starts] = 0.0
            lengths[starts] = 0
        assert set(batch.mission_index.flatten().tolist()) == set(range(len(batch.missions)))
        assert rollout.returns == pytest.approx(ended_returns) and rollout.lengths == ended_lengths
        num_ended += len(ended_returns)
    assert num_ended > 10


def play_again(policy: Any, rollouts: list[Rollout], recurrence: int) -> list[tuple[list[Any], np.ndarray, np.ndarray]]:
    """The state before each chunk, log probabilities and values, one step after the other without interruption."""
    count = rollouts[0].batch.num_lanes
    initial = policy.initial_state(count)
    state = policy.initial_state(count)
    played = []
    with torch.no_grad():
        for rollout in rollouts:
            batch = rollout.batch.map(torch.from_numpy)
            states = []
            log_probs = []
            values = []
            for t in range(batch.num_steps):
                if t % recurrence == 0:
                    states.append(state)
                logits, value, state = policy(batch.observation(t), reset_state(state, initial, batch.starts[t]))
                log_probs.append(logits.log_softmax(1).gather(1, batch.actions[t].long()[:, None])[:, 0].numpy())
                values.append(value.numpy())
            played.append((states, np.stack(log_probs), np.stack(values)))
    return played


@pytest.mark.parametrize("kind", ["own", "own with a dict as state", "paper", "big"])
def test_what_is_recorded_of_the_policy_is_what_it_computes(kind: str) -> None:
    """With batch normalization in evaluation mode, so that it does not matter who else is in the batch."""
    torch.manual_seed(0)
    small: dict[str, Any] = {"memory_dim": 12, "last_action": True, "direction": True}
    policy = {
        "own": Tiny,
        "own with a dict as state": TwoMemories,
        "paper": lambda: FilmLSTM(AgentConfig.of(**small)),
        "big": lambda: FilmLSTM(AgentConfig.of(size="big", word_dim=16, **small)),
    }[kind]().eval()
    collector = make_collector(policy, make_engine(3, 0), 12, 4)
    rollouts = [collector.collect() for _ in range(6 if "own" in kind else 2)]
    assert any(rollout.batch.starts[1:].any() for rollout in rollouts)
    for rollout, (states, log_probs, values) in zip(rollouts, play_again(policy, rollouts, 4), strict=True):
        assert len(rollout.states) == len(states) == 3
        for recorded, expected in zip(tree_leaves(rollout.states), tree_leaves(states), strict=True):
            torch.testing.assert_close(recorded, expected, atol=1e-4, rtol=1e-4)
        assert rollout.batch.log_probs == pytest.approx(log_probs, abs=1e-4)
        assert rollout.batch.values == pytest.approx(values, abs=1e-4)
    # The value after the last step is the first one of the next rollout.
    assert rollouts[0].last_values == pytest.approx(rollouts[1].batch.values[0], abs=1e-5)


def test_actions_are_sampled_from_the_policy() -> None:
    torch.manual_seed(0)
    policy = Tiny()
    nn.init.normal_(policy.actor.bias)
    rollout = make_collector(policy, make_engine(64, 0), 40, 40, seed=1).collect()
    with torch.no_grad():
        logits = unroll_steps(policy, rollout.batch.map(torch.from_numpy), rollout.states[0]).logits
    expected = logits.softmax(2).sum((0, 1)).numpy()
    counts = np.bincount(rollout.batch.actions.ravel(), minlength=7)
    assert expected.max() > 3 * expected.min() and (abs(counts - expected) < 4 * np.sqrt(expected)).all()


def test_batch_normalization_updates_its_statistics_while_acting() -> None:
    """As in the authors' code."""
    torch.manual_seed(0)
    policy = FilmLSTM(AgentConfig.of(memory_dim=8)).eval()
    ppo = PPO(policy, make_engine(4, 7), PPOHyperparameters(worlds=4, steps=4, recurrence=4))
    assert policy.training
    means = []
    policy.image_encoder.register_forward_hook(
        lambda *_: means.append(policy.film1.get_buffer("norm2.running_mean").clone())
    )
    ppo.collector.collect()
    # One batch per step, and one for the value after the last.
    assert len(means) == 5 and not any(torch.equal(*pair) for pair in itertools.pairwise(means))


def test_pixels_are_those_of_the_symbolic_views() -> None:
    torch.manual_seed(0)
    twin = make_engine(2, 0)
    policy = FilmLSTM(AgentConfig.of("pixels_endpool_res", memory_dim=8))
    rollout = make_collector(policy, make_engine(2, 0), 3, 3).collect()
    for t in range(3):
        assert np.array_equal(rollout.batch.images[t], rgb_views(twin.images))
        twin.step(rollout.batch.actions[t].astype(int))
        twin.reset_done()
