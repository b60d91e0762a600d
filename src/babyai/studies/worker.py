"""A process that measures runs, and the end of the pipe to it.

Processes are kept for the next run, because importing, compiling and capturing take longer than many runs.
"""

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

from babyai.studies.cells import Run
from babyai.studies.measure import Report, measure

NEVER = float("inf")

logger = logging.getLogger(__name__)


class Worker:
    """A process that measures one run after the other."""

    def __init__(self, device: str, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_work, args=(theirs, device, threads))
        self.process.start()
        theirs.close()
        self.run: Run | None = None
        self.finishes = NEVER
        self.frames: tuple[float, float] | None = None
        self.done = 0.0

    def start(self, run: Run, folder: Path, deadline: float, finishes: float, resumed: bool) -> None:
        """Starts a run.

        Args:
            run: The run.
            folder: Its folder.
            deadline: When it must stop, as of `time.time()`.
            finishes: When it is expected to end.
            resumed: Whether a part of it is done.
        """
        self.run = run
        self.finishes = finishes
        self.frames = None if resumed else (0.0, 0.0)
        self.done = 0.0
        self.connection.send((run, folder, deadline))

    def note_progress(self, done: float, frames: float) -> None:
        """Notes what part of the run is done, and the first and the last number of frames that it reported."""
        self.done = done
        self.frames = (self.frames[0] if self.frames else frames, frames)

    def ask_to_end(self) -> None:
        """Lets an idle process end."""
        with contextlib.suppress(OSError, ValueError):
            self.connection.send(None)

    def end(self, limit: float) -> None:
        """Waits for the process to end, and ends it by force at `limit`."""
        self.process.join(max(0.0, limit - time.time()))
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.connection.close()


# ------------------------------------------------------------ inside a process


def _work(connection: Connection, device: str, threads: int) -> None:
    """The body of a process: measures the runs that it is sent."""
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    # Ctrl-C reaches all processes of a terminal; while a run is training, it saves and stops.
    with contextlib.suppress(KeyboardInterrupt, EOFError, BrokenPipeError):
        import torch

        torch.set_num_threads(threads)
        while (task := connection.recv()) is not None:
            run, folder, deadline = task
            connection.send(
                try_measure(run, folder, device, deadline, lambda *done: connection.send(("progress", done)))
            )


def _exit_with_parent() -> None:
    """Ends this process when its parent has died, so that it does not go on writing to the run's folder."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os.kill(os.getpid(), signal.SIGKILL)


def try_measure(run: Run, folder: Path, device: str, deadline: float, report: Report) -> tuple[str, Any]:
    """Measures a run: ("row", (results, provenance)), ("unfinished", None) or ("failed", why); see `measure`."""
    from babyai.training.provenance import describe_provenance

    try:
        result = measure(run, folder, device, deadline, report)
        return ("unfinished", None) if result is None else ("row", (result, describe_provenance()))
    except Exception as error:
        logger.exception("%s failed", run.key)
        return "failed", f"{type(error).__name__}: {error}"
    finally:
        _free_memory()


def _free_memory() -> None:
    """Returns the memory of a run to the device, before the next one begins."""
    import gc

    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
