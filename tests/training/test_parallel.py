"""Several runs at once: each ends as it would alone, errors stay with their run, and signals reach all."""

import contextlib
import logging
import os
import signal
import stat
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from babyai import cli
from babyai.agents import device as devices
from babyai.training import imitation, parallel, ppo
from babyai.training.commands import spread_seeds
from babyai.training.fit import RunResult, find_algorithm, train_one
from babyai.training.parallel import MPS_SHARE, gpu_share, mps_daemon, train_parallel
from babyai.training.run import read_rows
from tests.training.same import assert_same_run, newest
from tests.training.short_runs import imitation_options, ppo_options
from tests.training.tiny import PATH

posix_only = pytest.mark.skipif(os.name != "posix", reason="signals and shell scripts work differently elsewhere")
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
LOG = "CUDA_MPS_LOG_DIRECTORY"


# ------------------------------------------------------------ runs


@pytest.fixture
def one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many torch threads per run as these tests have: rounding depends on their number."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


@pytest.mark.usefixtures("one_thread_each")
@pytest.mark.long
def test_an_error_in_one_run_is_reported_and_does_not_stop_the_other(tmp_path: Path) -> None:
    options = imitation_options(tmp_path / "trained", epochs=3)
    faulty = PATH.replace(":Tiny", ":Faulty")
    # It fails in its second update.
    failing = replace(options, out=str(tmp_path / "failing"), architecture=faulty, settings=("steps=13",))
    trained, failed = train_parallel("imitation", [options, failing], [False, False], quiet=True)
    alone = imitation.train(replace(options, out=str(tmp_path / "alone")))
    assert_same_run(tmp_path / "trained", alone.folder)
    assert trained == RunResult(str(tmp_path / "trained"), alone.best_success, 3, False)
    assert failed.folder == str(tmp_path / "failing")
    assert failed.error is not None and "grue" in failed.error


