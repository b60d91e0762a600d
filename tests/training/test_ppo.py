"""PPO: it learns, its formulas are the paper's, and what it learns from is what happened."""

import itertools
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from babyai.agents.actor import count_words
from babyai.agents.config import AgentConfig
from babyai.agents.model import Model
from babyai.agents.unroll import Steps, unroll_plainly
from babyai.engine import Engine
from babyai.render.blit import rgb_views
from babyai.training import imitation
from babyai.training.efficiency import SampleEfficiency
from babyai.training.feed import pad_missions
from babyai.training.ppo import MEASURES, PPO, PPOOptions, PPOSettings, estimate_advantages, train
from babyai.training.rollout import Collector, Rollout
from tests.training.same import assert_equal_tensors, assert_same_run, newest, weights
from tests.training.test_imitation import Pretend
from tests.training.test_imitation import tiny as tiny_imitation
from tests.training.tiny import PATH, Tiny

SMALL = PPOSettings(worlds=6, steps=12, recurrence=4)


def tiny(out: Path, **changes: Any) -> PPOOptions:
    """A run of a second or less."""
    settings: dict[str, Any] = {"levels": "GoToObjS4", "architecture": PATH, "worlds": 4, "steps": 8, "recurrence": 4}
    settings |= {"frames": 960, "validation_missions": 4, "validate_every": 10, "device": "cpu", "quiet": True}
    return PPOOptions(**settings | {"out": str(out)} | changes)


def make_ppo(settings: PPOSettings = SMALL, model: nn.Module | None = None, **options: Any) -> PPO:
    torch.manual_seed(0)
    engine = Engine("GoToObjS4", settings.worlds)
    engine.reset(7)
    return PPO(model or Tiny(), engine, settings, **options)


# ------------------------------------------------------------ it learns


def test_it_learns(tmp_path: Path) -> None:
    options = tiny(tmp_path / "run", worlds=16, steps=20, recurrence=10, learning_rate=3e-3, frames=9600)
    rows = train(options).run.rows()
    assert len(rows) == 3
    # Chance succeeds often in so small a room, but late.
    assert rows[0]["return"] < 0.4 < 0.65 < rows[-1]["return"]
    assert rows[-1]["success"] > 0.9 and rows[-1]["length"] < 0.5 * rows[0]["length"]


def test_what_paid_becomes_likelier_for_the_papers_agent() -> None:
    """On one rollout, again and again: chances move with the advantages, and values toward the returns."""
    torch.manual_seed(0)
    model = Model(AgentConfig.of(memory_dim=16))
    settings = PPOSettings(worlds=4, steps=4, recurrence=4, minibatches=1, epochs=12, entropy=0.0, learning_rate=1e-3)
    ppo = make_ppo(settings, model)
    rollout, advantages = ppo.collector.collect(), np.zeros((4, 4), dtype=np.float32)
    advantages[:, :2], advantages[:, 2:] = 1.0, -1.0
    before = look_at(model, rollout)
    learn_from(ppo, rollout, advantages)
    after = look_at(model, rollout)
    moved = chosen(after[0], rollout) - chosen(before[0], rollout)
    assert (moved[:, :2].mean() > 0.02) and (moved[:, 2:].mean() < -0.02)
    returns = rollout.values[:-1] + advantages
    assert np.square(after[1] - returns).mean() < 0.9 * np.square(before[1] - returns).mean()


def look_at(model: nn.Module, rollout: Rollout) -> tuple[np.ndarray, np.ndarray]:
    """Log chances (T, N, 7) and values (T, N) of a rollout that begins without memory, without learning from it."""
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    with torch.no_grad():
        logits, values, _ = unroll_plainly(model, steps_of(rollout), rollout.memories[0])
    model.load_state_dict(kept)
    return logits.log_softmax(2).numpy(), values.numpy()


def chosen(log_probs: np.ndarray, rollout: Rollout) -> np.ndarray:
    return np.take_along_axis(log_probs, rollout.chunk.actions[..., None].astype(int), 2)[..., 0]


