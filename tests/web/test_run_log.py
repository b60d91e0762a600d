"""Reading metrics.jsonl while it is written: in parts, whatever is in it, and in bounded memory."""

import json
import os
import time
import tracemalloc
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babyai.web import run_log
from babyai.web.run_log import MAX_METRICS, MAX_POINTS, Curves, RunLog


def lines(rows: Iterable[dict[str, Any]]) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def rows_of(count: int, first: int = 0) -> list[dict[str, Any]]:
    return [{"frames": 10 * k, "loss": 1 / (k + 1), "seconds": 36.0} for k in range(first, first + count)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metrics.jsonl"


def read_all(log: RunLog) -> RunLog:
    log.update()
    while log.behind:
        log.update()
    return log


def test_rows_become_curves(path: Path) -> None:
    row = {"frames": 5, "levels": {"GoToObj": {"success_rate": 0.5, "first_seed": 3}}, "note": "a", "flag": True}
    path.write_bytes(lines([*rows_of(3), row]))
    curves = read_all(RunLog(path)).curves
    assert curves.names == ["frames", "loss", "seconds", "hours", "row", "levels/GoToObj/success_rate"]
    assert curves.series("loss", "frames") == {"x": [0, 10, 20], "y": [1, 0.5, 0.3333333]}
    assert curves.series("loss", "hours")["x"] == [0.01, 0.02, 0.03]
    assert curves.series("levels/GoToObj/success_rate", "row") == {"x": [4], "y": [0.5]}
    assert curves.series("nothing", "row") == {"x": [], "y": []}


def test_an_unfinished_line_waits_for_its_end(path: Path) -> None:
    data = lines(rows_of(5))
    log = RunLog(path)
    log.update()
    assert log.curves.rows == 0
    seen = []
    for end in range(len(data) + 1):
        path.write_bytes(data[:end])
        log.update()
        seen.append(log.curves.rows)
    assert seen == [data[:end].count(b"\n") for end in range(len(data) + 1)] and log.damaged == 0
    # Nothing new: the version stays, so that pages need not draw again.
    version = log.version
    log.update()
    assert log.version == version


def test_rows_that_a_resumed_run_dropped_are_forgotten(path: Path) -> None:
    path.write_bytes(lines(rows_of(50)))
    log = read_all(RunLog(path))
    # The file is as long as before, and longer, when it is looked at again.
    for again in (rows_of(20) + rows_of(30, first=100), rows_of(10) + rows_of(80, first=200)):
        version = log.version
        path.write_bytes(lines(again))
        read_all(log)
        assert log.version > version and log.curves.rows == len(again)
        assert log.curves.series("frames", "row")["y"] == [row["frames"] for row in again]
    path.unlink()
    log.update()
    assert log.curves.rows == 0


def test_damaged_lines_are_counted(path: Path) -> None:
    bad = [b"{", b"[1]", b"", b"\xff\xfe", b"[" * 5000, b'{"loss": ' + b"9" * 5000 + b"}", b"null"]
    good = b'{"loss": NaN, "frames": 1e999, "huge": ' + b"9" * 400 + b', "deep": {"a": {"b": {"c": {"d": 1}}}}}'
    path.write_bytes(b"\n".join([*bad, good, b'{"loss": 2}', b""]))
    log = read_all(RunLog(path))
    assert log.damaged == len(bad) and log.curves.rows == 2 and log.curves.names == ["hours", "row", "loss"]


def test_a_line_without_end_is_skipped(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "PART_BYTES", 100)
    path.write_bytes(lines(rows_of(3)) + b"x" * 1234 + b"\n" + lines(rows_of(4)) + b"y" * 500)
    log = read_all(RunLog(path))
    assert log.curves.rows == 7 and log.damaged == 2
    path.write_bytes(path.read_bytes() + b"\n" + lines(rows_of(2)))
    assert read_all(log).curves.rows == 9


def test_only_a_part_is_read_at_a_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "PART_BYTES", 4096)
    data = lines(rows_of(1000))
    path.write_bytes(data)
    log = RunLog(path)
    behind = []
    while not behind or behind[-1]:
        log.update()
        behind.append(log.behind)
    assert log.position == len(data) and log.curves.rows == 1000
    assert all(0 < a - b <= 4096 for a, b in pairwise(behind)) and len(behind) >= len(data) / 4096


