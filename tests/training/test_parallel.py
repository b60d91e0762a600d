"""Several runs at once: each ends as it would alone, errors stay with their run, and signals reach all."""

import logging
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from babyai.agents import device as devices
from babyai.training import imitation, parallel, ppo
from babyai.training.parallel import RunResult, find_algorithm, mps_daemon, spread_seeds, train_one, train_parallel
from babyai.training.run import read_rows
from tests.training.same import assert_same_run
from tests.training.short_runs import imitation_options, ppo_options
from tests.training.tiny import PATH

ROOT = Path(__file__).parents[2]
posix_only = pytest.mark.skipif(os.name != "posix", reason="signals and shell scripts work differently elsewhere")
PIPE = "CUDA_MPS_PIPE_DIRECTORY"
LOG = "CUDA_MPS_LOG_DIRECTORY"


# ------------------------------------------------------------ runs


@pytest.fixture
def one_thread_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many torch threads per run as these tests have: rounding depends on their number."""
    monkeypatch.setattr(os, "cpu_count", lambda: 1)


@pytest.mark.usefixtures("one_thread_each")
def test_parallel_runs_end_like_runs_alone_and_errors_stay_with_their_run(tmp_path: Path) -> None:
    """Three processes: two train, and the policy of the third fails in its second update."""
    options = imitation_options(tmp_path / "parallel", epochs=3)
    faulty = PATH.replace(":Tiny", ":Faulty")
    failing = replace(options, out=str(tmp_path / "failing"), architecture=faulty, settings=("steps=13",))
    runs = [*spread_seeds(options, 2), failing]
    results = train_parallel("imitation", runs, [False] * 3, quiet=True)
    for result, seed in zip(results, (0, 1), strict=False):
        alone = imitation.train(replace(options, seed=seed, out=str(tmp_path / f"alone-{seed}")))
        assert_same_run(tmp_path / f"parallel-{seed}", alone.folder)
        assert result == RunResult(str(tmp_path / f"parallel-{seed}"), alone.best_success, 3, False)
    failed = results[2]
    assert failed.folder == str(tmp_path / "failing")
    assert failed.error is not None and "grue" in failed.error


@posix_only
def test_sigterm_stops_all_runs_and_resuming_finishes_them(tmp_path: Path) -> None:
    changes = {"frames": 320_000, "validate_every": 0, "checkpoint_seconds": 1e9}
    folders = [tmp_path / "run-0", tmp_path / "run-1"]
    runs = [ppo_options(folder, **changes, seed=seed) for seed, folder in enumerate(folders)]
    script = (
        "from babyai.training.commands import run_all\n"
        "from babyai.training.options import PPOOptions\n"
        "if __name__ == '__main__':\n"
        f"    run_all('ppo', {runs!r}, [False, False])\n"
    )
    (tmp_path / "start.py").write_text(script)
    process = start([str(tmp_path / "start.py")])
    try:
        wait_for(lambda: all(len(read_rows(folder)) >= 1 for folder in folders), process)
        process.terminate()
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 1 and "stopped before the end" in errors
    rows = [len(read_rows(folder)) for folder in folders]
    assert min(rows) >= 1
    # Saved where it stopped, although checkpoints were not due.
    assert all(list((folder / "checkpoints").glob("0*")) for folder in folders)
    frames = 320 * (max(rows) + 1)
    resumed = start(["-m", "babyai.cli", "resume", *map(str, folders), "--frames", str(frames)])
    output, errors = resumed.communicate(timeout=120)
    assert resumed.returncode == 0, output + errors
    for seed, folder in enumerate(folders):
        rows = read_rows(folder)
        assert [row["update"] for row in rows] == list(range(10, frames // 32 + 1, 10))
        alone = ppo.train(ppo_options(tmp_path / f"alone-{seed}", **{**changes, "frames": frames}, seed=seed))
        assert [row["episodes"] for row in rows] == [row["episodes"] for row in alone.run.rows()]


def start(words: list[str]) -> subprocess.Popen[str]:
    path = os.pathsep.join(filter(None, [str(ROOT), *sys.path]))
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}
    return subprocess.Popen(
        [sys.executable, *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for(happened: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 60
    while not happened():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


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
