"""PPO: it learns, and its formulas are the paper's."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from babyai.agents.config import AgentConfig
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.policy import reset_state, unroll_steps
from babyai.engine import Engine
from babyai.training.options import PPOHyperparameters
from babyai.training.ppo import FIELDS, METRICS, PPO, estimate_advantages, ppo_loss, train
from babyai.training.rollout import Rollout
from babyai.tree import tree_map
from tests.training.same import newest
from tests.training.short_runs import Pretend, ppo_options
from tests.training.tiny import Tiny, TwoMemories

SMALL = PPOHyperparameters(worlds=6, steps=12, recurrence=4)
# One gradient step on the whole rollout.
ONE_STEP = replace(SMALL, minibatches=1, epochs=1)


def make_ppo(hyper: PPOHyperparameters = SMALL, policy: nn.Module | None = None, **options: Any) -> PPO:
    torch.manual_seed(0)
    engine = Engine("GoToObjS4", hyper.worlds)
    engine.reset(7)
    return PPO(policy or Tiny(), engine, hyper, **options)


# ------------------------------------------------------------ it learns


def test_it_learns(tmp_path: Path) -> None:
    more = {"worlds": 16, "steps": 20, "recurrence": 10, "epochs": 4, "frames": 9600}
    rows = train(ppo_options(tmp_path / "run", **more, learning_rate=3e-3)).run.rows()
    assert len(rows) == 3
    # A random policy often succeeds in so small a room, but late.
    assert rows[0]["return"] < 0.4 < 0.65 < rows[-1]["return"]
    assert rows[-1]["success"] > 0.9 and rows[-1]["length"] < 0.5 * rows[0]["length"]


def test_better_actions_become_likelier_for_the_papers_agent() -> None:
    """On one rollout, again and again: probabilities move with the advantages, and values toward the returns."""
    torch.manual_seed(0)
    policy = FilmLSTM(AgentConfig.of(memory_dim=16))
    hyper = PPOHyperparameters(
        worlds=4, steps=4, recurrence=4, minibatches=1, epochs=12, entropy_coef=0.0, learning_rate=1e-3
    )
    ppo = make_ppo(hyper, policy)
    rollout = ppo.collector.collect()
    advantages = np.ones((4, 4), dtype=np.float32)
    advantages[:, 2:] = -1.0
    log_probs, values = evaluate_policy(policy, rollout)
    learn_from(ppo, rollout, advantages)
    new_log_probs, new_values = evaluate_policy(policy, rollout)
    moved = (select_actions(new_log_probs, rollout) - select_actions(log_probs, rollout)).mean(0)
    assert moved[:2].mean() > 0.02 and moved[2:].mean() < -0.02
    returns = rollout.batch.values + advantages
    assert np.square(new_values - returns).mean() < 0.9 * np.square(values - returns).mean()


def evaluate_policy(policy: Any, rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
    """Log probabilities (T, N, 7) and values (T, N) of a rollout that starts episodes; the policy is not changed."""
    saved = {name: value.clone() for name, value in policy.state_dict().items()}
    with torch.no_grad():
        unrolled = unroll_steps(policy, rollout.batch.map(torch.from_numpy), rollout.states[0])
    policy.load_state_dict(saved)
    return unrolled.logits.log_softmax(2).numpy(), unrolled.values.numpy()


def select_actions(log_probs: np.ndarray, rollout: Rollout) -> np.ndarray:
    """The log probabilities of the actions that were taken."""
    return np.take_along_axis(log_probs, rollout.batch.actions[..., None].astype(int), 2)[..., 0]


def learn_from(ppo: PPO, rollout: Rollout, advantages: np.ndarray) -> None:
    """What `update` does after playing, with other advantages."""
    batch = replace(rollout.batch, advantages=advantages).only(FIELDS)
    chunks = batch.split_steps(ppo.hyper.recurrence).map(torch.from_numpy)
    states = tree_map(lambda *parts: torch.cat(parts), *rollout.states)
    ppo._learn_epochs(torch.from_numpy(ppo._draw_minibatches()), replace(chunks, state=states))


# ------------------------------------------------------------ advantages


def make_up_rollout(seed: int, steps: int, worlds: int) -> Rollout:
    generator = np.random.default_rng(seed)
    rollout = make_ppo(PPOHyperparameters(worlds=worlds, steps=steps, recurrence=1, minibatches=1)).collector.collect()
    rollout.batch.rewards[:] = generator.normal(size=(steps, worlds))
    rollout.batch.terminated[:] = generator.random((steps, worlds)) < 0.1
    rollout.batch.truncated[:] = generator.random((steps, worlds)) < 0.1
    rollout.batch.values[:] = generator.normal(size=(steps, worlds))
    rollout.last_values[:] = generator.normal(size=worlds)
    return rollout


@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_discounted_sums_of_temporal_differences(seed: int) -> None:
    """Against the definition, one sum for each step."""
    steps = 9
    worlds = 4
    rollout = make_up_rollout(seed, steps, worlds)
    hyper = PPOHyperparameters(worlds=worlds, steps=steps, recurrence=1, discount=0.9, gae_lambda=0.7, reward_scale=20)
    batch = rollout.batch
    advantages = estimate_advantages(rollout, hyper)
    values = np.concatenate([batch.values, rollout.last_values[None]]).astype(float)
    # After success as after the time limit: nothing is expected after the end of an episode.
    done = batch.terminated | batch.truncated
    for world in range(worlds):
        for start in range(steps):
            expected = 0.0
            weight = 1.0
            for t in range(start, steps):
                next_value = 0.0 if done[t, world] else 0.9 * values[t + 1, world]
                expected += weight * (20 * float(batch.rewards[t, world]) + next_value - values[t, world])
                if done[t, world]:
                    break
                weight *= 0.9 * 0.7
            assert advantages[start, world] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_the_time_limit_counts_as_an_end() -> None:
    hyper = PPOHyperparameters(worlds=6, steps=80, recurrence=80)
    rollout = make_ppo(hyper).collector.collect()
    late = rollout.batch.truncated
    assert late.any() and not rollout.batch.rewards[late].any()
    assert estimate_advantages(rollout, hyper)[late] == pytest.approx(-rollout.batch.values[late], abs=1e-5)


# ------------------------------------------------------------ loss


def play_with_another_policy(ppo: PPO) -> tuple[Rollout, np.ndarray]:
    """A rollout and advantages, as if policy and critic had been others then, so that clipping matters."""
    generator = np.random.default_rng(0)
    rollout = ppo.collector.collect()
    shape = rollout.batch.values.shape
    rollout.batch.log_probs += generator.normal(scale=0.3, size=shape).astype(np.float32)
    rollout.batch.values += generator.normal(scale=0.4, size=shape).astype(np.float32)
    return rollout, generator.normal(size=shape).astype(np.float32)


def test_the_loss_is_the_papers() -> None:
    """Against loops over single frames in double precision."""
    hyper = replace(ONE_STEP, entropy_coef=0.03, value_coef=0.4)
    ppo = make_ppo(hyper)
    rollout, advantages = play_with_another_policy(ppo)
    batch = rollout.batch
    log_probs, values = evaluate_policy(ppo.learner.policy, rollout)
    policy_losses = []
    value_losses = []
    entropies = []
    clipped_ratios = 0
    clipped_values = 0
    for t in range(SMALL.steps):
        for n in range(SMALL.worlds):
            row = log_probs[t, n].astype(np.float64)
            advantage = float(advantages[t, n])
            old_value = float(batch.values[t, n])
            value = float(values[t, n])
            ratio = np.exp(row[batch.actions[t, n]] - float(batch.log_probs[t, n]))
            clipped_ratio = min(max(ratio, 0.8), 1.2)
            clipped_ratios += clipped_ratio != ratio
            policy_losses.append(-min(ratio * advantage, clipped_ratio * advantage))
            target = old_value + advantage
            clipped_value = old_value + min(max(value - old_value, -0.2), 0.2)
            clipped_values += clipped_value != value
            value_losses.append(max((value - target) ** 2, (clipped_value - target) ** 2))
            entropies.append(-(np.exp(row) * row).sum())
    assert min(clipped_ratios, clipped_values) > 10
    arrays = (log_probs, values, batch.actions, batch.log_probs, batch.values, advantages)
    loss, _ = ppo_loss(hyper, *map(torch.from_numpy, arrays))
    expected = np.mean(policy_losses) + 0.4 * np.mean(value_losses) - 0.03 * np.mean(entropies)
    assert float(loss) == pytest.approx(expected, rel=1e-4)
    # The gradient step on the same rollout reports the same.
    learn_from(ppo, rollout, advantages)
    metrics = ppo.learner.metrics()
    assert metrics["policy_loss"] == pytest.approx(np.mean(policy_losses), rel=1e-4)
    assert metrics["value_loss"] == pytest.approx(np.mean(value_losses), rel=1e-4)
    assert metrics["entropy"] == pytest.approx(np.mean(entropies), rel=1e-4)
    assert metrics["value"] == pytest.approx(values.mean(), rel=1e-3, abs=1e-4)
    assert metrics.keys() == {*METRICS, "gradient_norm"} and ppo.learner.metrics()["value_loss"] == 0


@pytest.mark.parametrize("make_policy", [Tiny, TwoMemories])
@pytest.mark.parametrize("max_norm", [0.01, 100.0], ids=["clipped", "not clipped"])
def test_a_gradient_step_descends_the_gradient_of_that_loss(max_norm: float, make_policy: Any) -> None:
    """With plain gradient descent instead of Adam, against torch's gradient of the loss written out."""
    torch.manual_seed(0)
    policy = make_policy()
    ppo = make_ppo(replace(ONE_STEP, max_grad_norm=max_norm), policy)
    rollout, advantages = play_with_another_policy(ppo)
    before = {name: value.clone() for name, value in policy.named_parameters()}
    loss = compute_plain_loss(policy, rollout, torch.from_numpy(advantages), SMALL.recurrence)
    gradients = torch.autograd.grad(loss, list(policy.parameters()))
    norm = torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt().item()
    assert 0.01 < norm < 100.0
    ppo.learner.optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)  # pyright: ignore[reportAttributeAccessIssue]
    learn_from(ppo, rollout, advantages)
    assert ppo.learner.metrics()["gradient_norm"] == pytest.approx(norm, rel=1e-4)
    for (name, value), gradient in zip(policy.named_parameters(), gradients, strict=True):
        step = before[name] - value.detach()
        torch.testing.assert_close(step, gradient * min(1.0, max_norm / norm), atol=1e-6, rtol=1e-3, msg=name)


