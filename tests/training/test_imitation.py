"""Imitation learning: it learns, its protocol is the paper's, and it learns from what was asked for."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babyai.agents.agent import Agent
from babyai.agents.config import AgentConfig
from babyai.agents.custom import example_batch
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.agents.policy import unroll_steps
from babyai.demos.collect import collect
from babyai.demos.replay import Replay
from babyai.demos.sources import FileSource
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.training.fit import Session
from babyai.training.imitation import Imitation, ImitationLearner, imitation_loss, open_source, train
from babyai.training.learner import Learner
from babyai.training.options import ImitationOptions
from tests.training.same import assert_equal_tensors, newest, weights
from tests.training.short_runs import PAPER, Pretend, imitation_options
from tests.training.tiny import PATH, Tiny, TwoMemories

# ------------------------------------------------------------ it learns


def test_the_papers_agent_learns_demonstrations_by_heart(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.0])
    few = {"demos": 6, "recurrence": 6, "epoch_length": 60, "epochs": 3, "learning_rate": 3e-3}
    session = train(imitation_options(tmp_path / "run", **PAPER, **few))
    rows = session.run.rows()
    actions = FileSource(session.folder / "demos.parquet").demos.actions
    majority = np.bincount(actions).max() / len(actions)
    assert majority < 0.6
    assert rows[-1]["accuracy"] > 0.9 and rows[-1]["loss"] < 0.4 * rows[0]["loss"]
    # Without an entropy coefficient, the loss is the cross-entropy.
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["cross_entropy"])


def test_what_is_learned_generalizes_to_other_episodes(tmp_path: Path) -> None:
    more = {"demos": 400, "batch_size": 32, "epoch_length": 1600, "epochs": 4, "validation_episodes": 64}
    session = train(imitation_options(tmp_path / "run", **more))
    success = [row["success"] for row in session.run.rows()]
    assert success[-1] > 0.8 and session.best_success == max(success)


# ------------------------------------------------------------ the gradient step


def test_the_loss_is_cross_entropy_minus_entropy_bonus() -> None:
    """Against loops over single frames in double precision."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(3, 2, 7, generator=generator)
    labels = torch.randint(0, 7, (3, 2), generator=generator)
    cross_entropies = []
    entropies = []
    right = []
    for row, label in zip(logits.reshape(6, 7).double().numpy(), labels.flatten().tolist(), strict=True):
        probs = np.exp(row) / np.exp(row).sum()
        cross_entropies.append(-np.log(probs[label]))
        entropies.append(-(probs * np.log(probs)).sum())
        right.append(probs.argmax() == label)
    loss, metrics = imitation_loss(logits, labels, 0.3)
    expected = np.mean(cross_entropies) - 0.3 * np.mean(entropies)
    assert float(loss) == pytest.approx(expected, rel=1e-5)
    assert metrics.tolist() == pytest.approx(
        [expected, np.mean(cross_entropies), np.mean(entropies), np.mean(right)], rel=1e-5
    )


@pytest.mark.parametrize("batch_norm", ["chunk", "step"])
def test_batch_normalization_averages_over_a_chunk_or_a_step(batch_norm: Any) -> None:
    torch.manual_seed(0)
    policy = FilmLSTM(AgentConfig.of(memory_dim=8))
    plain = deepcopy(policy)
    core = ImitationLearner(policy, 2, batch_norm=batch_norm)
    batch = example_batch()
    core.learn(replace(batch, labels=batch.actions))
    with torch.no_grad():
        if batch_norm == "step":
            unroll_steps(plain, batch, plain.initial_state(2))
        else:
            plain.unroll(batch, plain.initial_state(2))
    for name, value in plain.named_buffers():
        torch.testing.assert_close(policy.get_buffer(name), value, msg=name)