def test_of_a_large_log_only_some_rows_are_parsed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_log, "PART_BYTES", 2048)
    monkeypatch.setattr(run_log, "FULL_BYTES", 8192)
    data = lines(rows_of(2000))
    path.write_bytes(data)
    log = RunLog(path)
    log.update()
    assert log.every == log.sampled == len(data) // 8192 > 5 and log.behind > 0
    read_all(log)
    series = log.curves.series("loss", "frames")
    assert log.curves.rows == 2000 and 2000 / log.sampled <= len(series["x"]) <= 2500 / log.sampled
    assert all(y == pytest.approx(10 / (x + 10)) for x, y in zip(series["x"], series["y"], strict=True))
    assert log.curves.series("loss", "hours")["x"][-1] == pytest.approx(2000 * 0.01, rel=0.01)
    # What comes later is parsed completely.
    with open(path, "ab") as file:
        file.write(lines(rows_of(3, first=2000)))
    read_all(log)
    assert log.every == 1 and log.curves.series("frames", "row")["y"][-2:] == [20_005, 20_020]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.sampled_from([4, 8, 32]))
def test_merged_points_keep_mean_and_range(values: list[float], points: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run_log, "MAX_POINTS", points)
        curves = Curves()
        for k, value in enumerate(values):
            curves.add({"frames": k, "loss": value})
        series = curves.series("loss", "frames")
    stride = curves.stride
    assert stride == 1 or points / 2 < len(series["y"]) <= points
    groups = [values[k : k + stride] for k in range(0, len(values), stride)]
    assert series["y"] == pytest.approx([sum(group) / len(group) for group in groups], rel=1e-4, abs=1e-3)
    assert series["x"] == [min(k + stride, len(values)) - 1 for k in range(0, len(values), stride)]
    if stride > 1:
        assert series["low"] == pytest.approx([min(group) for group in groups])
        assert series["high"] == pytest.approx([max(group) for group in groups])


def test_memory_is_bounded(path: Path) -> None:
    rows = [{f"metric {k}": k for k in range(MAX_METRICS + 50)}] + rows_of(10)
    path.write_bytes(lines(rows))
    tracemalloc.start()
    log = read_all(RunLog(path))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(log.curves.names) <= MAX_METRICS + 2 and log.curves.rows == len(rows)
    assert used < 8 * 2**20


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "file").write_bytes(lines(rows_of(1)))
    (tmp_path / "link").symlink_to(tmp_path / "file")
    for name in ("pipe", "link"):
        with pytest.raises(OSError, match=name):
            RunLog(tmp_path / name).update()


@pytest.mark.long
def test_a_log_of_500_mb_is_read_in_short_parts(path: Path) -> None:
    """Prints how long a part takes at most: other sessions wait no longer than that."""
    row = {"frames": 1, "episodes": 2, **{f"metric_{k}": 0.123456789 * k for k in range(40)}}
    line = lines([row])
    block = line * (2**20 // len(line))
    with open(path, "wb") as file:
        for _ in range(500):
            file.write(block)
    log = RunLog(path)
    times = []
    while not times or log.behind:
        started = time.perf_counter()
        log.update()
        times.append(time.perf_counter() - started)
    print(f"{len(times)} parts in {sum(times):.1f} s, the longest in {1e3 * max(times):.0f} ms")
    assert (
        log.curves.rows == path.stat().st_size // len(line)
        and len(log.curves.series("metric_3", "row")["y"]) <= MAX_POINTS
    )
    assert sum(times) < 30, sum(times)
