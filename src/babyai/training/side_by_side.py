"""Several runs in one process: a small agent leaves most of a GPU idle, and others can use it meanwhile."""

import contextlib
from collections.abc import Callable, Sequence

import torch

from babyai.agents.device import find_device
from babyai.training.interrupts import asking_to_stop
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
    with asking_to_stop() as asked, Panel(total, options[0].unit, title, quiet, runs=len(options)) as panel:
        runs = [training(each, panel=(panel, line), stop=asked.is_set) for line, each in enumerate(options)]
        return take_turns(runs, [own_stream(each.device) for each in options])


def take_turns(runs: Sequence[Turns[Result]], streams: Sequence[Stream]) -> list[Result]:
    """Gives each run a turn after the other, on its stream, until all are done; what they return, in their order."""
    under_way, results = dict(enumerate(runs)), {}
    # A model of one's own may draw from torch's generator, and each run goes on drawing where it was.
    generators = [torch.get_rng_state()] * len(runs)
    try:
        while under_way:
            for number, run in list(under_way.items()):
                torch.set_rng_state(generators[number])
                with streams[number]():
                    try:
                        next(run)
                    except StopIteration as end:
                        results[number] = end.value
                        del under_way[number]
                generators[number] = torch.get_rng_state()
    finally:
        for run in under_way.values():
            run.close()
    return [results[number] for number in range(len(runs))]


def own_stream(device: str) -> Stream:
    """Gives contexts within which, on a GPU, nothing waits for what other runs have started."""
    place = find_device(device)
    if place.type != "cuda":
        return contextlib.nullcontext
    stream = torch.cuda.Stream(place)
    return lambda: torch.cuda.stream(stream)
