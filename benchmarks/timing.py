"""How a rate is measured: work per second of CPU time, everyone in turn.

CPU time (of all threads of the process) does not count the moments in which the machine did something else, and
short slices in turn let whatever else slows the machine down slow everyone down alike. What remains is a ratio that
can be trusted on a shared machine, where absolute rates cannot.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

SLICES = 4


@dataclass(frozen=True)
class Contestant:
    """Somebody whose rate is measured."""

    play: Callable[[], int]
    """Does some milliseconds of work; returns how many units (steps, resets) it was."""
    share: float = 1.0
    """The part of a round's seconds this one needs: the slow need more for a steady rate."""
    close: Callable[[], object] = lambda: None


def work_for(play: Callable[[], int], seconds: float) -> tuple[int, float]:
    """Plays for at least so many CPU seconds; returns the units of work and the CPU seconds they took."""
    work, start = 0, time.process_time()
    while (spent := time.process_time() - start) < seconds or work == 0:
        work += play()
    return work, spent


def measure_round(contestants: Mapping[str, Contestant], seconds: float) -> dict[str, float]:
    """The rate of each contestant, per CPU second, after all have had their slices in turn."""
    work, spent = dict.fromkeys(contestants, 0), dict.fromkeys(contestants, 0.0)
    for _ in range(SLICES):
        for name, contestant in contestants.items():
            done, took = work_for(contestant.play, seconds * contestant.share / SLICES)
            work[name] += done
            spent[name] += took
    return {name: work[name] / spent[name] for name in contestants}
