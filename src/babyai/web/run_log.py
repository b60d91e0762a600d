"""A run's metrics.jsonl as curves: read while it is being written, and averaged to a bounded number of points.

A log is read in parts, each of them once. Of a log that has become large before it is opened, only every k-th row is
parsed, because parsing hundreds of megabytes would keep everything else waiting. What is kept does not grow: when the
points are full, neighbors are merged, and a point then stands for twice as many rows, with their mean and range.
"""

import json
import math
import os
import stat
from array import array
from collections.abc import Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

# Bytes to parse at a time, bytes to read at a time, and bytes to parse in all before rows are left out.
PART_BYTES = 2**17
MAX_READ = 2**21
FULL_BYTES = 2**23
PARTS_PER_VERSION = 16
MAX_POINTS = 1024
MAX_METRICS = 128
MAX_DEPTH = 4
# Of the results of validation on each level, only these are kept.
LEVEL_METRICS = ("success_rate", "mean_reward", "mean_length")
# What grows from row to row, and can be an x-axis. `hours` and `row` are ours.
AXES = ("frames", "demos", "episodes", "update", "epoch", "hours", "row")
# Bytes before the position, by which to notice that rows were dropped: a resumed run returns to its checkpoint.
TAIL_BYTES = 64

Series = dict[str, list[float]]
# Unique in the process, so that a log that is read again is not taken for the one before.
_versions = count()