def compute_plain_loss(policy: Any, rollout: Rollout, advantages: Tensor, recurrence: int) -> Tensor:
    """Step by step, chunk by chunk: the mean over steps of policy loss + 0.5 value loss - 0.01 entropy."""
    batch = rollout.batch.map(torch.from_numpy)
    initial = policy.initial_state(batch.num_lanes)
    losses = []
    for chunk, state in enumerate(rollout.states):
        for t in range(chunk * recurrence, (chunk + 1) * recurrence):
            logits, values, state = policy(batch.observation(t), reset_state(state, initial, batch.starts[t]))
            distribution = torch.distributions.Categorical(logits=logits)
            old_values = batch.values[t]
            ratio = torch.exp(distribution.log_prob(batch.actions[t].long()) - batch.log_probs[t])
            surrogate = torch.minimum(ratio * advantages[t], torch.clamp(ratio, 0.8, 1.2) * advantages[t])
            target = old_values + advantages[t]
            clipped = old_values + torch.clamp(values - old_values, -0.2, 0.2)
            value_loss = torch.maximum((values - target).pow(2), (clipped - target).pow(2)).mean()
            losses.append(-surrogate.mean() + 0.5 * value_loss - 0.01 * distribution.entropy().mean())
    return torch.stack(losses).mean()


