"""What came of the runs of a study: rows are kept, failures are counted, and the user is told."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from babyai.studies.cells import Run
from babyai.studies.store import Row, State, make_row, read_rows

ATTEMPTS = 2

Tell = Callable[[str], None]


@dataclass
class Summary:
    """How a slice of a study went."""

    measured: int = 0
    """Runs measured in this slice."""
    before: int = 0
    """Runs that had been measured before."""
    total: int = 0
    at_once: int = 0
    """The most runs that were in progress at the same time, of those that may share the machine."""
    failed: dict[str, str] = field(default_factory=dict)
    """Why runs failed, by key."""
    dropped: list[str] = field(default_factory=list)
    """Unfinished runs that did not fit into the state."""
    frames: float = 0.0
    """Frames trained on in this slice, over all runs; not counted on a cluster."""
    seconds: float = 0.0

    @property
    def left(self) -> int:
        """Runs that are still to be measured."""
        return self.total - self.before - self.measured


class Recorder:
    """Keeps the outcomes of runs.

    Args:
        state: Where rows are added.
        results: Folder with rows measured before; None without one.
        summary: What is counted.
        tell: Called with lines about what happens.

    Attributes:
        rows: All rows so far, for estimates of time.
    """

    def __init__(self, state: State, results: Path | None, summary: Summary, tell: Tell) -> None:
        self.state = state
        self.summary = summary
        self.tell = tell
        self.rows: list[Row] = read_rows(*([results] if results else [])).rows
        self._attempts: dict[str, int] = {}

    @property
    def done(self) -> str:
        """How many runs are measured, in words."""
        return f"{self.summary.before + self.summary.measured} of {self.summary.total}"

    def add(self, run: Run, result: dict[str, Any], origin: dict[str, Any], at_once: int) -> None:
        """Keeps the row of a run."""
        # Where the state lies on this machine is of no interest to anybody else.
        command = origin["command"].replace(str(self.state.work), "WORK").replace(str(self.state.folder), "STATE")
        row = make_row(run, result, origin | {"command": command}, at_once)
        self.state.add(row, run)
        self.rows.append(row)
        self.summary.measured += 1
        self.tell(f"{self.done}: {describe_row(row)}")

    def fail(self, run: Run, reason: str) -> list[Run]:
        """Notes a failure; returns the run if it is to be tried once more."""
        self._attempts[run.key] = self._attempts.get(run.key, 0) + 1
        if self._attempts[run.key] < ATTEMPTS:
            self.tell(f"{run.key}: failed, trying once more: {reason}")
            return [run]
        self.tell(f"{run.key}: failed: {reason}")
        self.summary.failed[run.key] = reason
        return []


def describe_row(row: Row) -> str:
    """One line about a measured run."""
    figures = ", ".join(
        f"{name} {value:,.4g}" for name, value in row["figures"].items() if isinstance(value, int | float)
    )
    tests = {which: round(100 * test["success_rate"], 1) for which, test in row.get("test", {}).items()}
    return f"{row['cell']} seed {row['seed']}: {figures}{f', test {tests}' if tests else ''}, {row['seconds']:.0f} s"
