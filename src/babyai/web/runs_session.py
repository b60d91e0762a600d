"""The session of the page of runs: their list, their curves, and the results of studies.

All sessions share one `RunLibrary`, so that a log is read once and kept in memory once, however many pages show it.
"""

import hashlib
import json
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from pathlib import Path
from typing import Any

from babyai.web.run_list import METRICS, find_run, list_runs
from babyai.web.run_log import AXES, RunLog
from babyai.web.session import Message, Session, check

MAX_LOGS = 32
MAX_NAMES = 24
# Results that take longer to read than a page should wait: `babyai study report` can do it.
MAX_RESULTS = 64 * 2**20
MAX_SECONDS = 120
# Seconds to wait while another session reads; the page asks again.
PATIENCE = 0.05
# How long to rest after reading a part of a large log, as a multiple of the time that it took.
REST = 4.0
BUSY: Message = {"type": "busy"}


class RunLibrary:
    """The runs below a folder and the results of studies, as far as they have been read.

    Args:
        root: Folder; nothing outside of it is read.
        results: Folder of the results of studies.
    """

    def __init__(self, root: Path, results: Path) -> None:
        self.root = root
        self.results = results
        self._logs: OrderedDict[Path, RunLog] = OrderedDict()
        # One session reads at a time, so that reading large files cannot keep games from being answered.
        self._reading_log = threading.Lock()
        self._reading_results = threading.Lock()
        self._rest_until = 0.0
        self._report: tuple[str, Message] | None = None

    def metrics(self, run: str, names: list[str], axis: str, since: int) -> Message:
        """The curves of a run, if they have changed since a version of them; `busy` if they cannot be read just now."""
        path = find_run(self.root, run) / METRICS
        if not self._reading_log.acquire(timeout=PATIENCE):
            return BUSY
        try:
            log = self._logs.setdefault(path, RunLog(path))
            self._logs.move_to_end(path)
            while len(self._logs) > MAX_LOGS:
                self._logs.popitem(last=False)
            self._update(log)
            return _describe_log(log, run, names, axis, since)
        finally:
            self._reading_log.release()

    def _update(self, log: RunLog) -> None:
        """Reads on. While catching up with large logs, rests for most of the time, in which games are answered."""
        started = time.monotonic()
        if log.behind and started < self._rest_until:
            return
        log.update()
        now = time.monotonic()
        self._rest_until = now + REST * (now - started)

    def study(self, since: str) -> Message:
        """The results of studies, if they have changed since a version of them."""
        version = self._results_version()
        if version == since:
            return {"type": "unchanged"}
        if not self._reading_results.acquire(timeout=PATIENCE):
            return BUSY
        try:
            if self._report is None or self._report[0] != version:
                self._report = version, {"type": "study", "version": version, **_make_report(self.results)}
            return self._report[1]
        finally:
            self._reading_results.release()

    def _results_version(self) -> str:
        """Changes whenever a file of results does."""
        if not self.results.is_dir():
            raise ValueError(f"there are no results of studies in {self.results}")
        statuses = {path.name: path.stat() for path in sorted(self.results.glob("*.json*"))}
        size = sum(status.st_size for status in statuses.values())
        if size > MAX_RESULTS:
            raise ValueError(f"the results in {self.results} have {size:,} bytes; use `babyai study report`")
        described = repr([(name, status.st_size, status.st_mtime_ns) for name, status in statuses.items()])
        return hashlib.sha256(described.encode()).hexdigest()


def _make_report(results: Path) -> Message:
    """The results of studies, made by another process.

    Raises:
        ValueError: It failed.
    """
    command = [sys.executable, "-P", "-m", "babyai.web.study_results", str(results)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=MAX_SECONDS)
    except subprocess.TimeoutExpired:
        raise ValueError(f"reading the results in {results} took too long; use `babyai study report`") from None
    except subprocess.CalledProcessError as failed:
        reason = failed.stderr.strip().rpartition("\n")[2][:300]
        raise ValueError(f"the results in {results} cannot be shown: {reason}") from None
    return json.loads(done.stdout)


class RunsSession(Session):
    """A page that shows runs."""

    def __init__(self, library: RunLibrary) -> None:
        self._library = library

    def do_runs(self) -> Message:
        """The runs below the folder."""
        return {"type": "runs", "folder": str(self._library.root), "axes": AXES, "runs": list_runs(self._library.root)}

    def do_metrics(self, run: Any, names: Any, axis: Any = "row", since: Any = -1) -> Message:
        """The curves of metrics of a run over an axis."""
        check(run, str, "run")
        check(since, int, "since")
        if axis not in AXES:
            raise ValueError(f"axis must be one of {', '.join(AXES)}, not {str(axis)[:40]!r}")
        if not isinstance(names, list) or len(names) > MAX_NAMES or not all(isinstance(name, str) for name in names):
            raise ValueError(f"names must be a list of at most {MAX_NAMES} metrics")
        return self._library.metrics(run, names, axis, since)

    def do_study(self, since: Any = "") -> Message:
        """The results of studies."""
        return self._library.study(check(since, str, "since"))


# ------------------------------------------------------------ as JSON types


def _describe_log(log: RunLog, run: str, names: list[str], axis: str, since: int) -> Message:
    curves = log.curves
    progress = {"run": run, "version": log.version, "read": log.position, "behind": log.behind}
    if log.version == since:
        return {"type": "unchanged"} | progress
    return {
        "type": "metrics",
        **progress,
        "rows": curves.rows,
        "stride": curves.stride,
        "damaged": log.damaged,
        "sampled": log.sampled,
        "names": curves.names,
        "axis": axis,
        "series": {name: curves.series(name, axis) for name in names},
    }
