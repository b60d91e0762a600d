"""The training loop: the best is kept, patience ends, and no interruption changes the result."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from babyai.agents.agent import Agent
from babyai.agents.checkpoint import CheckpointError, read_tensors
from babyai.agents.policy import Unrolled, copy_state
from babyai.batch import OBSERVATION_FIELDS, Batch
from babyai.demos.replay import Replay
from babyai.demos.sources import FileSource
from babyai.training import dagger, imitation, ppo
from babyai.training.commands import read_options
from babyai.training.fit import Algorithm, Session, fit
from babyai.training.imitation import train
from babyai.training.learner import Learner
from babyai.training.options import ImitationOptions
from babyai.training.prefetch import Prefetcher
from babyai.training.run import RunError, read_config, read_rows
from babyai.tree import tree_leaves
from tests.training.same import assert_equal_tensors, assert_same_run, best, newest, weights
from tests.training.short_runs import PAPER, Pretend, dagger_options, imitation_options, ppo_options
from tests.training.tiny import PATH

ROOT = Path(__file__).parents[2]
TRAIN: dict[str, tuple[Any, Any]] = {
    "imitation": (imitation_options, imitation.train),
    "dagger": (dagger_options, dagger.train),
    "ppo": (ppo_options, ppo.train),
}


def stop_after(updates: int) -> Callable[[], bool]:
    """Stops a run after so many updates."""
    answers = iter([False] * (updates - 1) + [True])
    return lambda: next(answers)


# ------------------------------------------------------------ the best, and patience


def test_the_best_is_kept_and_patience_ends(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.2, 0.6, 0.5, 0.6, 0.1, 0.9])
    session = train(imitation_options(tmp_path / "run", epochs=50, patience=2))
    # The third validation without improvement is one more than the patience.
    assert len(session.run.rows()) == 5 and newest(session.folder).name == "000000020"
    assert session.best_success == 0.6 and session.validations == 5
    assert best(session.folder).name == "best-000000008"
    pretend([0.2, 0.6])
    short = train(imitation_options(tmp_path / "short", epochs=2))
    assert_equal_tensors(weights(best(session.folder)), weights(newest(short.folder)))
    last = weights(newest(session.folder))
    assert not all(torch.equal(value, last[name]) for name, value in weights(newest(short.folder)).items())


def test_patience_continues_when_a_run_is_resumed(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.6, 0.5])
    options = imitation_options(tmp_path / "run", epochs=50, patience=2)
    train(options, stop=stop_after(9))
    pretend([0.5])
    resumed = train(options, resume=True)
    assert len(resumed.run.rows()) == 4 and resumed.best_success == 0.6


def test_reward_breaks_ties_only_for_ppo(tmp_path: Path, pretend: Pretend) -> None:
    assert ppo.PPORun.reward_breaks_ties and not imitation.Imitation.reward_breaks_ties
    # With the same success and the same reward, the first remains the best.
    pretend([0.5])
    session = ppo.train(ppo_options(tmp_path / "run", frames=640))
    assert best(session.folder).name == "best-000000010"


def test_the_best_agent_can_be_saved_in_bf16(tmp_path: Path) -> None:
    session = train(imitation_options(tmp_path / "run", save_dtype="bf16", epochs=1))
    assert torch.bfloat16 in {tensor.dtype for tensor in weights(best(session.folder)).values()}
    assert torch.bfloat16 not in {tensor.dtype for tensor in weights(newest(session.folder)).values()}
    tensors, _ = read_tensors(newest(session.folder) / "training.safetensors")
    assert torch.bfloat16 not in {tensor.dtype for tensor in tensors.values()}


# ------------------------------------------------------------ initial weights


def test_init_from_starts_with_the_weights_of_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = train(imitation_options(tmp_path / "before"))
    options = imitation_options(tmp_path / "after", init_from=str(before.folder), learning_rate=1e-30, epochs=1, seed=5)
    after = train(options)
    assert_equal_tensors(weights(newest(after.folder)), weights(best(before.folder)))
    assert caplog.messages == []


def test_init_from_another_agent_warns_or_is_refused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    Agent.create("bow_endpool_res", seed=0, memory_dim=16, bag_of_words="sum").save(tmp_path / "sum")
    Agent.create(PATH, seed=0).save(tmp_path / "own")
    short = {"batch_size": 1, "epoch_length": 1, "epochs": 1}
    train(imitation_options(tmp_path / "mean", **PAPER, **short, init_from=str(tmp_path / "sum")))
    [message] = caplog.messages
    assert "bag_of_words is 'sum' there and 'mean' here" in message
    with pytest.raises(CheckpointError, match=r"missing there|missing here"):
        train(imitation_options(tmp_path / "other", **PAPER, init_from=str(tmp_path / "own")))
    with pytest.raises(OSError, match="nowhere"):
        train(imitation_options(tmp_path / "none", init_from=str(tmp_path / "nowhere")))
    assert not (tmp_path / "other").exists() and not (tmp_path / "none").exists()


def test_reinforcement_learning_follows_imitation(tmp_path: Path) -> None:
    before = train(imitation_options(tmp_path / "before", epochs=1))
    options = ppo_options(tmp_path / "after", init_from=str(before.folder), learning_rate=1e-30, frames=320, seed=9)
    after = ppo.train(options)
    assert_equal_tensors(weights(newest(after.folder)), weights(best(before.folder)))


# ------------------------------------------------------------ interruptions


@pytest.mark.parametrize(
    ("algorithm", "updates", "changes"),
    [
        ("imitation", 6, {"epochs": 5}),
        ("imitation", 6, {"epochs": 5, "demos": None, "endless": True}),
        ("dagger", 7, {"batch_size": 16, "epoch_length": 64, "epochs": 3}),
        ("ppo", 15, {}),
    ],
    ids=["imitation", "imitation from endless demonstrations", "dagger", "ppo"],
)
def test_a_stopped_run_ends_like_an_undisturbed_one(
    algorithm: str, updates: int, changes: dict[str, Any], tmp_path: Path
) -> None:
    make_options, run = TRAIN[algorithm]
    whole = run(make_options(tmp_path / "whole", **changes))
    options = make_options(tmp_path / "parts", **changes)
    stopped = run(options, stop=stop_after(updates))
    # In the middle of the second row.
    assert len(stopped.run.rows()) == 1 and newest(stopped.folder).name == f"{updates:09d}"
    assert stopped.run.interrupted
    resumed = run(options, resume=True)
    assert not resumed.run.interrupted
    assert_same_run(whole.folder, resumed.folder)


@pytest.mark.parametrize(
    "changes",
    [{}, pytest.param({"size": "big", "last_action": True, "protocol": "code"}, marks=pytest.mark.long)],
    ids=["small", "big"],
)
def test_the_papers_agent_resumes_imitation_to_the_bit(
    changes: dict[str, Any], tmp_path: Path, pretend: Pretend
) -> None:
    pretend([0.1, 0.4, 0.2])
    short = {"levels": "GoToSeqS5R2", "demos": 6, "batch_size": 1, "epoch_length": 2, "epochs": 3}
    options = imitation_options(tmp_path / "whole", **PAPER, **short, **changes)
    whole = train(options)
    parts = replace(options, out=str(tmp_path / "parts"))
    # In the middle of an epoch.
    train(parts, stop=stop_after(1))
    pretend([0.1, 0.4, 0.2])
    assert_same_run(whole.folder, train(parts, resume=True).folder)


def test_the_papers_agent_resumes_ppo_to_the_bit(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    # Missions of very different lengths.
    small = {"worlds": 2, "steps": 2, "recurrence": 2, "minibatches": 1, "frames": 40}
    options = ppo_options(tmp_path / "whole", **PAPER, **small, levels="GoToSeqS5R2", last_action=True)
    whole = ppo.train(options)
    parts = replace(options, out=str(tmp_path / "parts"))
    ppo.train(parts, stop=stop_after(1))
    assert_same_run(whole.folder, ppo.train(parts, resume=True).folder)


@pytest.mark.parametrize("policy", ["Forgetful", "TwoMemories"])
@pytest.mark.parametrize("algorithm", ["imitation", "ppo"])
def test_a_policy_of_ones_own_resumes_to_the_bit(policy: str, algorithm: str, tmp_path: Path) -> None:
    """Also if it has dropout, which draws random numbers, or a state of integers that does not start as zeros."""
    make_options, run = TRAIN[algorithm]
    options = make_options(tmp_path / "whole", architecture=PATH.replace(":Tiny", f":{policy}"))
    torch.manual_seed(1)
    whole = run(options)
    parts = replace(options, out=str(tmp_path / "parts"))
    run(parts, stop=stop_after(3))
    torch.manual_seed(2)
    assert_same_run(whole.folder, run(parts, resume=True).folder)


KILLED = """
import os, signal
import torch
from babyai.training import fit
from babyai.training.imitation import ImitationOptions, train