def steps_of(rollout: Rollout) -> Steps:
    chunk = rollout.chunk
    arrays = (chunk.images, chunk.directions, rollout.last_actions, chunk.first, chunk.missions, chunk.mission_index)
    return Steps(*map(torch.from_numpy, arrays))


def learn_from(ppo: PPO, rollout: Rollout, advantages: np.ndarray) -> None:
    """All that `update` does after playing, with other advantages."""
    chunk = rollout.chunk
    missions, index = pad_missions(chunk)
    words = count_words(missions, 0, ppo.device)
    arrays = [chunk.images, chunk.directions, rollout.last_actions, chunk.first, index, chunk.actions]
    arrays += [rollout.log_probs, rollout.values[:-1], advantages]
    pieces = [torch.from_numpy(ppo._cut(array)) for array in arrays]
    orders, memories = torch.from_numpy(ppo._mix()), torch.cat(rollout.memories)
    ppo._learn_all(orders, torch.from_numpy(missions)[:, :words], memories, *pieces)


# ------------------------------------------------------------ formulas


def made_up_rollout(seed: int, steps: int, worlds: int) -> Rollout:
    generator = np.random.default_rng(seed)
    rollout = make_ppo(PPOSettings(worlds=worlds, steps=steps, recurrence=1)).collector.collect()
    rollout.rewards[:] = generator.normal(size=(steps, worlds))
    rollout.ended[:] = generator.random((steps, worlds)) < 0.2
    rollout.values[:] = generator.normal(size=(steps + 1, worlds))
    return rollout


@pytest.mark.parametrize("seed", range(5))
def test_advantages_are_discounted_sums_of_surprises(seed: int) -> None:
    steps, worlds = 9, 4
    rollout = made_up_rollout(seed, steps, worlds)
    settings = PPOSettings(worlds=worlds, steps=steps, recurrence=1, discount=0.9, gae_lambda=0.7, reward_scale=20)
    given = estimate_advantages(rollout, settings)
    for world in range(worlds):
        for start in range(steps):
            expected, weight = 0.0, 1.0
            for t in range(start, steps):
                # Whether it succeeded or its time ran out: nothing is expected after an episode's end.
                after = 0.0 if rollout.ended[t, world] else 0.9 * float(rollout.values[t + 1, world])
                expected += weight * (20 * float(rollout.rewards[t, world]) + after - float(rollout.values[t, world]))
                if rollout.ended[t, world]:
                    break
                weight *= 0.9 * 0.7
            assert given[start, world] == pytest.approx(expected, rel=1e-4, abs=1e-4)


def test_time_that_ran_out_is_an_end() -> None:
    """A world whose episodes end by the clock only is estimated as one whose episodes end otherwise."""
    engine = Engine("GoToObjS4", 6)
    engine.reset(7)
    collector = Collector(Tiny(), engine, 80, 80)
    rollout = collector.collect()
    late = rollout.ended & (rollout.rewards == 0)
    assert late.any()
    advantages = estimate_advantages(rollout, PPOSettings(worlds=6, steps=80, recurrence=80))
    assert advantages[late] == pytest.approx(-rollout.values[:-1][late], abs=1e-5)


def play_otherwise(ppo: PPO) -> tuple[Rollout, np.ndarray]:
    """A rollout and its advantages, as if policy and critic had been others then, so that clipping matters."""
    generator, settings = np.random.default_rng(0), ppo.settings
    rollout = ppo.collector.collect()
    rollout.log_probs += generator.normal(scale=0.3, size=rollout.log_probs.shape).astype(np.float32)
    rollout.values[:] += generator.normal(scale=0.4, size=rollout.values.shape).astype(np.float32)
    return rollout, generator.normal(size=(settings.steps, settings.worlds)).astype(np.float32)


