"""Loss spikes: a loss that had fallen to almost nothing rises sharply, and falls again. What becomes of the success?"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from babyai.studies.store import Row

# A spike is a loss above `SPIKE` after one below `FITTED`.
SPIKE = 0.01
FITTED = 0.001
# Validations that are averaged before and after a spike, and the fewest that count.
AROUND = 10
FEWEST = 5
# The validations right after a spike are left out, and spikes that are closer to each other count as one.
RECOVERY = 2
APART = 5


class SpikeChanges(NamedTuple):
    """Changes of the mean validation success, in points."""

    across: list[float]
    """From before a spike to after it."""
    without: list[float]
    """Over the same distance without a spike."""


def spike_changes(rows: Iterable[Row]) -> SpikeChanges:
    """How success changes across the spikes of runs, and elsewhere after the loss has become small."""
    changes = SpikeChanges([], [])
    for row in rows:
        success = row["curve"]["success"]
        loss = row["curve"]["loss"]
        if None in success or None in loss:
            continue
        spikes = find_spikes(loss)
        ends = [0, *(last + RECOVERY for _, last in spikes)]
        starts = [*(first for first, _ in spikes[1:]), len(loss)]
        for (first, last), end, start in zip(spikes, ends, starts, strict=False):
            before = success[max(end, first - AROUND) : first]
            after = success[last + RECOVERY : min(start, last + RECOVERY + AROUND)]
            if min(len(before), len(after)) >= FEWEST:
                changes.across.append(100 * (_mean(after) - _mean(before)))
        for first in _iter_quiet(loss):
            after = success[first + AROUND + RECOVERY :][:AROUND]
            changes.without.append(100 * (_mean(after) - _mean(success[first : first + AROUND])))
    return changes


def find_spikes(loss: list[float]) -> list[tuple[int, int]]:
    """The first and the last epoch of each spike."""
    spikes: list[tuple[int, int]] = []
    for epoch in range(_first_fitted(loss) + 1, len(loss)):
        if loss[epoch] <= SPIKE:
            continue
        if spikes and epoch - spikes[-1][1] <= APART:
            spikes[-1] = (spikes[-1][0], epoch)
        else:
            spikes.append((epoch, epoch))
    return spikes


def _iter_quiet(loss: list[float]) -> Iterator[int]:
    """The first epochs of stretches without a spike that do not overlap, long enough to compare both of their ends."""
    length = 2 * AROUND + RECOVERY
    first = _first_fitted(loss)
    while first + length <= len(loss):
        if max(loss[first : first + length]) <= SPIKE:
            yield first
            first += length
        else:
            first += 1


def _first_fitted(loss: list[float]) -> int:
    return next((epoch for epoch, value in enumerate(loss) if value < FITTED), len(loss))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