torch.set_num_threads(1)
log = fit.Session.log

def log_and_be_killed(self, done, row):
    log(self, done, row)
    if len(self.run.rows()) == 3:
        os.kill(os.getpid(), signal.SIGKILL)

fit.Session.log = log_and_be_killed
"""


@pytest.mark.skipif(os.name != "posix", reason="kill -9 works differently elsewhere")
def test_a_killed_run_ends_like_an_undisturbed_one(tmp_path: Path) -> None:
    options = imitation_options(tmp_path / "whole", epochs=5, checkpoint_seconds=0.0)
    whole = train(options)
    options = replace(options, out=str(tmp_path / "killed"))
    script = f"{KILLED}train({options!r})\n"
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=ROOT, check=False)
    assert done.returncode == -signal.SIGKILL
    # The row of an update that has no checkpoint yet.
    assert len(read_rows(tmp_path / "killed")) == 3 and newest(tmp_path / "killed").name == "000000011"
    resumed = train(options, resume=True)
    assert_same_run(whole.folder, resumed.folder)
    assert read_config(resumed.folder)["resumed"][0]["checkpoint"] == "000000011"


def test_a_damaged_checkpoint_is_repeated_from_the_one_before(tmp_path: Path) -> None:
    whole = train(imitation_options(tmp_path / "whole", epochs=3))
    options = imitation_options(tmp_path / "parts", epochs=3, checkpoint_seconds=0.0)
    train(options, stop=stop_after(10))
    damaged = newest(tmp_path / "parts") / "training.safetensors"
    damaged.write_bytes(damaged.read_bytes()[:-1])
    resumed = train(options, resume=True)
    assert read_config(resumed.folder)["resumed"][0]["checkpoint"] == "000000009"
    assert_same_run(whole.folder, resumed.folder)


def test_a_finished_run_does_not_change_when_resumed(tmp_path: Path) -> None:
    session = train(imitation_options(tmp_path / "run"))
    rows = session.run.rows()
    before = weights(newest(session.folder))
    again = train(imitation_options(tmp_path / "run"), resume=True)
    assert again.run.rows() == rows
    assert_equal_tensors(weights(newest(again.folder)), before)
    more = train(imitation_options(tmp_path / "run", epochs=3), resume=True)
    assert len(more.run.rows()) == 3


def test_a_run_from_before_an_option_existed_can_be_resumed(tmp_path: Path) -> None:
    session = train(imitation_options(tmp_path / "run"))
    path = session.folder / "config.json"
    config = json.loads(path.read_text())
    del config["config"]["first_seed"], config["config"]["settings"]
    path.write_text(json.dumps(config))
    with pytest.raises(RunError, match="first_seed was 0, is 3"):
        train(imitation_options(tmp_path / "run", epochs=3, first_seed=3), resume=True)
    more = train(imitation_options(tmp_path / "run", epochs=3), resume=True)
    assert len(more.run.rows()) == 3


def test_a_run_without_a_checkpoint_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = train(imitation_options(tmp_path / "before", seed=3))
    options = imitation_options(tmp_path / "run", init_from=str(before.folder))
    whole = train(replace(options, out=str(tmp_path / "whole")))

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "save", fail)
        with pytest.raises(KeyboardInterrupt):
            train(options)
    assert_same_run(whole.folder, train(options, resume=True).folder)


def test_a_session_that_cannot_start_unlocks_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Agent.create(PATH, seed=0).save(tmp_path / "agent")
    options = imitation_options(tmp_path / "run", init_from=str(tmp_path / "agent"), epochs=1)

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "save", fail)
        with pytest.raises(KeyboardInterrupt):
            train(options)
    (tmp_path / "agent").rename(tmp_path / "moved")
    with pytest.raises(OSError, match="agent") as caught:
        train(options, resume=True)
    (tmp_path / "moved").rename(tmp_path / "agent")
    # As long as the error is kept, so is everything in its traceback.
    assert len(train(options, resume=True).run.rows()) == 1
    assert caught.value is not None


def test_a_time_limit_stops_after_an_update(tmp_path: Path) -> None:
    session = train(imitation_options(tmp_path / "run", max_minutes=0.0))
    assert session.run.rows() == [] and newest(session.folder).name == "000000001"
    assert not session.run.interrupted


def test_a_signal_stops_after_an_update(tmp_path: Path) -> None:
    def interrupt() -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return False

    session = train(imitation_options(tmp_path / "run", epochs=3), stop=interrupt)
    assert session.run.interrupted and newest(session.folder).name in ("000000001", "000000002")


def test_checkpoints_are_written_at_intervals(
    tmp_path: Path, pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend([0.5])
    saved: list[tuple[int, bool]] = []
    save = Session.save

    def note(self: Session, algorithm: Algorithm, is_best: bool) -> None:
        saved.append((algorithm.num_updates, is_best))
        save(self, algorithm, is_best)

    monkeypatch.setattr(Session, "save", note)
    train(imitation_options(tmp_path / "seldom", checkpoint_seconds=1e9))
    # The best at once, and the last.
    assert saved == [(4, True), (8, False)]
    saved.clear()
    train(imitation_options(tmp_path / "always", checkpoint_seconds=0.0, epochs=1))
    assert saved == [(1, False), (2, False), (3, False), (4, True)]


# ------------------------------------------------------------ refusals


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"architecture": "bow_endpol_res"}, "'bow_endpool_res'"),
        ({"architecture": "nowhere.py:Policy"}, r"nowhere\.py"),
        ({"architecture": f"{PATH}y"}, "'Tiny'"),
        ({"settings": ("hiden=8",)}, "hiden"),
        ({"device": "tpu"}, "'tpu'"),
        ({"device": "mps"}, "'mps'"),
        ({"precision": "half"}, "'half'"),
    ],
    ids=lambda value: "-".join(map(str, value)) if isinstance(value, dict) else None,
)
def test_mistakes_are_refused_before_there_is_a_run(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train(imitation_options(tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_missing_gpu_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'cuda'.*'cpu'"):
        train(imitation_options(tmp_path / "run", device="cuda"))
    assert not (tmp_path / "run").exists()


def test_a_folder_with_another_run_is_left_alone(tmp_path: Path) -> None:
    session = train(imitation_options(tmp_path / "run", epochs=1))
    with pytest.raises(RunError, match="already holds a run"):
        train(imitation_options(tmp_path / "run", epochs=1))
    with pytest.raises(RunError, match=r"batch_size was 4, is 5, seed was 0, is 1"):
        train(imitation_options(tmp_path / "run", batch_size=5, seed=1), resume=True)
    with pytest.raises(RunError, match="'imitation', not of 'dagger'"):
        dagger.train(dagger_options(tmp_path / "run"), resume=True)
    with pytest.raises(RunError, match=r"nowhere.*config\.json"):
        train(imitation_options(tmp_path / "nowhere"), resume=True)
    assert len(session.run.rows()) == 1 and not (tmp_path / "nowhere").exists()


def test_ppos_epochs_may_not_change_when_a_run_is_resumed(tmp_path: Path) -> None:
    ppo.train(ppo_options(tmp_path / "run", frames=320))
    with pytest.raises(RunError, match=r"\(epochs was 1, is 9\)"):
        ppo.train(ppo_options(tmp_path / "run", frames=640, epochs=9), resume=True)


# ------------------------------------------------------------ an algorithm of one's own


class ReturnWeightedCloning(Algorithm):
    """Behavior cloning that weighs each step by the reward that its episode gets within the batch."""

    name = "weighted"
    updates_per_row = 4
    lanes = 6
    steps = 8

    def __init__(self, session: Session) -> None:
        assert isinstance(session.options, ImitationOptions) and session.options.file is not None
        self.options = session.options
        source = FileSource(session.options.file, seed=session.options.seed)
        self.replay = Replay(source, steps=self.steps, lanes=self.lanes)
        fields = (*OBSERVATION_FIELDS, "labels", "rewards")
        self.batches = Prefetcher(self.replay, session.device, fields)
        self.learner = Learner(session.policy, self.loss, ("loss", "weight"), learning_rate=1e-2)
        self.memory = session.policy.initial_state(self.lanes)  # pyright: ignore[reportCallIssue]
        self.learn = self.learner.graph(self._learn, lambda: tree_leaves(self.memory))
        self.frames_per_update = self.lanes * self.steps

    def loss(self, unrolled: Unrolled, batch: Batch) -> tuple[Tensor, Tensor]:
        weights = torch.zeros_like(batch.rewards)
        following = torch.zeros_like(batch.rewards[0])
        for step in reversed(range(batch.num_steps)):
            weights[step] = batch.rewards[step] + following
            following = torch.where(batch.starts[step], 0.0, weights[step])
        log_probs = unrolled.logits.log_softmax(2).gather(2, batch.labels.long()[..., None])[..., 0]
        loss = -(weights * log_probs).mean()
        return loss, torch.stack([loss, weights.mean()]).detach()

    def _learn(self, batch: Batch) -> None:
        copy_state(self.memory, self.learner.gradient_step(batch, self.memory))

    def update(self) -> None:
        self.learn(next(self.batches))

    def metrics(self) -> dict[str, Any]:
        return {"frames": self.num_updates * self.frames_per_update, **self.learner.metrics()}

    @property
    def progress(self) -> float:
        return float(self.num_updates)

    def is_finished(self) -> bool:
        return self.num_updates >= self.updates_per_row * self.options.epochs

    def tensors(self) -> dict[str, Tensor]:
        return {"memory": self.memory, "totals": self.learner.totals}

    def state_dict(self) -> dict[str, Any]:
        return {"replay": self.replay.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.replay.load_state_dict(state["replay"])

    def close(self) -> None:
        self.replay.close()


def test_an_algorithm_of_ones_own_trains_and_resumes(tmp_path: Path, demo_file: Path) -> None:
    options = imitation_options(tmp_path / "whole", demos=None, file=str(demo_file), epochs=6)
    whole = fit(options, ReturnWeightedCloning)
    rows = whole.run.rows()
    assert len(rows) == 6 and rows[-1]["loss"] < 0.6 * rows[0]["loss"] and 0 < rows[0]["weight"] < 1
    assert read_config(whole.folder)["kind"] == "weighted"
    parts = replace(options, out=str(tmp_path / "parts"))
    fit(parts, ReturnWeightedCloning, stop=stop_after(10))
    assert_same_run(whole.folder, fit(parts, ReturnWeightedCloning, resume=True).folder)
    # The command line does not know it.
    with pytest.raises(RunError, match="'weighted'"):
        read_options(str(whole.folder), {})


def test_a_display_sees_progress(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])

    class Notes:
        def __init__(self) -> None:
            self.calls: list[tuple[str, Any]] = []

        def note(self, text: str) -> None:
            self.calls.append(("note", text))

        def begin_at(self, done: float) -> None:
            self.calls.append(("begin_at", done))

        def advance(self, done: float) -> None:
            self.calls.append(("advance", done))

        def update(self, done: float, row: Any) -> None:
            self.calls.append(("update", json.dumps(row) != "" and done))

    options = imitation_options(tmp_path / "run")
    first = Notes()
    fit(options, imitation.Imitation, display=first, stop=stop_after(4))
    assert ("note", "") in first.calls
    assert [call for call in first.calls if call[0] != "note"] == [
        *(("advance", 4 * update) for update in range(1, 5)),
        ("update", 16),
    ]
    second = Notes()
    fit(options, imitation.Imitation, display=second, resume=True)
    assert [call for call in second.calls if call[0] != "note"] == [
        ("begin_at", 16),
        *(("advance", 4 * update) for update in range(5, 9)),
        ("update", 32),
    ]
