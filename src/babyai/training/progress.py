"""Progress of training: a live panel in a terminal, plain lines elsewhere, or nothing.

Several runs in parallel share one panel, with a line for each.
"""

import contextlib
import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, Self

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel as Frame
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from babyai.console import hidden_control_keys

# The metrics that are shown, in this order; the others are in metrics.jsonl.
SHOWN = (
    *("epoch", "update", "demos", "frames", "episodes"),
    *("success", "return", "accuracy", "loss", "frames_per_second"),
)
# Metrics whose names contain one of these are shown as percentages.
PERCENTAGES = ("success", "accuracy")
BARS = "▁▂▃▄▅▆▇█"
MAX_BARS = 24
MIN_BARS = 8
# The terminal width from which on there is room for MAX_BARS.
WIDE = 100
# Without a terminal: seconds between two lines of the same run.
LINE_INTERVAL = 2.0
# Seconds between two updates of the progress bar and, without a terminal, between two lines without a row.
ADVANCE_INTERVAL = 0.5
SILENCE = 30.0
# Number of updates over which the speed is averaged to estimate the remaining time.
SPEED_WINDOW = 100


@dataclass
class _RunState:
    """What is known about one run."""

    clock: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=SPEED_WINDOW))
    """Pairs of time in seconds and amount done."""
    row: dict[str, Any] = field(default_factory=dict)
    """The newest value of each metric."""
    successes: list[float] = field(default_factory=list)
    line: str = ""
    """A line that is still to be written."""
    last_line: float = -math.inf
    """When the last line was written."""

    @property
    def done(self) -> float:
        return self.clock[-1][1]

    def seconds_left(self, total: float, now: float) -> float | None:
        """Remaining time at the recent speed; None if unknown."""
        (begun, before), (last, done) = self.clock[0], self.clock[-1]
        if done <= before or not math.isfinite(total):
            return None
        return max(0.0, (total - done) * (last - begun) / (done - before) - (now - last))


class Display(Protocol):
    """Where a run shows its progress."""

    def note(self, text: str) -> None:
        """Shows what a run is doing before it learns."""
        ...

    def begin_at(self, done: float) -> None:
        """Sets what a resumed run had done before."""
        ...

    def advance(self, done: float) -> None:
        """Shows how much has been done."""
        ...

    def update(self, done: float, row: Mapping[str, Any]) -> None:
        """Shows a log row."""
        ...