@pytest.mark.parametrize("make_policy", [Tiny, TwoMemories])
def test_a_gradient_step_descends_the_gradient_of_the_loss(make_policy: Any) -> None:
    """With plain gradient descent instead of Adam, against torch's gradient of the loss of an unrolled policy."""
    torch.manual_seed(0)
    policy = make_policy()
    core = ImitationLearner(policy, 2, entropy_coef=0.1)
    batch = replace(example_batch(), labels=torch.tensor([[1, 2], [3, 4], [5, 6]], dtype=torch.uint8))
    before = {name: value.clone() for name, value in policy.named_parameters()}
    unrolled = unroll_steps(policy, batch, policy.initial_state(2))
    loss, _ = imitation_loss(unrolled.logits, batch.labels.long(), 0.1)
    gradients = torch.autograd.grad(loss, list(policy.parameters()), allow_unused=True)
    core.learner.optimizer = torch.optim.SGD(policy.parameters(), lr=1.0)  # pyright: ignore[reportAttributeAccessIssue]
    core.learn(batch)
    for (name, value), gradient in zip(policy.named_parameters(), gradients, strict=True):
        step = before[name] - value.detach()
        expected = torch.zeros_like(step) if gradient is None else gradient
        torch.testing.assert_close(step, expected, atol=1e-6, rtol=1e-4, msg=name)
    metrics = core.learner.metrics()
    assert metrics["loss"] == pytest.approx(loss.item(), rel=1e-5)
    # Metrics start again after they have been read.
    assert core.learner.metrics()["loss"] == 0


