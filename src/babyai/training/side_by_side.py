"""Several runs in one process: a small agent leaves most of a GPU idle, and others can use it meanwhile."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Literal

import torch

from babyai.agents.device import find_device, find_precision
from babyai.training.options import TrainingOptions
from babyai.training.panel import Panel
from babyai.training.session import Session
from babyai.training.turns import Result, Turns

# Makes a context within which a run has its turn.
Stream = Callable[[], contextlib.AbstractContextManager[object]]


def train_side_by_side(
    training: Callable[..., Turns[Session]], options: Sequence[TrainingOptions], quiet: bool = False
) -> list[Session]:
    """Trains several runs at once, which take turns, each with a stream of its own.

    Each run gives what it would give alone. An error in one stops all, and can be seen; they can be resumed.

    Args:
        training: `babyai.training.imitation.training`, or that of another module.
        options: Of each run.
        quiet: Show nothing.
    """
    title, total = f"{len(options)} runs side by side: {options[0].levels}", max(each.total for each in options)
    with asking_to_stop() as stopping, Panel(total, options[0].unit, title, quiet, runs=len(options)) as panel:
        runs = [training(each, panel=(panel, line), stop=stopping.is_set) for line, each in enumerate(options)]
        return take_turns(runs, [own_stream(each.device, each.precision) for each in options])


def take_turns(runs: Sequence[Turns[Result]], streams: Sequence[Stream]) -> list[Result]:
    """Gives each run a turn after the other, on its stream, until all are done; what they return, in their order."""
    under_way, results = dict(enumerate(runs)), {}
    try:
        while under_way:
            for number, run in list(under_way.items()):
                with streams[number]():
                    try:
                        next(run)
                    except StopIteration as end:
                        results[number] = end.value
                        del under_way[number]
    finally:
        for run in under_way.values():
            run.close()
    return [results[number] for number in range(len(runs))]


def own_stream(device: str, precision: Literal["auto", "float32", "bf16"] = "auto") -> Stream:
    """Gives contexts within which, on a GPU, nothing waits for what other runs have started.

    Runs in float32 share a stream, so that their kernels do not overlap: three of them at once have hung a GPU.
    """
    place = find_device(device)
    if place.type != "cuda" or find_precision(None if precision == "auto" else precision, place) == "float32":
        return contextlib.nullcontext
    stream = torch.cuda.Stream(place)
    return lambda: torch.cuda.stream(stream)


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