class Panel:
    """Shows the progress of one run, or of several in parallel; a context manager and a `Display`.

        with Panel(1_000_000, "demos", "imitation GoToLocal") as panel:
            panel.update(25_600, {"epoch": 1, "success": 0.42, "loss": 0.71})

    Args:
        total: How much there is to do; infinity if unknown.
        unit: What is counted.
        title: The panel's title.
        quiet: Show nothing.
        runs: Number of runs.
        shown: The names of the metrics to show.
        console: Where to print; default: standard output.
    """

    def __init__(
        self,
        total: float,
        unit: str,
        title: str,
        quiet: bool = False,
        *,
        runs: int = 1,
        shown: Sequence[str] = SHOWN,
        console: Console | None = None,
    ) -> None:
        self.total = total
        self.unit = unit
        self.title = title
        self.quiet = quiet
        self.shown = shown
        self._console = console or Console(soft_wrap=True, highlight=False, markup=False)
        self._started = time.monotonic()
        self._note = ""
        self._runs = [_RunState() for _ in range(runs)]
        for run in self._runs:
            run.clock.append((time.monotonic(), 0.0))
        self._live: Live | None = None
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        if self.quiet:
            return self
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._stack.enter_context(hidden_control_keys())
            self._live = Live(console=self._console, get_renderable=self._draw, refresh_per_second=4)
            self._live.start()
        else:
            self._console.print(self.title)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            self._stack.close()
            return
        for run in self._runs:
            self._write_line(run)

    def update(self, done: float, row: Mapping[str, Any], run: int = 0) -> None:
        """Shows a log row.

        Args:
            done: How much has been done since the start of training, in the panel's unit.
            row: Metrics by name; those of several levels may be in a mapping.
            run: Index of the run.
        """
        state = self._runs[run]
        now = time.monotonic()
        state.clock.append((now, done))
        state.row |= row
        if (success := _mean(row.get("success"))) is not None:
            state.successes.append(success)
        if self.quiet or self._live is not None:
            return
        state.line = self._line(row, run)
        if now - state.last_line >= LINE_INTERVAL or done >= self.total:
            self._write_line(state)

    def note(self, text: str, run: int = 0) -> None:
        """Shows what a run is doing before it learns; without a terminal, every few seconds."""
        state = self._runs[run]
        now = time.monotonic()
        self._note = text
        if self._live is None and now - max(state.last_line, self._started) >= LINE_INTERVAL:
            state.line = text
            self._write_line(state)

    def begin_at(self, done: float, run: int = 0) -> None:
        """Sets what a resumed run had done before, which does not count for its speed."""
        clock = self._runs[run].clock
        clock.clear()
        clock.append((time.monotonic(), done))

    def advance(self, done: float, run: int = 0) -> None:
        """Shows how much has been done between two rows; without a terminal, only after a long silence."""
        state = self._runs[run]
        now = time.monotonic()
        if now - state.clock[-1][0] < ADVANCE_INTERVAL:
            return
        state.clock.append((now, done))
        if self._live is None and now - max(state.last_line, self._started) >= SILENCE:
            state.line = self._line({self.unit: done}, run)
            self._write_line(state)

    def _write_line(self, run: _RunState) -> None:
        if run.line and not self.quiet:
            self._console.print(run.line)
            run.last_line = time.monotonic()
            run.line = ""

    def _line(self, row: Mapping[str, Any], run: int) -> str:
        parts = [f"run {run}"] if len(self._runs) > 1 else []
        parts += [describe(name, row[name]) for name in self.shown if row.get(name) is not None]
        left = self._runs[run].seconds_left(self.total, time.monotonic())
        return "  ".join(parts if left is None else [*parts, f"{describe_time(left)} left"])

    def _draw(self) -> RenderableType:
        """The panel as it is now; rich calls this a few times per second."""
        title = Text(f"{self.title}: {self._note}" if self._note else self.title, "bold")
        style = box.ASCII if self._console.options.ascii_only else box.ROUNDED
        return Frame(Group(self._draw_progress(), self._draw_values()), title=title, title_align="left", box=style)

    def _draw_progress(self) -> RenderableType:
        done = sum(run.done for run in self._runs) / len(self._runs)
        now = time.monotonic()
        left = [run.seconds_left(self.total, now) for run in self._runs]
        known = [seconds for seconds in left if seconds is not None]
        grid = Table.grid(padding=(0, 2), expand=True)
        grid.add_column(ratio=1)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True)
        if math.isfinite(self.total):
            bar = ProgressBar(total=max(self.total, 1e-9), completed=done)
            text = f"{done:,.0f} of {self.total:,.0f} {self.unit}"
            grid.add_row(bar, text, f"{describe_time(max(known))} left" if known else "")
        else:
            grid.add_row(f"{done:,.0f} {self.unit}")
        return grid

    def _draw_values(self) -> RenderableType:
        """One line per run: the newest metrics, and the success rate over time."""
        names = [name for name in self.shown if any(run.row.get(name) is not None for run in self._runs)]
        names = [name for name in names if name != self.unit]
        width = MAX_BARS if self._console.width >= WIDE else MIN_BARS
        numbered = len(self._runs) > 1
        charted = any(run.successes for run in self._runs)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ["run"] * numbered + [_heading(name) for name in names] + ["success over time"] * charted:
            table.add_column(name, justify="left", no_wrap=True)
        for number, run in enumerate(self._runs):
            values = [_format(name, run.row.get(name), "\n") for name in names]
            bars = "" if self._console.options.ascii_only else draw_bars(run.successes, width)
            table.add_row(*[str(number)] * numbered, *values, *[bars] * charted)
        return table


def draw_bars(rates: Sequence[float], width: int = MAX_BARS) -> str:
    """Rates from 0 to 1 as bars in a line of text; more than fit are averaged."""
    if not len(rates):
        return ""
    parts = np.array_split(np.clip(np.asarray(rates, dtype=np.float64), 0, 1), min(width, len(rates)))
    return "".join(BARS[min(len(BARS) - 1, int(part.mean() * len(BARS)))] for part in parts)


def describe(name: str, value: Any) -> str:
    """A metric with its name: `success 93.4 %`, `loss 0.21`, `52,310 frames/s`."""
    heading = _heading(name)
    text = _format(name, value, ", ")
    return f"{text} {heading}" if name.endswith("_per_second") else f"{heading} {text}"


def describe_time(seconds: float) -> str:
    """A duration: `45 s`, `3 min`, `2 h 10 min`, `3 d 4 h`."""
    if seconds < 99.5:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24} h"


def _heading(name: str) -> str:
    return f"{name.removesuffix('_per_second')}/s" if name.endswith("_per_second") else name.replace("_", " ")


def _format(name: str, value: Any, separator: str) -> str:
    """A metric as text; those of several levels are joined."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return separator.join(f"{key} {_format(name, item, separator)}" for key, item in value.items())
    if isinstance(value, str | bool):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    if any(part in name for part in PERCENTAGES):
        return f"{100 * number:.1f} %"
    if name.endswith("_per_second") or number == round(number):
        return f"{number:,.0f}"
    return f"{number:.3g}"


def _mean(value: Any) -> float | None:
    """A success rate, or the mean over several levels."""
    values = list(value.values()) if isinstance(value, Mapping) else [value]
    known = [float(item) for item in values if item is not None and math.isfinite(item)]
    return sum(known) / len(known) if known else None