def test_an_update_learns_from_its_rollout() -> None:
    """`update` is playing, estimating advantages and learning in chunks."""
    whole = make_ppo()
    parts = make_ppo()
    for _ in range(2):
        rollout = whole.update()
        expected = parts.collector.collect()
        learn_from(parts, expected, estimate_advantages(expected, SMALL))
        assert np.array_equal(rollout.batch.actions, expected.batch.actions)
        assert np.array_equal(rollout.batch.values, expected.batch.values)
    for one, other in zip(whole.learner.policy.parameters(), parts.learner.policy.parameters(), strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


# ------------------------------------------------------------ minibatches


def test_each_epoch_is_a_new_permutation_of_the_chunks() -> None:
    minibatches = make_ppo()._draw_minibatches()
    assert minibatches.shape == (8, 9) and SMALL.num_chunks == 18
    epochs = minibatches.reshape(4, 18)
    assert all(sorted(epoch) == list(range(18)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 4


def test_chunks_are_consecutive_steps_of_one_world() -> None:
    batch = make_ppo().collector.collect().batch
    batch.seeds[:] = np.arange(12)[:, None] * 100 + np.arange(6)  # step * 100 + world
    chunks = batch.split_steps(4).seeds  # (4, 18)
    for chunk in range(18):
        start = 4 * (chunk // 6)
        world = chunk % 6
        assert chunks[:, chunk].tolist() == [100 * (start + t) + world for t in range(4)]


# ------------------------------------------------------------ runs


def test_rows_report_what_happened(tmp_path: Path, pretend: Pretend) -> None:
    calls = pretend([0.25, 0.5, 0.4])
    session = train(ppo_options(tmp_path / "run", validation_episodes=5))
    rows = session.run.rows()
    assert [(row["update"], row["frames"]) for row in rows] == [(10, 320), (20, 640), (30, 960)]
    # Always the same validation episodes.
    assert calls == [("GoToObjS4", 10**9)] * 3
    assert [row["validation"] for row in rows] == [0.25, 0.5, 0.4] and session.best_success == 0.5
    assert newest(session.folder).name == "000000030"
    for row in rows:
        assert 0 <= row["success"] <= 1 and 0 < row["length"] <= 16 and row["episodes"] > 0
        assert all(np.isfinite(row[name]) for name in (*METRICS, "gradient_norm"))
        assert row["sample_efficiency"] == {"centered": None, "trailing": None}


def test_worlds_start_with_the_authors_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[Any] = []
    reset = Engine.reset

    def note(self: Engine, given: Any = None, chosen: Any = None) -> None:
        seeds.append(given)
        reset(self, given, chosen)

    monkeypatch.setattr(Engine, "reset", note)
    train(ppo_options(tmp_path / "run", frames=320, validate_every=0, seed=3))
    # World k has the seed 300 + k, and continues with its own generator.
    assert seeds == [300]


def test_validation_is_as_frequent_as_requested(tmp_path: Path, pretend: Pretend) -> None:
    calls = pretend([0.5])
    few = {"worlds": 2, "steps": 2, "recurrence": 2, "frames": 120}
    session = train(ppo_options(tmp_path / "run", **few, validate_every=20))
    assert ["validation" in row for row in session.run.rows()] == [False, True, False] and len(calls) == 1
    session = train(ppo_options(tmp_path / "none", **few, validate_every=0))
    assert len(calls) == 1 and session.validations == 0
    assert not list((session.folder / "checkpoints").glob("best-*"))


def test_several_levels_share_the_worlds(tmp_path: Path) -> None:
    [row] = train(ppo_options(tmp_path / "run", levels="GoToObjS4,GoToObj", frames=320)).run.rows()
    assert list(row["levels"]) == ["GoToObjS4", "GoToObj"]


def test_a_finished_run_continues_with_more_frames(tmp_path: Path) -> None:
    session = train(ppo_options(tmp_path / "run", frames=320))
    rows = session.run.rows()
    assert train(ppo_options(tmp_path / "run", frames=320), resume=True).run.rows() == rows
    assert len(train(ppo_options(tmp_path / "run", frames=640), resume=True).run.rows()) == 2
