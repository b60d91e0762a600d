"""Timing: work per CPU second, with all contestants measured in interleaved slices.

CPU time (of all threads of the process) excludes the time that other programs use. Short interleaved slices make other
disturbances affect all contestants alike. On a shared machine, the resulting ratios are reliable, although absolute
rates are not.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SLICES = 4


@dataclass(frozen=True)
class Contestant:
    """An implementation whose rate is measured."""

    play: Callable[[], int]
    """Does a few milliseconds of work; returns the number of units (steps, resets)."""
    share: float = 1.0
    """Fraction of a round's seconds that this contestant gets. Slow ones need more for a stable rate."""
    close: Callable[[], object] = lambda: None
    """Releases resources."""


def work_for(play: Callable[[], int], seconds: float) -> tuple[int, float]:
    """Calls `play` for at least this many CPU seconds; returns the units of work and the CPU seconds used."""
    work = 0
    start = time.process_time()
    while (spent := time.process_time() - start) < seconds or work == 0:
        work += play()
    return work, spent


def measure_round(contestants: Mapping[str, Contestant], seconds: float) -> dict[str, float]:
    """The rate of each contestant per CPU second, measured in interleaved slices."""
    work = dict.fromkeys(contestants, 0)
    spent = dict.fromkeys(contestants, 0.0)
    for _ in range(SLICES):
        for name, contestant in contestants.items():
            units, cpu_seconds = work_for(contestant.play, seconds * contestant.share / SLICES)
            work[name] += units
            spent[name] += cpu_seconds
    return {name: work[name] / spent[name] for name in contestants}
