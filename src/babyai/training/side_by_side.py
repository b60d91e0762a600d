"""Several runs in one process: a small agent leaves most of a GPU idle, and others can use it meanwhile."""

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch

from babyai.agents.device import find_device
from babyai.training.options import TrainingOptions
from babyai.training.panel import Panel
from babyai.training.session import Session

# Seconds after which a waiting thread gets its turn. Python's own 5 ms are longer than a whole step of acting.
SWITCH_INTERVAL = 2e-4


def train_side_by_side(
    train: Callable[..., Session], options: Sequence[TrainingOptions], quiet: bool = False
) -> list[Session]:
    """Trains several runs at once, each in a thread and with a stream of its own.

    Each run gives what it would give alone. An error in one stops the others, which save first.

    Args:
        train: `babyai.training.imitation.train`, or that of another module.
        options: Of each run.
        quiet: Show nothing.
    """
    with asking_to_stop() as stopping, taking_short_turns(), ThreadPoolExecutor(len(options)) as threads:
        title = f"{len(options)} runs side by side: {options[0].levels}"
        with Panel(max(each.total for each in options), options[0].unit, title, quiet, runs=len(options)) as panel:

            def work(number: int) -> Session:
                try:
                    with own_stream(options[number].device):
                        return train(options[number], panel=(panel, number), stop=stopping.is_set)
                except BaseException:
                    stopping.set()
                    raise

            return list(threads.map(work, range(len(options))))


@contextlib.contextmanager
def own_stream(device: str) -> Iterator[None]:
    """On a GPU, what this thread starts does not wait for what other threads start."""
    place = find_device(device)
    if place.type != "cuda":
        yield
        return
    with torch.cuda.device(place), torch.cuda.stream(torch.cuda.Stream(place)):
        yield


@contextlib.contextmanager
def taking_short_turns() -> Iterator[None]:
    """Threads within take turns more often."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_INTERVAL)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextlib.contextmanager
def asking_to_stop() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, where the main thread runs this; a second one stops at once."""
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def stop(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