class _Column:
    """One metric: per point, the sum, number and range of the values of its rows."""

    def __init__(self) -> None:
        self.count = array("d", bytes(8 * MAX_POINTS))
        self.total = array("d", bytes(8 * MAX_POINTS))
        self.low = array("d", [math.inf]) * MAX_POINTS
        self.high = array("d", [-math.inf]) * MAX_POINTS

    def add(self, point: int, value: float) -> None:
        self.count[point] += 1
        self.total[point] += value
        self.low[point] = min(self.low[point], value)
        self.high[point] = max(self.high[point], value)

    def halve(self) -> None:
        """Merges each point with its neighbor."""
        for values, merge, empty in (
            (self.count, np.add, 0.0),
            (self.total, np.add, 0.0),
            (self.low, np.minimum, math.inf),
            (self.high, np.maximum, -math.inf),
        ):
            points = np.frombuffer(values)
            points[: MAX_POINTS // 2] = merge(points[::2], points[1::2])
            points[MAX_POINTS // 2 :] = empty


class Curves:
    """All metrics of a run, in at most `MAX_POINTS` points.

    Attributes:
        rows: Number of rows so far.
        stride: Rows per point.
    """

    def __init__(self) -> None:
        self.rows = 0
        self.stride = 1
        self._hours = 0.0
        self._columns: dict[str, _Column] = {}

    @property
    def names(self) -> list[str]:
        """The metrics, in the order in which they appeared."""
        return list(self._columns)

    def add(self, row: Mapping[str, Any], count: int = 1) -> None:
        """Adds a row of the log, which may stand for several."""
        values = dict(_iter_numbers(row))
        self._hours += count * (values.get("seconds", 0.0) + values.get("validation_seconds", 0.0)) / 3600
        while self.rows >= MAX_POINTS * self.stride:
            self.stride *= 2
            for column in self._columns.values():
                column.halve()
        point = self.rows // self.stride
        self.rows += count
        for name, value in (*values.items(), ("hours", self._hours), ("row", float(self.rows))):
            column = self._columns.get(name)
            if column is None:
                # The two of our own always have a place.
                if len(self._columns) >= MAX_METRICS and name not in ("hours", "row"):
                    continue
                column = self._columns[name] = _Column()
            column.add(point, value)

    def series(self, name: str, axis: str) -> Series:
        """A metric over an axis: x, y and, if points stand for several rows, their range; nothing for unknown names."""
        if name not in self._columns or axis not in self._columns:
            return {"x": [], "y": []}
        metric = self._columns[name]
        x = self._columns[axis]
        kept = (np.frombuffer(metric.count) > 0) & (np.frombuffer(x.count) > 0)
        means = np.frombuffer(metric.total)[kept] / np.frombuffer(metric.count)[kept]
        series = {"x": _short(np.frombuffer(x.high)[kept]), "y": _short(means)}
        if self.stride > 1:
            series["low"] = _short(np.frombuffer(metric.low)[kept])
            series["high"] = _short(np.frombuffer(metric.high)[kept])
        return series


class RunLog:
    """Follows a metrics.jsonl.

    Attributes:
        curves: What was read so far.
        damaged: Number of lines that could not be read.
        position: Bytes that have been read; an unfinished last line is not.
        behind: Bytes that the last update did not get to.
        every: Every how many rows one is parsed.
        sampled: The largest such number so far.
        version: Changes when the curves do; less often while `behind`.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.version = next(_versions)
        self._clear()

    def _clear(self) -> None:
        self.curves = Curves()
        self.damaged = 0
        self.position = 0
        self.behind = 0
        self.every = 1
        self.sampled = 1
        self._parts = 0
        self._tail = b""
        self._in_long_line = False

    def update(self) -> None:
        """Reads on, a part at a time; from the start if rows were dropped since the last time.

        Raises:
            OSError: The file cannot be read, or is not a regular file.
        """
        try:
            descriptor = open_regular(self._path)
        except FileNotFoundError:
            # A run that has just begun.
            if self.position:
                self._clear()
                self.version = next(_versions)
            return
        with open(descriptor, "rb", buffering=0) as file:
            self._check_tail(file)
            unread = os.fstat(descriptor).st_size - self.position
            if self.every == 1:
                self.every = max(1, unread // FULL_BYTES)
                self.sampled = max(self.sampled, self.every)
            wanted = min(PART_BYTES * self.every, MAX_READ)
            file.seek(self.position)
            data = file.read(wanted)
        self.behind = max(0, unread - len(data))
        end = data.rfind(b"\n") + 1
        if end or len(data) == wanted:
            self._take(data[:end] if end else data, is_whole=bool(end))
            self._parts += 1
            # While catching up, pages need not draw each part.
            if not self.behind or self._parts % PARTS_PER_VERSION == 1:
                self.version = next(_versions)
        if not self.behind:
            self.every = 1

    def _check_tail(self, file: Any) -> None:
        """Starts again if what was read last is no longer there."""
        file.seek(self.position - len(self._tail))
        if file.read(len(self._tail)) != self._tail:
            self._clear()
            self.version = next(_versions)

    def _take(self, data: bytes, is_whole: bool) -> None:
        """Takes in lines, or a part of a line that is too long to be one."""
        self.position += len(data)
        self._tail = (self._tail + data[-TAIL_BYTES:])[-TAIL_BYTES:]
        lines = data.split(b"\n")[:-1]
        if self._in_long_line or not is_whole:
            self.damaged += not self._in_long_line
            self._in_long_line = not is_whole
            lines = lines[1:]
        for first in range(0, len(lines), self.every):
            self._add(lines[first], min(self.every, len(lines) - first))

    def _add(self, line: bytes, count: int) -> None:
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict):
            self.curves.add(row, count)
        else:
            self.damaged += 1


def open_regular(path: Path) -> int:
    """A descriptor of a file, to read; never of a link, a pipe or a device, whose end might never come.

    Raises:
        OSError: It is one of these, or cannot be opened.
    """
    flags = sum(getattr(os, name, 0) for name in ("O_RDONLY", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC", "O_BINARY"))
    descriptor = os.open(path, flags)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(f"{path} is not a regular file")
    return descriptor


def _iter_numbers(row: Mapping[str, Any], prefix: str = "", depth: int = 1) -> Iterator[tuple[str, float]]:
    """The numbers of a row; nested ones as `outer/inner`."""
    for key, value in row.items():
        name = f"{prefix}{key}"[:100]
        if isinstance(value, dict):
            if depth < MAX_DEPTH:
                yield from _iter_numbers(value, f"{name}/", depth + 1)
        elif _is_number(value) and (not name.startswith("levels/") or key in LEVEL_METRICS):
            yield name, float(value)


def _is_number(value: Any) -> bool:
    """Finite, and small enough for a float, which integers need not be."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300


def _short(values: np.ndarray) -> list[float]:
    """To 7 digits, so that messages stay short."""
    magnitude = np.floor(np.log10(np.maximum(np.abs(values), 1e-300)))
    scale = 10.0 ** np.clip(6 - magnitude, -300, 300)
    return (np.round(values * scale) / scale).tolist()
