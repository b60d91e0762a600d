"""Ctrl-C and SIGTERM as a question that the trainer answers when it can."""

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def asking_to_stop() -> Iterator[threading.Event]:
    """An event that Ctrl-C and SIGTERM set, for the trainer to save and stop; a second one stops at once.

    Only the main thread can catch signals; in others nothing happens.
    """
    asked = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield asked
        return

    def stop(number: int, frame: object) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler or signal.SIG_DFL)