def test_the_loss_is_the_papers() -> None:
    """Against loops over single frames in double precision."""
    ppo = make_ppo(replace(SMALL, minibatches=1, epochs=1, entropy=0.03, value_weight=0.4))
    rollout, advantages = play_otherwise(ppo)
    log_probs, values = look_at(ppo.model, rollout)
    # The memories at later pieces are the ones that the actor had; the actor has not changed, so they are the same.
    policy, value, entropy, clipped_ratios, clipped_values = [], [], [], 0, 0
    for t in range(SMALL.steps):
        for n in range(SMALL.worlds):
            row = log_probs[t, n].astype(np.float64)
            advantage, old_value = float(advantages[t, n]), float(rollout.values[t, n])
            ratio = np.exp(row[rollout.chunk.actions[t, n]] - float(rollout.log_probs[t, n]))
            bounded = min(max(ratio, 0.8), 1.2)
            clipped_ratios += bounded != ratio
            policy.append(-min(ratio * advantage, bounded * advantage))
            target, now = advantage + old_value, float(values[t, n])
            near = old_value + min(max(now - old_value, -0.2), 0.2)
            clipped_values += near != now
            value.append(max((now - target) ** 2, (near - target) ** 2))
            entropy.append(-(np.exp(row) * row).sum())
    assert min(clipped_ratios, clipped_values) > 10
    learn_from(ppo, rollout, advantages)
    measured = ppo.measures()
    assert measured["policy_loss"] == pytest.approx(np.mean(policy), rel=1e-4)
    assert measured["value_loss"] == pytest.approx(np.mean(value), rel=1e-4)
    assert measured["entropy"] == pytest.approx(np.mean(entropy), rel=1e-4)
    assert measured["value"] == pytest.approx(values.mean(), rel=1e-3, abs=1e-4)
    assert measured.keys() == set(MEASURES) and ppo.measures()["value_loss"] == 0


@pytest.mark.parametrize("longest", [0.01, 100.0], ids=["cut", "whole"])
def test_a_step_goes_down_the_gradient_of_that_loss(longest: float) -> None:
    """With plain gradient descent in Adam's place, against torch's own gradient of the loss written out."""
    settings = replace(SMALL, minibatches=1, epochs=1, max_gradient=longest)
    ppo = make_ppo(settings)
    rollout, advantages = play_otherwise(ppo)
    before = {name: value.clone() for name, value in ppo.model.named_parameters()}
    loss = written_out(ppo.model, rollout, torch.from_numpy(advantages), settings)
    gradients = torch.autograd.grad(loss, list(ppo.model.parameters()))
    length = float(torch.stack([gradient.square().sum() for gradient in gradients]).sum().sqrt())
    assert 0.01 < length < 100.0
    ppo.optimizer = torch.optim.SGD(ppo.model.parameters(), lr=1.0)  # pyright: ignore[reportAttributeAccessIssue]
    learn_from(ppo, rollout, advantages)
    assert ppo.measures()["gradient_norm"] == pytest.approx(length, rel=1e-4)
    for (name, value), gradient in zip(ppo.model.named_parameters(), gradients, strict=True):
        step = before[name] - value.detach()
        torch.testing.assert_close(step, gradient * min(1.0, longest / length), atol=1e-6, rtol=1e-3, msg=name)


def written_out(model: nn.Module, rollout: Rollout, advantages: Tensor, settings: PPOSettings) -> Tensor:
    """Step by step, piece by piece: the mean over the steps of policy + 0.5 value - 0.01 entropy."""
    steps, length = steps_of(rollout), settings.recurrence
    losses = []
    for piece, memory in enumerate(rollout.memories):
        for t in range(piece * length, (piece + 1) * length):
            memory = memory * (1.0 - steps.first[t].float())[:, None]
            logits, values, memory = model(steps.observation(t), memory)
            policy = torch.distributions.Categorical(logits=logits)
            actions, old = (
                torch.from_numpy(rollout.chunk.actions[t].astype(np.int64)),
                torch.from_numpy(rollout.values[t]),
            )
            ratio = torch.exp(policy.log_prob(actions) - torch.from_numpy(rollout.log_probs[t]))
            surrogate = torch.minimum(ratio * advantages[t], torch.clamp(ratio, 0.8, 1.2) * advantages[t])
            target, near = old + advantages[t], old + torch.clamp(values - old, -0.2, 0.2)
            value_loss = torch.maximum((values - target).pow(2), (near - target).pow(2)).mean()
            losses.append(-surrogate.mean() + 0.5 * value_loss - 0.01 * policy.entropy().mean())
    return torch.stack(losses).mean()