def test_the_learning_rate_decays_every_hundred_epochs(
    tmp_path: Path, pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend([0.5])
    rates: list[float] = []
    monkeypatch.setattr(Learner, "set_learning_rate", lambda _, rate: rates.append(rate))
    short = {"batch_size": 1, "epoch_length": 1, "epochs": 101, "patience": 200, "checkpoint_seconds": 1e9}
    train(imitation_options(tmp_path / "run", **short))
    assert rates == pytest.approx([1e-2] * 100 + [0.9e-2])


def test_the_learning_rate_reaches_the_optimizer(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    session = train(imitation_options(tmp_path / "run", epochs=1, learning_rate=1e-30))
    initial = dict(Agent.create(PATH, seed=0).model.state_dict())
    assert_equal_tensors(weights(newest(session.folder)), initial)


def test_state_and_last_actions_continue_across_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last action that the policy sees is the demonstration's one step before; its state is carried along."""
    seen: list[tuple[np.ndarray, ...]] = []
    gradient_step = Learner.gradient_step

    def spy(self: Learner, batch: Any, state: torch.Tensor) -> Any:
        seen.append(tuple(part.numpy().copy() for part in (batch.last_actions, batch.starts, batch.labels, state)))
        return gradient_step(self, batch, state)

    monkeypatch.setattr(Learner, "gradient_step", spy)
    with Session(imitation_options(tmp_path / "run"), "imitation") as session:
        algorithm = Imitation(session)
        for _ in range(4):
            algorithm.update()
            algorithm.num_updates += 1
        algorithm.close()
    last_actions, starts, labels = (np.concatenate(parts).astype(int) for parts in list(zip(*seen, strict=True))[:3])
    begins = starts.astype(bool)
    assert begins[0].all() and not begins.all()
    assert (last_actions[begins] == -1).all()
    continues = ~begins[1:]
    assert (last_actions[1:][continues] == labels[:-1][continues]).all()
    states = [state for _, _, _, state in seen]
    assert not states[0].any() and all(state.any() for state in states[1:])


# ------------------------------------------------------------ rows and validation


def test_an_update_has_the_frames_of_a_batch_on_average(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    session = train(imitation_options(tmp_path / "run", batch_size=8, epoch_length=403))
    length = FileSource(session.folder / "demos.parquet").demos.lengths.mean()
    lanes = round(8 * length / 5)
    rows = session.run.rows()
    # The last 3 demonstrations of an epoch do not fill a batch.
    assert [row["frames"] for row in rows] == [50 * lanes * 5, 100 * lanes * 5]
    assert [row["epoch"] for row in rows] == [1, 2]
    for row in rows:
        # Demonstrations are counted where they start; all lanes start one.
        assert row["demos"] == pytest.approx(row["frames"] / length + lanes / 2, rel=0.02)
    assert rows[-1]["demos"] == pytest.approx(800, rel=0.05)


def test_each_validation_plays_new_episodes_of_every_level(tmp_path: Path, pretend: Pretend) -> None:
    calls = pretend([0.2, 0.6, 0.4, 0.4])
    options = imitation_options(tmp_path / "run", levels="GoToObjS4,GoToRedBallGrey", demos=10, validation_episodes=7)
    rows = train(options).run.rows()
    assert calls == [(level, 10**9 + start) for start in (0, 7) for level in ("GoToObjS4", "GoToRedBallGrey")]
    assert [row["success"] for row in rows] == pytest.approx([0.4, 0.4])
    assert rows[0]["levels"]["GoToRedBallGrey"]["success_rate"] == 0.6
    assert rows[0]["levels"]["GoToObjS4"]["first_seed"] == 10**9


def test_validation_is_of_the_agent_as_it_is_then(tmp_path: Path) -> None:
    session = train(imitation_options(tmp_path / "run", validation_episodes=16))
    player = AgentPlayer(Agent.load(newest(session.folder), device="cpu", trust=True).model)
    again = evaluate(player, "GoToObjS4", missions=16, first_seed=10**9 + 16)
    row = session.run.rows()[-1]["levels"]["GoToObjS4"]
    assert {**row, "seconds": 0} == {**again.to_dict(), "seconds": 0}


def test_several_levels_train_together(tmp_path: Path) -> None:
    options = imitation_options(tmp_path / "run", levels="GoToObjS4,GoToObj", demos=12, level_weights="1,3", epochs=1)
    [row] = train(options).run.rows()
    assert list(row["levels"]) == ["GoToObjS4", "GoToObj"]
    rates = [result["success_rate"] for result in row["levels"].values()]
    assert row["success"] == pytest.approx(sum(rates) / 2)


# ------------------------------------------------------------ demonstrations


def open_for(options: ImitationOptions, folder: Path) -> Any:
    """The source of demonstrations of a run that has nothing but its folder."""

    class Stub:
        def __init__(self) -> None:
            self.folder = folder

        def show_collecting(self, done: int, total: int) -> None: ...

    stub: Any = Stub()
    return open_source(options, stub)


def test_demos_are_those_of_the_first_seeds_of_each_level(tmp_path: Path) -> None:
    source = open_for(imitation_options(tmp_path, levels="GoToObjS4,GoToObj", demos=12), tmp_path)
    assert sorted(source.demos.seeds.tolist()) == sorted([*range(12), *range(12)])
    assert [level.name for level in source.levels] == ["GoToObjS4", "GoToObj"]


def test_demos_can_be_those_of_other_seeds(tmp_path: Path) -> None:
    source = open_for(imitation_options(tmp_path, demos=12, first_seed=500), tmp_path)
    assert sorted(source.demos.seeds.tolist()) == list(range(500, 512))


def test_levels_occur_as_often_as_weighted(tmp_path: Path) -> None:
    levels = "GoToObjS4,GoToObj"
    source = open_for(imitation_options(tmp_path, levels=levels, demos=12, level_weights="1, 3"), tmp_path)
    assert np.bincount(source.take(4000).levels) / 4000 == pytest.approx([0.25, 0.75], abs=0.03)
    options = imitation_options(tmp_path, levels=levels, demos=None, endless=True, level_weights="3,1")
    endless = open_for(options, tmp_path)
    assert np.bincount(endless.take(4000).levels) / 4000 == pytest.approx([0.75, 0.25], abs=0.03)
    endless.close()


def test_the_first_rows_of_a_file_can_be_used(tmp_path: Path, demo_file: Path) -> None:
    source = open_for(imitation_options(tmp_path, demos=5, file=str(demo_file)), tmp_path)
    assert source.demos.seeds.tolist() == [0, 1, 2, 3, 4]
    assert len(open_for(imitation_options(tmp_path, demos=None, file=str(demo_file)), tmp_path).demos) == 40
    with pytest.raises(ValueError, match=r"small\.parquet.*40.*41"):
        train(imitation_options(tmp_path / "run", demos=41, file=str(demo_file)))


def test_a_file_trains_like_the_same_demonstrations_collected(tmp_path: Path, demo_file: Path) -> None:
    collected = train(imitation_options(tmp_path / "collected"))
    read = train(imitation_options(tmp_path / "read", demos=None, file=str(demo_file)))
    assert_equal_tensors(weights(newest(collected.folder)), weights(newest(read.folder)))


def test_a_file_with_other_levels_or_rules_is_refused(tmp_path: Path, demo_file: Path) -> None:
    with pytest.raises(ValueError, match="--levels GoToObjS4"):
        train(imitation_options(tmp_path / "a", levels="GoToLocal", file=str(demo_file)))
    with pytest.raises(ValueError, match="--rules paper"):
        train(imitation_options(tmp_path / "b", rules="minigrid", file=str(demo_file)))
    assert not (tmp_path / "a").exists() and not (tmp_path / "b").exists()


def test_a_file_that_is_missing_or_damaged_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"nothing\.parquet"):
        train(imitation_options(tmp_path / "a", file=str(tmp_path / "nothing.parquet")))
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(ValueError, match="junk"):
        train(imitation_options(tmp_path / "b", file=str(tmp_path / "junk")))


def test_rows_without_one_of_the_levels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "two.parquet"
    collect(["GoToObjS4", "GoToObjS6"], 5, 0, path, threads=1)
    changes = {"levels": "GoToObjS4,GoToObjS6", "file": str(path), "epochs": 1}
    with pytest.raises(ValueError, match=r"first 5 .*two\.parquet.*GoToObjS6.*--demos"):
        train(imitation_options(tmp_path / "five", demos=5, **changes))
    assert len(train(imitation_options(tmp_path / "six", demos=6, **changes)).run.rows()) == 1


def test_demonstrations_of_reserved_seeds_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "reserved.parquet"
    collect("GoToObjS4", 3, 10**9, path, threads=1)
    with pytest.raises(ValueError, match=r"reserved\.parquet.*validation"):
        train(imitation_options(tmp_path / "run", demos=None, file=str(path)))


def test_endless_demonstrations_never_repeat(tmp_path: Path) -> None:
    options = imitation_options(tmp_path / "run", demos=None, endless=True, epochs=1)
    source = open_for(options, tmp_path)
    seeds = source.take(3000).seeds
    source.close()
    assert len(set(seeds.tolist())) == 3000 and seeds.max() < 10**9
    session = train(options)
    assert not (session.folder / "demos.parquet").exists() and len(session.run.rows()) == 1


def test_replay_is_closed_when_training_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    close = Replay.close

    def note(self: Replay) -> None:
        closed.append(True)
        close(self)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    with monkeypatch.context() as patch:
        patch.setattr(Replay, "close", note)
        patch.setattr(Learner, "gradient_step", fail)
        with pytest.raises(RuntimeError, match="out of memory"):
            train(imitation_options(tmp_path / "run"))
    assert closed == [True]
    # The folder is unlocked again.
    assert len(train(imitation_options(tmp_path / "run"), resume=True).run.rows()) == 2


# ------------------------------------------------------------ agents


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": "pixels_endpool_res"},
        {"architecture": "original", "instruction": False, "direction": True, "last_action": True},
        {"size": "big"},
        {"memory_dim": 0, "protocol": "code"},
        {"precision": "bf16"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_kind_of_agent_trains(changes: dict[str, Any], tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    short = {"batch_size": 2, "recurrence": 4, "epoch_length": 4, "epochs": 1}
    options = imitation_options(tmp_path / "run", **{**PAPER, "memory_dim": 8, **short, **changes})
    session = train(options)
    assert np.isfinite(session.run.rows()[0]["loss"])
    agent = Agent.load(session.folder, device="cpu")
    assert agent.config == session.agent_config == options.agent_config()


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_policy_with_a_state_of_its_own_kind_trains(tmp_path: Path, precision: Any) -> None:
    path = PATH.replace(":Tiny", ":TwoMemories")
    rows = train(imitation_options(tmp_path / "run", architecture=path, precision=precision)).run.rows()
    assert rows[-1]["loss"] < rows[0]["loss"]
