"""Ctrl-C and SIGTERM as an event, so that training can save before it stops."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def catch_interrupts() -> Iterator[threading.Event]:
    """Yields an event that Ctrl-C and SIGTERM set; a second one raises KeyboardInterrupt.

    Only the main thread can catch signals; in other threads the event is never set.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return

    def handle(number: int, frame: object) -> None:
        if event.is_set():
            raise KeyboardInterrupt
        event.set()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