def test_minibatches_are_a_new_half_of_the_pieces_each() -> None:
    ppo = make_ppo()
    orders = ppo._mix()
    assert orders.shape == (8, 9) and SMALL.pieces == 18
    for epoch in orders.reshape(4, 18):
        assert sorted(epoch) == list(range(18))
    assert len({tuple(epoch) for epoch in orders.reshape(4, 18)}) == 4
    assert (PPOSettings().pieces, PPOSettings().frames_an_update, PPOSettings().minibatches) == (128, 2560, 2)


def test_pieces_are_consecutive_steps_of_one_world() -> None:
    ppo = make_ppo()
    names = np.arange(12)[:, None] * 100 + np.arange(6)  # step * 100 + world
    pieces = ppo._cut(names)  # (4, 18)
    for piece in range(18):
        start, world = 4 * (piece // 6), piece % 6
        assert pieces[:, piece].tolist() == [100 * (start + t) + world for t in range(4)]


# ------------------------------------------------------------ rollouts


@pytest.mark.parametrize("levels", [["GoToObjS4"], ["GoToObjS4", "GoToRedBallGrey"]], ids=["one level", "two levels"])
def test_rollouts_are_what_the_worlds_showed(levels: list[str]) -> None:
    torch.manual_seed(0)
    engine, twin = Engine(levels, 5), Engine(levels, 5)
    engine.reset(30)
    twin.reset(30)
    collector = Collector(Tiny(), engine, 40, 20, seed=3)
    first, before, returns, lengths = np.ones(5, dtype=bool), np.full(5, -1), np.zeros(5), np.zeros(5, dtype=int)
    ends = 0
    for _ in range(3):
        rollout = collector.collect()
        chunk, ended_returns, ended_lengths = rollout.chunk, [], []
        for t in range(40):
            assert np.array_equal(chunk.images[t], twin.images) and np.array_equal(chunk.directions[t], twin.directions)
            assert np.array_equal(chunk.missions[chunk.mission_index[t]], twin.missions)
            assert np.array_equal(chunk.first[t], first)
            assert np.array_equal(rollout.last_actions[t], np.where(first, -1, before))
            before = chunk.actions[t].astype(int)
            twin.step(before)
            assert np.array_equal(rollout.rewards[t], twin.rewards.astype(np.float32))
            returns, lengths = returns + twin.rewards, lengths + 1
            first = twin.reset_done()
            assert np.array_equal(rollout.ended[t], first)
            ended_returns += returns[first].tolist()
            ended_lengths += lengths[first].tolist()
            returns[first], lengths[first] = 0.0, 0
        assert rollout.returns == pytest.approx(ended_returns) and rollout.lengths == ended_lengths
        ends += len(ended_returns)
    assert ends > 10


def plain_play(model: nn.Module, rollouts: list[Rollout], length: int) -> list[tuple[Tensor, np.ndarray, np.ndarray]]:
    """The memory before each piece, and log probabilities and values of all steps, from an agent that never forgot."""
    memory, played = rollouts[0].memories[0] * 0, []
    with torch.no_grad():
        for rollout in rollouts:
            steps, memories, logits, values = steps_of(rollout), [], [], []
            for t in range(len(steps.first)):
                if t % length == 0:
                    memories.append(memory)
                at_step = model(steps.observation(t), memory * ~steps.first[t][:, None])
                logits.append(at_step[0])
                values.append(at_step[1])
                memory = at_step[2]
            played.append((memories, chosen(torch.stack(logits).log_softmax(2).numpy(), rollout), torch.stack(values)))
    return played


@pytest.mark.parametrize("kind", ["own", "paper", "big"])
def test_what_is_kept_of_acting_is_what_unrolling_gives(kind: str) -> None:
    """With batch norm in evaluation mode, so that it matters to nobody who else is in the batch."""
    torch.manual_seed(0)
    small = {"memory_dim": 12, "last_action": True, "direction": True}
    settings = {"paper": small, "big": {**small, "size": "big", "word_dim": 16}}
    model = Tiny() if kind == "own" else Model(AgentConfig.of(**settings[kind]))
    model.eval()
    engine = Engine("GoToObjS4", 3)
    engine.reset(0)
    collector = Collector(model, engine, 12, 4)
    rollouts = [collector.collect() for _ in range(2 if kind != "own" else 6)]
    assert any(rollout.ended[:-1].any() for rollout in rollouts)
    for rollout, (memories, log_probs, values) in zip(rollouts, plain_play(model, rollouts, 4), strict=True):
        assert len(rollout.memories) == len(memories) == 3
        for kept, expected in zip(rollout.memories, memories, strict=True):
            torch.testing.assert_close(kept, expected, atol=1e-4, rtol=1e-4)
        assert rollout.log_probs == pytest.approx(log_probs, abs=1e-4)
        assert rollout.values[:-1] == pytest.approx(values.numpy(), abs=1e-4)
    # What the critic expects after the last step is what it expects when it goes on.
    assert rollouts[0].values[-1] == pytest.approx(rollouts[1].values[0], abs=1e-5)


def test_actions_are_drawn_from_the_policy() -> None:
    torch.manual_seed(0)
    model, engine = Tiny(), Engine("GoToObjS4", 64)
    engine.reset(0)
    nn.init.normal_(model.actor.bias)
    rollout = Collector(model, engine, 40, 40, seed=1).collect()
    expected = np.exp(look_at(model, rollout)[0]).sum((0, 1))
    counts = np.bincount(rollout.chunk.actions.ravel(), minlength=7)
    assert expected.max() > 3 * expected.min() and (abs(counts - expected) < 4 * np.sqrt(expected)).all()


def test_acting_learns_statistics_as_the_authors_do() -> None:
    torch.manual_seed(0)
    model = Model(AgentConfig.of(memory_dim=8))
    ppo = make_ppo(PPOSettings(worlds=4, steps=4, recurrence=4), model.eval())
    assert model.training
    batches = []
    model.see.register_forward_hook(lambda *_: batches.append(model.see.first_norm.running_mean.clone()))
    ppo.collector.collect()
    # One batch a step, and one for the value after the last.
    assert len(batches) == 5 and not any(torch.equal(*pair) for pair in itertools.pairwise(batches))


def test_pixels_are_those_of_the_symbols() -> None:
    torch.manual_seed(0)
    engine, twin = Engine("GoToObjS4", 2), Engine("GoToObjS4", 2)
    engine.reset(0)
    twin.reset(0)
    rollout = Collector(Model(AgentConfig.of("pixels_endpool_res", memory_dim=8)), engine, 3, 3).collect()
    for t in range(3):
        assert np.array_equal(rollout.chunk.images[t], rgb_views(twin.images))
        twin.step(rollout.chunk.actions[t].astype(int))
        twin.reset_done()


# ------------------------------------------------------------ sample efficiency


def brute_force(updates: list[list[float]], worlds: int, window: int) -> tuple[int | None, int | None]:
    """Both figures, from all returns at once (the authors' log, then pandas' centered window)."""
    rates, counts = [], []
    for number in range(10, len(updates) + 1, 10):
        ended = updates[number - 1]
        returns = [0.0] * worlds + [value for update in updates[:number] for value in update]
        latest = returns[-max(len(ended), worlds) :]
        rates.append(np.mean([value > 0 for value in latest]))
        counts.append(sum(map(len, updates[:number])))
    centered = None
    for center in range(len(rates)):
        low, high = center - window // 2, center - window // 2 + window
        if low >= 0 and high <= len(rates) and np.mean(rates[low:high]) >= 0.99 - 1e-12:
            centered = counts[center]
            break
    won = [value > 0 for update in updates for value in update]
    trailing = next((end for end in range(1000, len(won) + 1) if sum(won[end - 1000 : end]) >= 990), None)
    return centered, trailing


@pytest.mark.parametrize("window", [1, 4, 5])
@pytest.mark.parametrize("seed", range(4))
def test_sample_efficiency_is_that_of_the_whole_log(seed: int, window: int) -> None:
    generator, worlds = np.random.default_rng(seed), 6
    updates = []
    for number in range(400):
        chance = 1.0 if number > 250 else 0.9 + number / 2000
        ended = generator.integers(0, 3 * worlds) if number % 7 else 0
        updates.append((generator.random(ended) < chance).astype(float).tolist())
    expected = brute_force(updates, worlds, window)
    assert None not in expected
    efficiency = SampleEfficiency(window, worlds)
    known_at = None
    for number, returns in enumerate(updates, start=1):
        efficiency.add(returns, [1] * len(returns))
        if number == 200:
            # Stopped and gone on with.
            efficiency, before = SampleEfficiency(window, worlds), efficiency.state()
            efficiency.load(before)
        if number % 10 == 0:
            efficiency.close_row()
            known_at = known_at or (efficiency.known and number)
    assert (efficiency.centered, efficiency.trailing) == expected
    assert efficiency.episodes == sum(map(len, updates)) and known_at


def test_rows_begin_with_a_failure_for_each_world() -> None:
    efficiency = SampleEfficiency(10, 64)
    efficiency.add([0.5] * 16, [5] * 16)
    assert efficiency.close_row()["success"] == 16 / 64
    efficiency.add([0.5] * 128, [5] * 128)
    assert efficiency.close_row()["success"] == 1.0
    efficiency.add([0.0] * 32, [5] * 32)
    assert efficiency.close_row()["success"] == 0.5
    assert efficiency.centered is None and not efficiency.known


# ------------------------------------------------------------ runs


def test_rows_tell_what_happened(tmp_path: Path, pretend: Pretend) -> None:
    asked = pretend([0.25, 0.5, 0.4])
    session = train(tiny(tmp_path / "run", validation_missions=5))
    rows = session.run.rows()
    assert [(row["update"], row["frames"]) for row in rows] == [(10, 320), (20, 640), (30, 960)]
    assert asked == [("GoToObjS4", 10**9)] * 3
    assert [row["validation"] for row in rows] == [0.25, 0.5, 0.4] and session.best_success == 0.5
    assert newest(session.folder).name == "000000030"
    for row in rows:
        assert 0 <= row["success"] <= 1 and 0 < row["length"] <= 16 and row["episodes"] > 0
        assert all(np.isfinite(row[name]) for name in MEASURES)
        assert row["sample_efficiency"] == {"centred": None, "trailing": None}


def test_worlds_begin_with_the_papers_seeds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seeds: list[Any] = []
    reset = Engine.reset

    def note(self: Engine, given: Any = None, chosen: Any = None) -> None:
        seeds.append(given)
        reset(self, given, chosen)

    monkeypatch.setattr(Engine, "reset", note)
    train(tiny(tmp_path / "run", frames=320, validate_every=0, seed=3))
    # World k has the seed 300 + k, and goes on in its own stream.
    assert seeds == [300]


def test_validations_come_as_often_as_asked(tmp_path: Path, pretend: Pretend) -> None:
    asked = pretend([0.5])
    short = {"worlds": 2, "steps": 2, "recurrence": 2, "frames": 120}
    session = train(tiny(tmp_path / "run", validate_every=20, **short))
    assert ["validation" in row for row in session.run.rows()] == [False, True, False] and len(asked) == 1
    session = train(tiny(tmp_path / "none", validate_every=0, **short))
    assert len(asked) == 1 and session.validations == 0
    assert not (session.folder / "checkpoints" / "best").exists()


def test_a_run_stops_when_both_figures_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def be_known(self: SampleEfficiency) -> dict[str, float]:
        self.centered, self.trailing = 123, 456
        return {"success": 1.0}

    with monkeypatch.context() as patch:
        patch.setattr(SampleEfficiency, "close_row", be_known)
        short = {"validate_every": 0, "worlds": 2, "steps": 2, "recurrence": 2, "frames": 120}
        rows = train(tiny(tmp_path / "run", **short)).run.rows()
        assert len(rows) == 1 and rows[0]["sample_efficiency"] == {"centred": 123, "trailing": 456}
        options = tiny(tmp_path / "on", stop_when_known=False, **short)
        assert len(train(options).run.rows()) == 3


@pytest.mark.parametrize(
    ("level", "window"), [("GoToObjS4", 100), ("GoToRedBallGrey", 10), ("BabyAI-GoToRedBallGrey-v0", 10)]
)
def test_windows_are_the_papers(level: str, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    windows: list[int] = []
    make = SampleEfficiency.__init__

    def note(self: SampleEfficiency, rows: int, worlds: int) -> None:
        windows.append(rows)
        make(self, rows, worlds)

    monkeypatch.setattr(SampleEfficiency, "__init__", note)
    short = {"levels": level, "frames": 40, "worlds": 2, "steps": 2, "recurrence": 2, "validate_every": 0}
    train(tiny(tmp_path / "run", **short))
    train(tiny(tmp_path / "told", window=7, **short))
    assert windows == [window, 7]


def test_several_levels_share_the_worlds(tmp_path: Path) -> None:
    session = train(tiny(tmp_path / "run", levels="GoToObjS4,GoToObj", frames=320))
    [row] = session.run.rows()
    assert list(row["levels"]) == ["GoToObjS4", "GoToObj"]


def test_reward_follows_imitation(tmp_path: Path) -> None:
    before = imitation.train(tiny_imitation(tmp_path / "before", epochs=1))
    options = tiny(tmp_path / "after", init_from=str(before.folder), learning_rate=1e-30, frames=320, seed=9)
    assert_equal_tensors(weights(train(options).folder), weights(before.folder, "best"))


def test_a_run_that_was_stopped_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    whole = train(tiny(tmp_path / "whole"))
    stopped = train(tiny(tmp_path / "parts"), stop=lambda: True)
    assert len(stopped.run.rows()) == 0
    resumed = train(tiny(tmp_path / "parts", resume=True))
    assert_same_run(whole.folder, resumed.folder)


def test_the_papers_agent_resumes_to_the_bit(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    # Missions of very different lengths.
    levels = {"levels": "GoToSeqS5R2", "last_action": True}
    options = tiny(tmp_path / "whole", architecture="bow_endpool_res", memory_dim=8, **levels)
    options = replace(options, worlds=2, steps=2, recurrence=2, minibatches=1, epochs=1, frames=80)
    whole = train(options)
    train(replace(options, out=str(tmp_path / "parts")), stop=lambda: True)
    resumed = train(replace(options, out=str(tmp_path / "parts"), resume=True))
    assert_same_run(whole.folder, resumed.folder)


def test_a_finished_run_stays_as_it_is_when_resumed(tmp_path: Path) -> None:
    session = train(tiny(tmp_path / "run", frames=320))
    rows = session.run.rows()
    assert train(tiny(tmp_path / "run", frames=320, resume=True)).run.rows() == rows
    assert len(train(tiny(tmp_path / "run", frames=640, resume=True)).run.rows()) == 2


def test_epochs_may_not_change_when_a_run_is_resumed(tmp_path: Path) -> None:
    train(tiny(tmp_path / "run", frames=320))
    with pytest.raises(ValueError, match=r"other settings \(epochs was 4, is 9\)"):
        train(tiny(tmp_path / "run", frames=640, epochs=9, resume=True))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"recurrence": 3}, "recurrence 3 does not divide the 8 steps"),
        ({"minibatches": 3}, "3 minibatches do not divide the 8 pieces"),
        ({"recurrence": 0}, "recurrence"),
        ({"worlds": 0}, "world"),
        ({"minibatches": 0}, "minibatches"),
        ({"epochs": 0}, "epochs"),
        ({"levels": "GoToLocl"}, "did you mean 'GoToLocal'"),
        ({"architecture": "orignal"}, "did you mean 'original'"),
        ({"resume": True}, "holds no run"),
        ({"validation_missions": 0}, "mission"),
        ({"frames": -5}, "frames must be from 1 on"),
        ({"window": -3}, "window must be from 1 on"),
        ({"validate_every": -1}, "validate_every must be from 0 on"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"max_part_mib": 0}, "max_part_mib must be from 1 on"),
        ({"seed": 10_000_000}, "reserved for validation"),
    ],
    ids=lambda value: "-".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_before_there_is_a_run(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train(tiny(tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()
