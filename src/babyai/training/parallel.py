"""Several runs on one machine, one process each. On a GPU they share it through NVIDIA's Multi-Process Service (MPS).

A small agent leaves most of a GPU idle. Without MPS, processes take turns on the GPU and gain nothing; with it, their
kernels run at the same time.
"""

import contextlib
import logging
import multiprocessing
import os
import queue
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from babyai.training.fit import RunResult, train_one
from babyai.training.options import TrainingOptions
from babyai.training.progress import ADVANCE_INTERVAL, Panel

MPS_DAEMON = "nvidia-cuda-mps-control"
MPS_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
# The least part of a GPU, in percent, that a PPO run may use next to others. Its kernels are short, and disturb each
# other less if each run keeps to a part: on an H200, 8 runs are 21 % faster in total with 40 than with 100 (25: 19 %).
PPO_SHARE = 40

logger = logging.getLogger(__name__)


def train_parallel(
    algorithm: str, runs: Sequence[TrainingOptions], resume: Sequence[bool], quiet: bool = False
) -> list[RunResult]:
    """Trains several runs at once, one process each. An error in one does not stop the others.

    Ctrl-C and SIGTERM reach all of them: they save and stop.
    """
    context = multiprocessing.get_context("spawn")
    messages = context.Queue()
    title = f"{len(runs)} {algorithm} runs: {runs[0].levels}"
    with (
        mps_daemon(runs[0].device, gpu_share(algorithm, len(runs))),
        Panel(max(run.total for run in runs), runs[0].unit, title, quiet, runs=len(runs)) as panel,
    ):
        threads = max(1, (os.cpu_count() or 1) // len(runs))
        processes = [
            context.Process(target=_work, args=(algorithm, run, resumed, messages, number, threads))
            for number, (run, resumed) in enumerate(zip(runs, resume, strict=True))
        ]
        with _forwarding_signals(processes):
            for process in processes:
                process.start()
            results = _follow(processes, messages, panel)
    return [
        results.get(number)
        or RunResult(run.run_folder(algorithm), -1.0, 0, True, "its process was killed", finished=False)
        for number, run in enumerate(runs)
    ]


def _work(algorithm: str, options: TrainingOptions, resume: bool, messages: Any, number: int, threads: int) -> None:
    """The body of a run's process."""
    import torch

    torch.set_num_threads(threads)
    try:
        result = train_one(algorithm, options, resume, _QueueDisplay(messages, number))
    except Exception as error:
        logger.exception("run %s failed", number)
        reason = str(error) if isinstance(error, ValueError | OSError) else f"{type(error).__name__}: {error}"
        result = RunResult(options.run_folder(algorithm), -1.0, 0, True, reason, finished=False)
    messages.put((number, "result", (result,)))


class _QueueDisplay:
    """Sends progress to the process that shows it."""

    def __init__(self, messages: Any, number: int) -> None:
        self._messages = messages
        self._number = number
        self._last_advance = 0.0

    def note(self, text: str) -> None:
        self._messages.put((self._number, "note", (text,)))

    def begin_at(self, done: float) -> None:
        self._messages.put((self._number, "begin_at", (done,)))

    def advance(self, done: float) -> None:
        now = time.monotonic()
        if now - self._last_advance >= ADVANCE_INTERVAL:
            self._last_advance = now
            self._messages.put((self._number, "advance", (done,)))

    def update(self, done: float, row: Mapping[str, Any]) -> None:
        self._messages.put((self._number, "update", (done, dict(row))))


def _follow(processes: Sequence[Any], messages: Any, panel: Panel) -> dict[int, RunResult]:
    """Shows progress until all processes have ended; returns their results."""
    results: dict[int, RunResult] = {}
    while len(results) < len(processes):
        alive = any(process.is_alive() for process in processes)
        try:
            number, name, arguments = messages.get(timeout=0.5)
        except queue.Empty:
            # A process that was killed sends no result.
            if not alive:
                break
            continue
        if name == "result":
            results[number] = arguments[0]
        else:
            getattr(panel, name)(*arguments, run=number)
    for process in processes:
        process.join()
    return results


@contextlib.contextmanager
def _forwarding_signals(processes: Sequence[Any]) -> Iterator[None]:
    """Passes SIGTERM on to the runs. Ctrl-C reaches them anyway, so it only must not end this process."""
    if threading.current_thread() is not threading.main_thread():
        # Only the main thread can catch signals.
        yield
        return

    def forward(number: int, frame: object) -> None:
        for process in processes:
            if process.pid is not None and process.is_alive():
                process.terminate()

    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, lambda number, frame: None),
        signal.SIGTERM: signal.signal(signal.SIGTERM, forward),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)


def gpu_share(algorithm: str, runs: int) -> int | None:
    """The percentage of a GPU that each of several runs may use; None for no limit."""
    return max(PPO_SHARE, 100 // runs) if algorithm == "ppo" else None


@contextlib.contextmanager
def mps_daemon(device: str, share: int | None = None) -> Iterator[bool]:
    """Starts NVIDIA's Multi-Process Service for the processes started within; yields whether it is running.

    Nothing is started if the device is not a GPU, or if a service is configured already (CUDA_MPS_PIPE_DIRECTORY).

    Args:
        device: "auto", "cpu" or "cuda".
        share: The percentage of the GPU that each process may use, unless CUDA_MPS_ACTIVE_THREAD_PERCENTAGE says it.
    """
    from babyai.agents.device import find_device

    if find_device(device).type != "cuda":
        yield False
        return
    if "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
        yield True
        return
    if shutil.which(MPS_DAEMON) is None:
        logger.warning("%s is not installed, so the runs take turns on the GPU instead of sharing it", MPS_DAEMON)
        yield False
        return
    with tempfile.TemporaryDirectory(prefix="babyai-mps-") as folder:
        environment = {
            "CUDA_MPS_PIPE_DIRECTORY": str(Path(folder) / "pipe"),
            "CUDA_MPS_LOG_DIRECTORY": str(Path(folder) / "log"),
        }
        for directory in environment.values():
            Path(directory).mkdir()
        if share is not None and MPS_SHARE not in os.environ:
            environment[MPS_SHARE] = str(share)
        os.environ.update(environment)
        try:
            started = subprocess.run([MPS_DAEMON, "-d"], capture_output=True, text=True, check=False)
            if started.returncode:
                logger.warning("%s does not start, so the runs take turns on the GPU: %s", MPS_DAEMON, started.stderr)
                for name in environment:
                    del os.environ[name]
            yield started.returncode == 0
        finally:
            if "CUDA_MPS_PIPE_DIRECTORY" in os.environ:
                subprocess.run([MPS_DAEMON], input="quit\n", capture_output=True, text=True, check=False)
            for name in environment:
                os.environ.pop(name, None)
