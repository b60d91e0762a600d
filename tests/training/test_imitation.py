"""Imitation: it learns, its numbers are the paper's, and no interruption changes what comes of it."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from babyai.agents.agent import Agent
from babyai.agents.checkpoint import CheckpointError
from babyai.agents.tensors import read_json
from babyai.demos.collect import collect
from babyai.demos.replay import Replay
from babyai.demos.sources import FileSource
from babyai.training import imitation
from babyai.training.checkpoints import RunError
from babyai.training.imitation import ImitationOptions, open_source, prepare, train
from babyai.training.run import read_rows
from babyai.training.session import Session
from tests.training.same import assert_equal_tensors, assert_same_run, newest, weights
from tests.training.tiny import PATH

ROOT = Path(__file__).parents[2]
Pretend = Callable[[list[float]], list[tuple[str, int]]]


def tiny(out: Path, **changes: Any) -> ImitationOptions:
    """A run of a second or less."""
    settings: dict[str, Any] = {"levels": "GoToObjS4", "demos": 40, "architecture": PATH, "batch": 4, "recurrence": 5}
    settings |= {"epoch_demos": 16, "epochs": 2, "validation_missions": 4, "learning_rate": 1e-2, "device": "cpu"}
    return ImitationOptions(**settings | {"out": str(out), "quiet": True, "threads": 1} | changes)


def paper(out: Path, **changes: Any) -> ImitationOptions:
    """The same with the paper's network, as narrow as it goes."""
    return tiny(out, architecture="bow_endpool_res", memory_dim=16, **changes)


# ------------------------------------------------------------ it learns


def test_the_papers_agent_learns_demonstrations_by_heart(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.0])
    options = paper(tmp_path / "run", levels="GoToRedBallGrey", demos=4, batch=4, recurrence=6, learning_rate=3e-3)
    session = train(replace(options, epoch_demos=60, epochs=3))
    rows = session.run.rows()
    actions = FileSource(session.folder / "demos.parquet").demos.actions
    majority = np.bincount(actions).max() / len(actions)
    assert majority < 0.75
    assert rows[-1]["accuracy"] > 0.85 and rows[-1]["loss"] < 0.4 * rows[0]["loss"]
    # Without entropy in the loss, it is the cross entropy.
    assert rows[-1]["loss"] == pytest.approx(rows[-1]["cross_entropy"])


def test_what_is_learned_holds_for_missions_never_seen(tmp_path: Path) -> None:
    session = train(tiny(tmp_path / "run", demos=400, batch=32, epoch_demos=1600, epochs=4, validation_missions=64))
    success = [row["success"] for row in session.run.rows()]
    assert success[-1] > 0.8 and session.best_success == max(success)


# ------------------------------------------------------------ the protocol


@pytest.mark.parametrize(
    ("changes", "batch", "recurrence", "epoch", "rate", "entropy", "statistics"),
    [
        ({}, 256, 20, 25_600, 1e-4, 0.0, "chunk"),
        ({"size": "big"}, 128, 80, 102_400, 5e-5, 0.01, "chunk"),
        ({"protocol": "code"}, 256, 20, 25_600, 1e-4, 0.01, "step"),
        ({"protocol": "code", "size": "big"}, 128, 80, 51_200, 5e-5, 0.01, "step"),
        ({"entropy": 0.5, "batch": 7, "statistics": "step"}, 7, 20, 25_600, 1e-4, 0.5, "step"),
        ({"size": "big", "entropy": 0.0, "learning_rate": 1e-3}, 128, 80, 102_400, 1e-3, 0.0, "chunk"),
    ],
)
def test_what_is_not_said_follows_from_size_and_protocol(
    changes: dict[str, Any],
    batch: int,
    recurrence: int,
    epoch: int,
    rate: float,
    entropy: float,
    statistics: str,
) -> None:
    numbers = ImitationOptions(demos=1, **changes).resolve()
    assert (numbers.batch, numbers.recurrence, numbers.epoch_demos) == (batch, recurrence, epoch)
    assert (numbers.learning_rate, numbers.entropy, numbers.statistics) == (rate, entropy, statistics)
    assert numbers.updates == epoch // batch


