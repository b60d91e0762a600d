"""Loss spikes, and what becomes of the success."""

import pytest

from babyai.studies.spikes import find_spikes, spike_changes

FALLING = [0.5, 0.05, 0.005, 0.0005]


def test_a_spike_is_a_loss_that_rises_after_it_was_small() -> None:
    loss = [*FALLING, 0.0001, 0.2, 0.02, 0.0001, 0.0001, 0.05, *[0.0001] * 6, 0.02]
    # The third rise is close to the first two; what comes before the loss is small is none.
    assert find_spikes(loss) == [(5, 9), (16, 16)]
    assert find_spikes([0.5, 0.05, 0.3, 0.005]) == []


def test_changes_are_from_before_a_spike_to_after_it() -> None:
    loss = [*FALLING, *[0.0001] * 16, 0.1, 0.05, *[0.0001] * 18]
    success = [0.80] * 20 + [0.3] * 3 + [0.82] * 17
    changes = spike_changes([{"curve": {"loss": loss, "success": success}}])
    assert changes.across == [pytest.approx(2.0)] and changes.without == []


def test_quiet_stretches_are_compared_over_the_same_distance() -> None:
    loss = [*FALLING, *[0.0001] * 50]
    success = [0.9 - 0.001 * epoch for epoch in range(len(loss))]
    changes = spike_changes([{"curve": {"loss": loss, "success": success}}])
    # Two stretches of 22 validations; the means of their ends are 12 apart.
    assert changes.across == [] and changes.without == [pytest.approx(-1.2)] * 2


def test_short_or_incomplete_runs_do_not_count() -> None:
    few = {"curve": {"loss": [*FALLING, 0.1, 0.0001], "success": [0.5] * 6}}
    gaps = {"curve": {"loss": [*FALLING, *[0.0001] * 30], "success": [0.5, None, *[0.5] * 32]}}
    assert spike_changes([few, gaps]) == ([], [])
