"""Ctrl-C and SIGTERM: the first asks, the second stops at once."""

import signal
import threading

import pytest

from babyai.training.interrupts import catch_interrupts


@pytest.mark.parametrize("first", [signal.SIGINT, signal.SIGTERM])
def test_the_first_signal_sets_the_event_and_the_second_raises(first: signal.Signals) -> None:
    before = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
    with catch_interrupts() as event:
        assert not event.is_set()
        signal.raise_signal(first)
        assert event.is_set()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)) == before


def test_other_threads_leave_signals_alone() -> None:
    handlers = []

    def train() -> None:
        with catch_interrupts() as event:
            assert not event.is_set()
            handlers.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert handlers == [signal.getsignal(signal.SIGINT)]