def test_protocols_differ_in_the_bag_of_words() -> None:
    merges = [ImitationOptions(demos=1, protocol=protocol).agent_config().bag_of_words for protocol in ("text", "code")]
    assert merges == ["mean", "sum"]


def test_an_update_sees_the_frames_of_a_batch_on_average(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    options = tiny(tmp_path / "run", batch=8, recurrence=5, epoch_demos=803, epochs=2)
    session = train(options)
    length = FileSource(session.folder / "demos.parquet").demos.lengths.mean()
    lanes = round(8 * length / 5)
    rows = session.run.rows()
    # The last 3 demonstrations of an epoch do not fill a batch.
    assert [row["frames"] for row in rows] == [100 * lanes * 5, 200 * lanes * 5]
    for row in rows:
        # Demonstrations are counted where they begin; all lanes begin one.
        assert row["demos"] == pytest.approx(row["frames"] / length + lanes / 2, rel=0.02)
    assert rows[-1]["demos"] == pytest.approx(1600, rel=0.05)


def test_the_learning_rate_falls_every_hundred_epochs(
    tmp_path: Path, pretend: Pretend, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend([0.5])
    rates: list[float] = []
    monkeypatch.setattr(imitation, "set_learning_rate", lambda _, rate: rates.append(rate))
    train(tiny(tmp_path / "run", batch=1, epoch_demos=1, epochs=101, patience=200, save_seconds=1e9))
    assert rates == pytest.approx([1e-2] * 100 + [0.9e-2])


def test_the_learning_rate_reaches_the_optimizer(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    session = train(tiny(tmp_path / "run", epochs=1, learning_rate=1e-30))
    assert_equal_tensors(weights(session.folder), first_weights())


def first_weights() -> dict[str, torch.Tensor]:
    return dict(Agent.create(PATH, seed=0).model.state_dict())


def test_the_best_is_kept_and_patience_ends(tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.2, 0.6, 0.5, 0.6, 0.1, 0.9])
    session = train(tiny(tmp_path / "run", epochs=50, patience=2))
    # The third validation that is no better is one more than the patience.
    assert len(session.run.rows()) == 5 and newest(session.folder).name == "000000020"
    assert session.best_success == 0.6 and session.validations == 5 and session.since_best == 3
    pretend([0.2, 0.6])
    short = train(tiny(tmp_path / "short", epochs=2))
    assert_equal_tensors(weights(session.folder, "best"), weights(short.folder))
    assert not all(map(torch.equal, weights(session.folder).values(), weights(short.folder).values()))


def test_each_validation_plays_other_missions_of_every_level(tmp_path: Path, pretend: Pretend) -> None:
    asked = pretend([0.2, 0.6, 0.4, 0.4])
    levels = "GoToObjS4,GoToRedBallGrey"
    session = train(tiny(tmp_path / "run", levels=levels, demos=10, validation_missions=7))
    first, second = levels.split(",")
    assert asked == [(level, 10**9 + start) for start in (0, 7) for level in (first, second)]
    rows = session.run.rows()
    assert [row["success"] for row in rows] == pytest.approx([0.4, 0.4])
    assert rows[0]["levels"][second]["success_rate"] == 0.6 and rows[0]["levels"][first]["first_seed"] == 10**9


def test_validations_are_of_the_agent_as_it_is_then(tmp_path: Path) -> None:
    from babyai.evaluation.evaluate import evaluate
    from babyai.evaluation.players import AgentPlayer

    session = train(tiny(tmp_path / "run", validation_missions=16))
    player = AgentPlayer(Agent.load(newest(session.folder), device="cpu", trust=True).model)
    again = evaluate(player, "GoToObjS4", missions=16, first_seed=10**9 + 16)
    row = session.run.rows()[-1]["levels"]["GoToObjS4"]
    assert {**row, "seconds": 0} == {**again.to_dict(), "seconds": 0}


# ------------------------------------------------------------ what is learned from


def open_for(options: ImitationOptions, folder: Path) -> Any:
    """The source of demonstrations of a run that only has its folder."""

    class Stub:
        pass

    stub: Any = Stub()
    stub.folder, stub.collecting = folder, lambda done, total: None
    return open_source(options, stub)


def test_demos_are_those_of_the_first_seeds_of_each_level(tmp_path: Path) -> None:
    source = open_for(tiny(tmp_path, levels="GoToObjS4,GoToObj", demos=12), tmp_path)
    assert sorted(source.demos.seeds.tolist()) == sorted([*range(12), *range(12)])
    assert [level.name for level in source.levels] == ["GoToObjS4", "GoToObj"]


def test_levels_come_up_as_often_as_weighted(tmp_path: Path) -> None:
    options = tiny(tmp_path, levels="GoToObjS4,GoToObj", demos=12, weights="1, 3")
    shares = np.bincount(open_for(options, tmp_path).take(4000).levels) / 4000
    assert shares == pytest.approx([0.25, 0.75], abs=0.03)
    endless = open_for(tiny(tmp_path, levels="GoToObjS4,GoToObj", demos=None, endless=True, weights="3,1"), tmp_path)
    assert np.bincount(endless.take(4000).levels) / 4000 == pytest.approx([0.75, 0.25], abs=0.03)
    endless.close()


def test_several_levels_train_together(tmp_path: Path) -> None:
    session = train(tiny(tmp_path / "run", levels="GoToObjS4,GoToObj", demos=12, weights="1,3", epochs=1))
    [row] = session.run.rows()
    assert list(row["levels"]) == ["GoToObjS4", "GoToObj"]
    rates = [result["success_rate"] for result in row["levels"].values()]
    assert row["success"] == pytest.approx(sum(rates) / 2)


def test_a_file_gives_its_first_rows(tmp_path: Path, demo_file: Path) -> None:
    source = open_for(tiny(tmp_path, demos=5, file=str(demo_file)), tmp_path)
    assert source.demos.seeds.tolist() == [0, 1, 2, 3, 4]
    assert len(open_for(tiny(tmp_path, demos=None, file=str(demo_file)), tmp_path).demos) == 40
    with pytest.raises(ValueError, match="has 40 demonstrations, so 41 cannot be taken"):
        open_for(tiny(tmp_path, demos=41, file=str(demo_file)), tmp_path)


def test_a_file_trains_as_the_same_demonstrations_collected(tmp_path: Path, demo_file: Path) -> None:
    collected = train(tiny(tmp_path / "collected"))
    read = train(tiny(tmp_path / "read", demos=None, file=str(demo_file)))
    assert_equal_tensors(weights(collected.folder), weights(read.folder))


def test_other_files_are_refused(tmp_path: Path, demo_file: Path) -> None:
    with pytest.raises(ValueError, match=r"holds GoToObjS4; say --levels GoToObjS4"):
        train(tiny(tmp_path / "a", levels="GoToLocal", file=str(demo_file)))
    with pytest.raises(ValueError, match=r"is of rules 'paper'; say --rules paper"):
        train(tiny(tmp_path / "b", rules="minigrid", file=str(demo_file)))
    with pytest.raises(OSError, match=r"nothing\.parquet"):
        train(tiny(tmp_path / "c", file=str(tmp_path / "nothing.parquet")))
    (tmp_path / "junk").write_bytes(b"junk")
    with pytest.raises(ValueError, match="junk"):
        train(tiny(tmp_path / "d", file=str(tmp_path / "junk")))


def test_rows_without_one_of_the_levels_are_refused(tmp_path: Path) -> None:
    collect(["GoToObjS4", "GoToObjS6"], 5, 0, tmp_path / "two.parquet", threads=1)
    options = tiny(tmp_path / "run", levels="GoToObjS4,GoToObjS6", demos=5, file=str(tmp_path / "two.parquet"))
    with pytest.raises(ValueError, match=r"none of the first 5 demonstrations of .* is of GoToObjS6"):
        train(options)
    train(replace(options, demos=6, epochs=1))


def test_demonstrations_of_reserved_seeds_are_refused(tmp_path: Path) -> None:
    collect("GoToObjS4", 3, 10**9, tmp_path / "valid.parquet", threads=1)
    with pytest.raises(ValueError, match=r"reserved|validation"):
        train(tiny(tmp_path / "run", demos=None, file=str(tmp_path / "valid.parquet")))


def test_endless_demonstrations_never_come_twice(tmp_path: Path) -> None:
    options = tiny(tmp_path, demos=None, endless=True)
    seeds = open_for(options, tmp_path).take(3000).seeds
    assert len(set(seeds.tolist())) == 3000 and seeds.max() < 10**9
    session = train(replace(options, out=str(tmp_path / "run"), epochs=1))
    assert not (session.folder / "demos.parquet").exists() and len(session.run.rows()) == 1


# ------------------------------------------------------------ agents


def test_init_from_begins_with_the_weights_of_a_run(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    before = train(tiny(tmp_path / "before"))
    options = tiny(tmp_path / "after", init_from=str(before.folder), learning_rate=1e-30, epochs=1, seed=5)
    assert_equal_tensors(weights(train(options).folder), weights(before.folder, "best"))
    assert caplog.messages == []
    other = train(paper(tmp_path / "sum", protocol="code", epochs=1))
    train(paper(tmp_path / "mean", init_from=str(other.folder), epochs=1))
    assert caplog.messages[0].endswith("of another agent: bag_of_words is 'sum' there and 'mean' here")
    with pytest.raises(CheckpointError, match="of other sizes than this model"):
        train(paper(tmp_path / "other", init_from=str(before.folder)))
    with pytest.raises(OSError, match="no checkpoint at"):
        train(tiny(tmp_path / "none", init_from=str(tmp_path / "nowhere")))
    assert not (tmp_path / "other").exists() and not (tmp_path / "none").exists()


@pytest.mark.parametrize(
    "changes",
    [
        {"architecture": "pixels_endpool_res"},
        {"architecture": "original", "instruction": False, "direction": True, "last_action": True},
        {"size": "big"},
        {"memory_dim": 0, "protocol": "code"},
    ],
    ids=lambda changes: "-".join(map(str, changes.values())),
)
def test_every_kind_of_agent_trains(changes: dict[str, Any], tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.5])
    options = tiny(tmp_path / "run", **{"memory_dim": 8, **changes}, batch=2, recurrence=4, epoch_demos=4, epochs=1)
    options = options if "architecture" in changes else replace(options, architecture="bow_endpool_res")
    session = train(options)
    assert np.isfinite(session.run.rows()[0]["loss"])
    agent = Agent.load(session.folder, device="cpu")
    assert agent.config == session.agent and agent.config.pixels == ("pixels" in options.architecture)


def test_the_agent_is_told_what_it_did_last_across_chunks(tmp_path: Path) -> None:
    """What is fed to the network as its last action is what the demonstration did one step before."""
    options = tiny(tmp_path / "run")
    seen: list[tuple[np.ndarray, ...]] = []
    with Session(options, "imitation") as session:
        replay, feed, learner = prepare(options, options.resolve(), open_source(options, session), session)
        unroll = learner._unroll

        def spy(steps: Any, memory: torch.Tensor) -> Any:
            seen.append((steps.last_actions.numpy().copy(), steps.first.numpy().copy(), memory.numpy().copy()))
            return unroll(steps, memory)

        learner._unroll = spy  # pyright: ignore[reportAttributeAccessIssue]
        actions = []
        for _ in range(4):
            chunk = next(feed)
            actions.append(chunk.actions.numpy().copy())
            learner.learn(chunk)
        replay.close()
    done, told = np.concatenate(actions).astype(int), np.concatenate([last for last, _, _ in seen])
    first = np.concatenate([begins for _, begins, _ in seen])
    assert first[0].all() and not first.all()
    assert (told[first] == -1).all()
    assert (told[1:][~first[1:]] == done[:-1][~first[1:]]).all()
    # Memory is carried from chunk to chunk.
    assert not seen[0][2].any() and all(memory.any() for _, _, memory in seen[1:])


# ------------------------------------------------------------ interruptions


@pytest.mark.parametrize("source", ["demos", "endless"])
def test_a_run_that_was_stopped_ends_as_an_undisturbed_one(source: str, tmp_path: Path) -> None:
    data = {"demos": None, "endless": True} if source == "endless" else {}
    whole = train(tiny(tmp_path / "whole", epochs=5, **data))
    asked = iter([False] * 5 + [True])
    stopped = train(tiny(tmp_path / "parts", epochs=5, **data), stop=lambda: next(asked))
    # In the middle of the second epoch.
    assert len(stopped.run.rows()) == 1 and newest(stopped.folder).name == "000000006"
    resumed = train(tiny(tmp_path / "parts", epochs=5, resume=True, **data))
    assert_same_run(whole.folder, resumed.folder)


@pytest.mark.parametrize(
    "changes", [{}, {"size": "big", "last_action": True, "protocol": "code"}], ids=["small", "big"]
)
def test_the_papers_agent_resumes_to_the_bit(changes: dict[str, Any], tmp_path: Path, pretend: Pretend) -> None:
    pretend([0.1, 0.4, 0.2])
    options = paper(tmp_path / "whole", levels="GoToSeqS5R2", demos=6, batch=1, epoch_demos=2, epochs=3, **changes)
    whole = train(options)
    # Stopped in the middle of an epoch.
    train(replace(options, out=str(tmp_path / "parts")), stop=lambda: True)
    pretend([0.1, 0.4, 0.2])
    resumed = train(replace(options, out=str(tmp_path / "parts"), resume=True))
    assert_same_run(whole.folder, resumed.folder)


def test_layers_that_draw_at_random_go_on_drawing(tmp_path: Path) -> None:
    options = tiny(tmp_path / "whole", architecture=f"{Path(__file__).parent / 'tiny.py'}:Forgetful")
    torch.manual_seed(1)
    whole = train(options)
    asked = iter([False] * 2 + [True])
    train(replace(options, out=str(tmp_path / "parts")), stop=lambda: next(asked))
    torch.manual_seed(2)
    assert_same_run(whole.folder, train(replace(options, out=str(tmp_path / "parts"), resume=True)).folder)


@pytest.mark.skipif(os.name != "posix", reason="kills are the operating system's")
def test_a_run_that_was_killed_ends_as_an_undisturbed_one(tmp_path: Path) -> None:
    whole = train(tiny(tmp_path / "whole", epochs=12, save_seconds=0.0))
    options = tiny(tmp_path / "killed", epochs=12, save_seconds=0.0)
    script = (
        "import torch; torch.set_num_threads(1)\n"
        "from babyai.training.imitation import ImitationOptions, train\n"
        f"train({options!r})\n"
    )
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([sys.executable, "-c", script], env=environment, cwd=ROOT)
    try:
        wait_for(lambda: len(read_rows(tmp_path / "killed")) >= 2, process)
        process.send_signal(signal.SIGKILL)
    finally:
        process.kill()
        process.wait()
    assert 2 <= len(read_rows(tmp_path / "killed")) < 12
    resumed = train(replace(options, resume=True))
    assert_same_run(whole.folder, resumed.folder)
    assert read_json(tmp_path / "killed" / "config.json")["resumed"][0]["checkpoint"] is not None


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert process.poll() is None, "the run ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_finished_run_stays_as_it_is_when_resumed(tmp_path: Path) -> None:
    session = train(tiny(tmp_path / "run"))
    rows, before = session.run.rows(), weights(session.folder)
    again = train(tiny(tmp_path / "run", resume=True))
    assert again.run.rows() == rows
    assert_equal_tensors(weights(again.folder), before)
    more = train(tiny(tmp_path / "run", resume=True, epochs=3))
    assert len(more.run.rows()) == 3


def test_a_run_without_a_checkpoint_begins_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = train(tiny(tmp_path / "before", seed=3))
    options = tiny(tmp_path / "run", init_from=str(before.folder))
    whole = train(replace(options, out=str(tmp_path / "whole")))

    def fail(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Session, "save", fail)
        with pytest.raises(KeyboardInterrupt):
            train(options)
    resumed = train(replace(options, resume=True))
    assert_same_run(whole.folder, resumed.folder)


def test_time_and_interrupts_end_a_run_that_can_go_on(tmp_path: Path) -> None:
    session = train(tiny(tmp_path / "late", max_minutes=0.0))
    assert len(session.run.rows()) == 0 and newest(session.folder).name == "000000001"
    with_signal = tiny(tmp_path / "interrupted", epochs=3)

    def interrupt() -> bool:
        os.kill(os.getpid(), signal.SIGINT)
        return False

    session = train(with_signal, stop=interrupt)
    # A signal is heard after an update, and nothing has to be learned again.
    assert session.run.interrupted and newest(session.folder).name in ("000000001", "000000002")


# ------------------------------------------------------------ bad input


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"levels": "GoToLocl"}, "did you mean 'GoToLocal'"),
        ({"levels": "GoToObjS4,"}, "unknown level ''"),
        ({"architecture": "bow_endpol_res"}, "did you mean 'bow_endpool_res'"),
        ({"architecture": "nowhere.py:Model"}, "there is no file nowhere.py"),
        ({"device": "tpu"}, "unknown device 'tpu'"),
        ({"demos": None}, "say what to learn from"),
        ({"demos": 5, "endless": True}, "say what to learn from"),
        ({"demos": 0}, "demos|episode"),
        ({"weights": "1,2"}, "2 weights for 1 level"),
        ({"weights": "much"}, "weights"),
        ({"weights": "-1"}, "weights must be numbers from 0 on"),
        ({"batch": -1}, "batch"),
        ({"recurrence": -1}, "recurrence"),
        ({"epochs": 0}, "epochs"),
        ({"validation_missions": 0}, "mission"),
        ({"resume": True}, "holds no run"),
        ({"device": "mps"}, "unknown device 'mps'"),
        ({"seed": -1}, "seed must be from 0 on"),
        ({"threads": -1}, "threads must be from 1 on"),
        ({"patience": -1}, "patience must be from 1 on"),
        ({"learning_rate": 0.0}, "learning_rate must be above 0"),
        ({"decay": float("nan")}, "decay must be above 0"),
    ],
    ids=lambda value: "-".join(f"{key}={item}" for key, item in value.items()) if isinstance(value, dict) else "",
)
def test_bad_input_is_refused_before_there_is_a_run(changes: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        train(tiny(tmp_path / "run", **changes))
    assert not (tmp_path / "run").exists()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no GPU"):
        train(tiny(tmp_path / "run", device="cuda"))


def test_a_folder_with_a_run_is_left_alone(tmp_path: Path) -> None:
    session = train(tiny(tmp_path / "run", epochs=1))
    with pytest.raises(RunError, match="already holds a run"):
        train(tiny(tmp_path / "run", epochs=1))
    with pytest.raises(RunError, match=r"other settings \(batch was 4, is 5, seed was 0, is 1\)"):
        train(tiny(tmp_path / "run", resume=True, batch=5, seed=1))
    assert len(session.run.rows()) == 1


def test_replay_and_source_are_closed_when_training_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    closed: list[bool] = []
    close = Replay.close

    def note(self: Replay) -> None:
        closed.append(True)
        close(self)

    def fail(*_: object) -> None:
        raise RuntimeError("out of memory")

    monkeypatch.setattr(Replay, "close", note)
    monkeypatch.setattr(imitation.ImitationLearner, "learn", fail)
    with pytest.raises(RuntimeError, match="out of memory"):
        train(tiny(tmp_path / "run"))
    assert closed == [True]
    # The folder is free again.
    monkeypatch.undo()
    assert len(train(tiny(tmp_path / "run", resume=True)).run.rows()) == 2


def test_the_best_agent_can_be_kept_in_half_the_space(tmp_path: Path) -> None:
    from babyai.agents.checkpoint import load_tensors

    train(tiny(tmp_path / "run", save_dtype="bf16", epochs=1))
    checkpoints = tmp_path / "run" / "checkpoints"
    assert torch.bfloat16 in {tensor.dtype for tensor in load_tensors(checkpoints / "best").values()}
    newest = next(folder for folder in checkpoints.iterdir() if folder.name.isdecimal())
    assert torch.bfloat16 not in {tensor.dtype for tensor in load_tensors(newest).values()}
