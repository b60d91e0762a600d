"""Console output of commands: plain lines, and a progress bar for anything that takes more than a moment."""

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

# Called with the amount done and the total.
Progress = Callable[[int, int], None]
# Without a terminal: seconds between two lines.
LINE_INTERVAL = 10.0


def console() -> Any:
    """A rich console that prints whole lines, without markup."""
    from rich.console import Console

    return Console(soft_wrap=True, highlight=False, markup=False)


def printable(text: str) -> str:
    """Text from a file, safe to print: control characters, which could take over the terminal, are spelled out."""
    return "".join(
        letter if letter.isprintable() or letter == "\n" else letter.encode("unicode_escape").decode()
        for letter in text
    )


@contextlib.contextmanager
def hidden_control_keys() -> Iterator[None]:
    """Does not let the terminal echo ^C, which would shift what is being redrawn by a line."""
    try:
        import termios

        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (ImportError, OSError, ValueError, AttributeError):
        # No terminal, or not of this kind.
        yield
        return
    quiet = termios.tcgetattr(descriptor)
    quiet[3] &= ~termios.ECHOCTL
    termios.tcsetattr(descriptor, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


@contextlib.contextmanager
def progress(task: str, unit: str) -> Iterator[Progress]:
    """Yields a function that shows progress: a bar in a terminal, a line every few seconds elsewhere.

    Args:
        task: What is being done, such as "evaluating".
        unit: What is counted, such as "missions".
    """
    screen = console()
    if not screen.is_terminal:
        yield _Lines(task, unit, screen.print)
        return
    from rich import progress as bars

    with (
        hidden_control_keys(),
        bars.Progress(
            *("{task.description}", bars.BarColumn(), bars.MofNCompleteColumn(), "{task.fields[rate]}"),
            *(bars.TimeRemainingColumn(), "left"),
            console=screen,
            transient=True,
        ) as bar,
    ):
        task_id = bar.add_task(task, total=None, rate="")
        clock = _Clock()

        def report(done: int, total: int) -> None:
            rate = clock.rate(done)
            bar.update(task_id, completed=done, total=total, rate=f"{rate:,.0f} {unit}/s" if rate else "")

        yield report


class _Clock:
    """The speed since the first report."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None

    def rate(self, done: int) -> float:
        """Amount per second since the first call; 0 at the first call."""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, done)
        started, before = self._first
        return (done - before) / (now - started) if now > started else 0.0


class _Lines:
    """Progress as plain lines, not too many."""

    def __init__(self, task: str, unit: str, write: Callable[[str], object]) -> None:
        self._task = task
        self._unit = unit
        self._write = write
        self._clock = _Clock()
        self._last_line = time.monotonic()

    def __call__(self, done: int, total: int) -> None:
        rate = self._clock.rate(done)
        now = time.monotonic()
        if now - self._last_line < LINE_INTERVAL or not rate:
            return
        self._last_line = now
        left = (total - done) / rate
        self._write(f"{self._task}: {done:,} of {total:,}, {rate:,.0f} {self._unit}/s, {left:,.0f} s left")
