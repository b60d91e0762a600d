"""Studies: they measure each run once, whatever happens meanwhile."""

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from babyai.studies.cells import Cell, Run
from babyai.studies.scheduler import Plan, run_study
from babyai.studies.store import MAX_FILES, PART_BYTES, State, read_rows
from tests.studies.tiny_study import LEVEL, run_tiny
from tests.training.tiny import PATH

ROOT = Path(__file__).parents[2]
# What differs between two runs of the same.
VOLATILE = ("at_once", "seconds", "origin", "frames_per_second", "validation_seconds")


def stable(value: Any) -> Any:
    """A row without what depends on the machine and the time."""
    if isinstance(value, dict):
        return {name: stable(item) for name, item in value.items() if name not in VOLATILE}
    return value


def stable_rows(state: Path) -> list[Any]:
    found = read_rows(state / "rows.jsonl")
    assert not found.problems
    return sorted((stable(row) for row in found.rows), key=lambda row: (row["cell"], row["seed"]))


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("study") / "undisturbed"
    summary = run_tiny(state, at_once=2)
    assert (summary.measured, summary.left, summary.failed, summary.dropped) == (4, 0, {}, [])
    return state


def start(state: Path, minutes: float | None = None) -> subprocess.Popen[bytes]:
    words = [str(state), *([str(minutes)] if minutes else [])]
    return subprocess.Popen(
        [sys.executable, "-m", "tests.studies.tiny_study", *words], cwd=ROOT, stdout=subprocess.DEVNULL
    )


def test_rows_have_figures_tests_curves_and_provenance(undisturbed: Path) -> None:
    rows = read_rows(undisturbed / "rows.jsonl").rows
    assert {(row["kind"], row["seed"]) for row in rows} == {(k, s) for k in ("imitation", "ppo") for s in (0, 1)}
    for row in rows:
        assert row["quick"] and row["complete"] and row["at_once"] == 2 and row["seconds"] > 0
        assert set(row["test"]) == {"last", "best", "sampled"}
        assert row["test"]["last"]["missions"] == 256 and row["test"]["last"]["first_seed"] == 2 * 10**9
        assert row["command"].startswith(f"babyai train {row['kind']} --levels {LEVEL} ")
        assert {"commit", "versions", "cpu", "gpu", "command"} <= set(row["origin"])
    (imitation, *_) = (row for row in rows if row["kind"] == "imitation")
    assert imitation["figures"]["validations"] == len(imitation["curve"]["success"]) == 12
    ppo = next(row for row in rows if row["kind"] == "ppo")
    assert {"centered", "trailing"} <= set(ppo["figures"]) and ppo["curve"]["frames"][-1] == 960


def test_finished_study_measures_nothing_again_and_leaves_nothing_behind(undisturbed: Path) -> None:
    before = (undisturbed / "rows.jsonl").read_bytes()
    summary = run_tiny(undisturbed)
    assert (summary.measured, summary.before) == (0, 4)
    assert (undisturbed / "rows.jsonl").read_bytes() == before
    assert sorted(path.name for path in undisturbed.iterdir()) == ["rows.jsonl", "state.json"]
    assert not list((undisturbed.parent / "undisturbed.work" / "runs").iterdir())


def wait_for(process: subprocess.Popen[bytes], found: Callable[[], object]) -> None:
    while not found():
        assert process.poll() is None
        time.sleep(0.02)


@pytest.mark.long
def test_killed_and_moved_study_has_the_same_rows(undisturbed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    runs = tmp_path / "state.work" / "runs"
    process = start(state)
    wait_for(process, lambda: list(runs.glob("*/checkpoints/*")))
    process.kill()
    process.wait()
    process = start(state)
    wait_for(process, lambda: (state / "rows.jsonl").exists() and list(runs.glob("*/checkpoints/*")))
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=60) == 0
    # It stopped by itself, and left a state that is enough to continue elsewhere.
    files = list(state.iterdir())
    assert len(files) <= MAX_FILES and all(file.stat().st_size <= PART_BYTES for file in files)
    elsewhere = tmp_path / "elsewhere" / "state"
    shutil.copytree(state, elsewhere)
    shutil.rmtree(tmp_path / "state.work")
    assert run_tiny(elsewhere).left == 0
    assert stable_rows(elsewhere) == stable_rows(undisturbed)


@pytest.mark.long
def test_time_limit_is_kept(tmp_path: Path) -> None:
    started = time.monotonic()
    summary = run_tiny(tmp_path / "state", minutes=0.2, seeds=1, epochs=100_000)
    assert time.monotonic() - started < 12
    assert summary.left and not summary.failed


@pytest.mark.long
def test_failing_run_is_tried_twice_and_does_not_stop_the_others(tmp_path: Path) -> None:
    faulty = Cell("ppo", LEVEL, PATH, settings=(("worlds", 4), ("settings", ("hidden=0.5",))), quick=True)
    lengths = Cell("demo-lengths", LEVEL, demos=50, quick=True)
    speed = Cell("speed", LEVEL, PATH, settings=(("worlds", 4),), quick=True)
    runs = [Run(cell, 0) for cell in (faulty, lengths, speed)]
    lines: list[str] = []
    state = State(tmp_path / "state", tmp_path / "work")
    summary = run_study(runs, state, Plan("cpu", at_once=8), lines.append)
    assert summary.measured == 2 and set(summary.failed) == {runs[0].key}
    assert sum("failed" in line for line in lines) == 2
    rows = state.rows().rows
    # Lengths and speed are measured alone, whatever was asked for.
    assert [row["at_once"] for row in rows] == [1, 1]
    first, second = (row["figures"] for row in rows)
    assert first["demos"] == 50 and 1 < first["mean"] < 20 and first["std"] > 0 and first["unsolved"] == 0
    assert [second["frames_per_second"]] == second["rounds"] and second["frames_per_second"] > 0


@pytest.mark.long
def test_study_killed_ten_times_has_the_same_rows(undisturbed: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    generator = random.Random(int(os.environ.get("BABYAI_TEST_SEED", "0")))
    for _ in range(10):
        process = start(state)
        time.sleep(generator.uniform(3, 9))
        process.kill()
        process.wait()
    assert run_tiny(state).left == 0
    assert stable_rows(state) == stable_rows(undisturbed)


@pytest.mark.long
def test_study_sliced_into_ten_has_the_same_rows(undisturbed: Path, tmp_path: Path) -> None:
    for number in range(10):
        # Each slice on a machine of its own.
        state = tmp_path / str(number) / "state"
        if number:
            shutil.copytree(tmp_path / str(number - 1) / "state", state)
        run_tiny(state, minutes=0.25)
    assert run_tiny(state).left == 0
    assert stable_rows(state) == stable_rows(undisturbed)
