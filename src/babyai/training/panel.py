"""What a run shows while it goes: a live panel in a terminal, plain lines elsewhere, or nothing.

Several runs that go side by side share one panel, with a line for each.
"""

import math
import time
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.panel import Panel as Frame
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

# What is shown of a row, in this order; whatever else it has stands in metrics.jsonl.
SHOWN = (
    *("epoch", "update", "demos", "frames", "episodes"),
    *("success", "return", "accuracy", "loss", "frames_per_second"),
)
# Names that contain one of these are shares, shown in per cent.
SHARES = ("success", "accuracy")
BARS = "▁▂▃▄▅▆▇█"
MOST_BARS, FEWEST_BARS = 24, 8
# So wide must a terminal be to have room for many bars.
WIDE = 100
# Seconds between two lines of the same run where there is no terminal.
LINE_INTERVAL = 2.0
# Seconds between two signs of life, and after how many of silence a line is written where there is no terminal.
ADVANCE_INTERVAL, SILENCE = 0.5, 30.0
# Over how many updates the speed is averaged from which the time left follows.
MEMORY = 100


@dataclass
class _Shown:
    """What is known about one run."""

    clock: deque[tuple[float, float]] = field(default_factory=lambda: deque(maxlen=MEMORY))
    """When (seconds) how much was done."""
    row: dict[str, Any] = field(default_factory=dict)
    """The newest value of everything."""
    successes: list[float] = field(default_factory=list)
    line: str = ""
    """A line that has not been written yet."""
    said: float = -math.inf
    """When the last line was written."""

    @property
    def done(self) -> float:
        return self.clock[-1][1]

    def seconds_left(self, total: float, now: float) -> float | None:
        """When it will be finished, if it goes on as it did lately; None if that cannot be said."""
        (begun, before), (last, done) = self.clock[0], self.clock[-1]
        if done <= before or not math.isfinite(total):
            return None
        return max(0.0, (total - done) * (last - begun) / (done - before) - (now - last))