@posix_only
@pytest.mark.usefixtures("one_thread_each")
@pytest.mark.long
def test_parallel_runs_stopped_by_sigterm_and_resumed_end_like_runs_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ppo_options(tmp_path / "run", frames=3_200_000, checkpoint_seconds=1e9)
    folders = [tmp_path / "run-0", tmp_path / "run-1"]
    with terminating_when(lambda: all(len(read_rows(folder)) >= 2 for folder in folders)):
        results = train_parallel("ppo", spread_seeds(options, 2), [False, False], quiet=True)
    assert [(result.interrupted, result.error) for result in results] == [(True, None)] * 2
    # Saved where they stopped, although no checkpoint was due.
    reached = [int(newest(folder).name) for folder in folders]
    assert min(reached) >= 20
    frames = 320 * (max(reached) // 10 + 1)
    words = ["resume", *map(str, folders), "--frames", str(frames), "--trust"]
    monkeypatch.setattr(sys, "argv", ["babyai", *words])
    cli.main()
    for seed, folder in enumerate(folders):
        assert len(read_rows(folder)) == frames // 320
        alone = ppo.train(replace(options, seed=seed, frames=frames, out=str(tmp_path / f"alone-{seed}")))
        assert_same_run(folder, alone.folder)


@contextlib.contextmanager
def terminating_when(happened: Callable[[], bool]) -> Iterator[None]:
    """Sends SIGTERM to this process as soon as something happens."""
    ended = threading.Event()

    def watch() -> None:
        while not ended.wait(0.01):
            if happened():
                os.kill(os.getpid(), signal.SIGTERM)
                return

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def test_one_run_trains_in_this_process(tmp_path: Path) -> None:
    result = train_one("imitation", imitation_options(tmp_path / "run", epochs=1))
    assert result.folder == str(tmp_path / "run") and result.validations == 1
    assert not result.interrupted and result.error is None
    again = train_one("imitation", imitation_options(tmp_path / "run", epochs=2), resume=True)
    assert again.validations == 2


def test_a_process_that_is_killed_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without real processes: the first ends without a result, as after kill -9."""

    class Context:
        def __init__(self) -> None:
            import queue

            self.messages: queue.Queue[Any] = queue.Queue()

        def Queue(self) -> Any:
            return self.messages

        def Process(self, target: Any, args: tuple[Any, ...]) -> Any:
            return Process(args)

    class Process:
        def __init__(self, args: tuple[Any, ...]) -> None:
            _, self.options, _, self.messages, self.number, _ = args

        def start(self) -> None:
            if self.number == 1:
                self.messages.put((1, "note", ("collecting",)))
                self.messages.put((1, "result", (RunResult(self.options.out, 0.5, 3, False),)))

        def is_alive(self) -> bool:
            return False

        def join(self) -> None: ...

    monkeypatch.setattr(parallel.multiprocessing, "get_context", lambda _: Context())
    runs = [imitation_options(tmp_path / name) for name in ("killed", "finished")]
    killed, finished = train_parallel("imitation", runs, [False, False], quiet=True)
    assert killed.folder == str(tmp_path / "killed") and killed.interrupted and "killed" in (killed.error or "")
    assert finished == RunResult(str(tmp_path / "finished"), 0.5, 3, False)


def test_runs_of_several_seeds_have_folders_of_their_own(tmp_path: Path) -> None:
    runs = spread_seeds(imitation_options(tmp_path / "run", seed=5), 3)
    assert [run.seed for run in runs] == [5, 6, 7]
    assert [run.out for run in runs] == [f"{tmp_path / 'run'}-{seed}" for seed in (5, 6, 7)]
    unnamed = spread_seeds(replace(runs[0], out=None), 2)
    assert len({run.run_folder("imitation") for run in unnamed}) == 2


def test_algorithms_are_found_by_the_names_of_their_commands() -> None:
    names = ("imitation", "dagger", "ppo")
    assert [find_algorithm(name).name for name in names] == list(names)


# ------------------------------------------------------------ NVIDIA's Multi-Process Service


@pytest.fixture
def daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A pretended GPU and a pretended daemon, which notes how it is called; returns its notes."""
    notes = tmp_path / "notes"
    script = tmp_path / "bin" / "nvidia-cuda-mps-control"
    script.parent.mkdir()
    script.write_text(
        "#!/bin/sh\n"
        f'if [ "$1" = "-d" ]; then echo "start $CUDA_MPS_PIPE_DIRECTORY" >> {notes}; exit ${{MPS_STATUS:-0}}; fi\n'
        f'read command; echo "$command $CUDA_MPS_PIPE_DIRECTORY" >> {notes}\n'
    )
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("PATH", f"{script.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(PIPE, raising=False)
    monkeypatch.delenv(LOG, raising=False)
    monkeypatch.setattr(devices, "find_device", lambda _: torch.device("cuda"))
    return notes


@posix_only
def test_the_daemon_runs_as_long_as_the_runs(daemon: Path) -> None:
    with mps_daemon("cuda") as running:
        assert running
        pipe = os.environ[PIPE]
        assert Path(pipe).is_dir() and Path(os.environ[LOG]).is_dir()
        assert daemon.read_text().splitlines() == [f"start {pipe}"]
    assert daemon.read_text().splitlines() == [f"start {pipe}", f"quit {pipe}"]
    assert PIPE not in os.environ and LOG not in os.environ and not Path(pipe).exists()


@posix_only
def test_each_run_gets_a_share_of_the_gpu(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(MPS_SHARE, raising=False)
    with mps_daemon("cuda", gpu_share("ppo", 8)):
        assert os.environ[MPS_SHARE] == "40"
    with mps_daemon("cuda", gpu_share("ppo", 2)):
        assert os.environ[MPS_SHARE] == "50"
    with mps_daemon("cuda", gpu_share("imitation", 8)):
        assert MPS_SHARE not in os.environ
    monkeypatch.setenv(MPS_SHARE, "30")
    with mps_daemon("cuda", gpu_share("ppo", 8)):
        assert os.environ[MPS_SHARE] == "30"
    assert os.environ[MPS_SHARE] == "30" and daemon.exists()


@posix_only
def test_the_daemon_is_stopped_after_an_error(daemon: Path) -> None:
    with pytest.raises(KeyError, match="mistake"), mps_daemon("cuda"):
        raise KeyError("mistake")
    assert [line.split()[0] for line in daemon.read_text().splitlines()] == ["start", "quit"]
    assert PIPE not in os.environ and LOG not in os.environ


@posix_only
def test_a_daemon_that_does_not_start_is_a_warning(
    daemon: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MPS_STATUS", "1")
    with caplog.at_level(logging.WARNING), mps_daemon("cuda") as running:
        assert not running and PIPE not in os.environ and LOG not in os.environ
    assert [line.split()[0] for line in daemon.read_text().splitlines()] == ["start"]
    assert "nvidia-cuda-mps-control" in caplog.text


@posix_only
def test_a_missing_daemon_is_a_warning(
    daemon: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PATH", str(daemon.parent))
    with caplog.at_level(logging.WARNING), mps_daemon("cuda") as running:
        assert not running and PIPE not in os.environ
    assert not daemon.exists() and "nvidia-cuda-mps-control" in caplog.text


@posix_only
def test_a_daemon_that_is_running_already_is_used(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PIPE, "elsewhere")
    with mps_daemon("cuda") as running:
        assert running and os.environ[PIPE] == "elsewhere"
    assert os.environ[PIPE] == "elsewhere" and not daemon.exists()


@posix_only
def test_a_cpu_needs_no_daemon(daemon: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "find_device", torch.device)
    with mps_daemon("cpu") as running:
        assert not running
    assert not daemon.exists()