class Panel:
    """Shows how far training is; a context manager.

        with Panel(1_000_000, "demos", "imitation GoToLocal") as panel:
            panel.update(25_600, {"epoch": 1, "success": 0.42, "loss": 0.71})

    Args:
        total: How much there is to do; infinity if nobody knows.
        unit: Of what.
        title: Stands above.
        quiet: Show nothing.
        runs: How many runs go side by side.
        shown: The names of what is shown of each row.
        console: Where to; the standard output, if None.
    """

    def __init__(
        self,
        total: float,
        unit: Literal["demos", "frames"],
        title: str,
        quiet: bool = False,
        *,
        runs: int = 1,
        shown: Sequence[str] = SHOWN,
        console: Console | None = None,
    ) -> None:
        self.total, self.unit, self.title, self.quiet, self.shown = total, unit, title, quiet, shown
        self._console = console or Console(soft_wrap=True, highlight=False, markup=False)
        self._begun, self._note = time.monotonic(), ""
        self._runs = [_Shown() for _ in range(runs)]
        for run in self._runs:
            run.clock.append((time.monotonic(), 0.0))
        self._live: Live | None = None

    def __enter__(self) -> Self:
        if self.quiet:
            return self
        if self._console.is_terminal and not self._console.is_dumb_terminal:
            self._live = Live(console=self._console, get_renderable=self._draw, refresh_per_second=4)
            self._live.start()
        else:
            self._console.print(self.title)
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
            return
        for run in self._runs:
            self._write_line(run)

    def update(self, done: float, row: Mapping[str, Any], run: int = 0) -> None:
        """Shows a row.

        Args:
            done: How much has been done since the very beginning, in the panel's unit.
            row: What `Run.log` was given; values may be missing, and those of several levels be in a mapping.
            run: Which of the runs.
        """
        state, now = self._runs[run], time.monotonic()
        state.clock.append((now, done))
        state.row |= row
        if (success := _mean(row.get("success"))) is not None:
            state.successes.append(success)
        if self.quiet or self._live is not None:
            return
        state.line = self._line(row, run)
        if now - state.said >= LINE_INTERVAL or done >= self.total:
            self._write_line(state)

    def note(self, words: str, run: int = 0) -> None:
        """Shows what a run is doing before it learns; without a terminal, every few seconds."""
        state, now = self._runs[run], time.monotonic()
        self._note = words
        if self._live is None and now - max(state.said, self._begun) >= LINE_INTERVAL:
            state.line = words
            self._write_line(state)

    def begin_at(self, done: float, run: int = 0) -> None:
        """Says how much a run that is resumed had done before, which is not counted as done now."""
        clock = self._runs[run].clock
        clock.clear()
        clock.append((time.monotonic(), done))

    def advance(self, done: float, run: int = 0) -> None:
        """Shows how far a run is between two rows; without a terminal, only if nothing has been said for long."""
        state, now = self._runs[run], time.monotonic()
        if now - state.clock[-1][0] < ADVANCE_INTERVAL:
            return
        state.clock.append((now, done))
        if self._live is None and now - max(state.said, self._begun) >= SILENCE:
            state.line = self._line({self.unit: done}, run)
            self._write_line(state)

    def _write_line(self, run: _Shown) -> None:
        if run.line and not self.quiet:
            self._console.print(run.line)
            run.said, run.line = time.monotonic(), ""

    def _line(self, row: Mapping[str, Any], run: int) -> str:
        parts = [f"run {run}"] if len(self._runs) > 1 else []
        parts += [describe(name, row[name]) for name in self.shown if row.get(name) is not None]
        left = self._runs[run].seconds_left(self.total, time.monotonic())
        return "  ".join(parts if left is None else [*parts, f"{describe_time(left)} left"])

    def _draw(self) -> RenderableType:
        """The panel as it is now; rich asks for it a few times a second."""
        title = Text(f"{self.title}: {self._note}" if self._note else self.title, "bold")
        style = box.ASCII if self._console.options.ascii_only else box.ROUNDED
        return Frame(Group(self._draw_progress(), self._draw_values()), title=title, title_align="left", box=style)

    def _draw_progress(self) -> RenderableType:
        done, now = sum(run.done for run in self._runs) / len(self._runs), time.monotonic()
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
        """One line a run: the newest values, and how success has grown."""
        names = [name for name in self.shown if any(run.row.get(name) is not None for run in self._runs)]
        names = [name for name in names if name != self.unit]
        width = MOST_BARS if self._console.width >= WIDE else FEWEST_BARS
        numbered, grown = len(self._runs) > 1, any(run.successes for run in self._runs)
        table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim")
        for name in ["run"] * numbered + [_heading(name) for name in names] + ["so far"] * grown:
            table.add_column(name, justify="left", no_wrap=True)
        for number, run in enumerate(self._runs):
            values = [_format(name, run.row.get(name), "\n") for name in names]
            bars = "" if self._console.options.ascii_only else draw_bars(run.successes, width)
            table.add_row(*[str(number)] * numbered, *values, *[bars] * grown)
        return table


def draw_bars(shares: Sequence[float], width: int = MOST_BARS) -> str:
    """Shares from 0 to 1 as bars in a line of text; more than fit are averaged."""
    if not len(shares):
        return ""
    parts = np.array_split(np.clip(np.asarray(shares, dtype=np.float64), 0, 1), min(width, len(shares)))
    return "".join(BARS[min(len(BARS) - 1, int(part.mean() * len(BARS)))] for part in parts)


def describe(name: str, value: Any) -> str:
    """A value with its name: `success 93.4 %`, `loss 0.21`, `52,310 frames/s`."""
    heading = _heading(name)
    text = _format(name, value, ", ")
    return f"{text} {heading}" if name.endswith("_per_second") else f"{heading} {text}"


def describe_time(seconds: float) -> str:
    """A duration as people say it: `45 s`, `3 min`, `2 h 10 min`, `3 d 4 h`."""
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
    """A value as text; those of several levels follow each other."""
    if value is None:
        return ""
    if isinstance(value, Mapping):
        return separator.join(f"{key} {_format(name, item, separator)}" for key, item in value.items())
    if isinstance(value, str | bool):
        return str(value)
    number = float(value)
    if not math.isfinite(number):
        return str(number)
    if any(share in name for share in SHARES):
        return f"{100 * number:.1f} %"
    if name.endswith("_per_second") or number == round(number):
        return f"{number:,.0f}"
    return f"{number:.3g}"


def _mean(value: Any) -> float | None:
    """A share of success, or that of several levels on average."""
    values = list(value.values()) if isinstance(value, Mapping) else [value]
    known = [float(item) for item in values if item is not None and math.isfinite(item)]
    return sum(known) / len(known) if known else None
