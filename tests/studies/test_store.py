"""Rows and states: nothing is lost, nothing is doubled, and damage is named."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from babyai.studies import store
from babyai.studies.cells import CELLS, Run
from babyai.studies.store import (
    INDEX,
    ROWS,
    SLICES,
    State,
    StudyError,
    append_rows,
    collect_rows,
    make_row,
    read_rows,
    read_slices,
    seconds_trained,
)

CELL = CELLS["imitation/GoToLocal/5k/bow_endpool_res"]


def a_row(seed: int = 0, **changes: Any) -> dict[str, Any]:
    result = {"figures": {"best_mean": 0.8}, "seconds": 1.0, "test": {}}
    return make_row(Run(CELL, seed), result, {"commit": None, "gpu": None}, at_once=1) | changes


def make_run(folder: Path, seconds: float, size: int = 1000) -> None:
    """A run's folder with a checkpoint of `size` random bytes."""
    checkpoint = folder / "checkpoints" / "000000012"
    checkpoint.mkdir(parents=True)
    (checkpoint / "model.safetensors").write_bytes(random.Random(seconds).randbytes(size))
    (folder / "checkpoints" / "000000011").mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "demos.parquet").write_text("not needed: it is collected again")
    (folder / "metrics.jsonl").write_text(json.dumps({"seconds": seconds}) + '\n{"half a line')


# ------------------------------------------------------------ rows


def test_good_rows_are_kept_and_bad_lines_are_named(tmp_path: Path) -> None:
    path = tmp_path / "imitation.jsonl"
    append_rows(path, [a_row(0)])
    lines = [b"{broken", json.dumps(a_row(1, version=99)).encode(), b'{"version": 1, "cell": "x"}', b"[1]"]
    path.write_bytes(path.read_bytes() + b"\n".join(lines) + b"\n")
    append_rows(path, [a_row(2)])
    found = read_rows(tmp_path)
    assert [row["seed"] for row in found.rows] == [0, 2]
    facts = ("line 2: not valid JSON", "line 3: a row of version 99", "line 4: the row lacks kind", "line 5")
    assert len(found.problems) == 4 and all(fact in text for fact, text in zip(facts, found.problems, strict=True))


def test_line_that_was_cut_off_does_not_spoil_the_next(tmp_path: Path) -> None:
    path = tmp_path / ROWS
    append_rows(path, [a_row(0), a_row(1)])
    path.write_bytes(path.read_bytes()[:-20])
    append_rows(path, [a_row(2)])
    found = read_rows(path)
    assert [row["seed"] for row in found.rows] == [0, 2] and len(found.problems) == 1


def test_newest_complete_row_counts_or_else_the_longest(tmp_path: Path) -> None:
    path = tmp_path / ROWS
    cut = {"complete": False}
    append_rows(path, [a_row(0), a_row(0, seconds=9.0), a_row(0, seconds=99.0, **cut)])
    append_rows(path, [a_row(1, seconds=5.0, **cut), a_row(1, seconds=3.0, **cut)])
    found = read_rows(path)
    assert {seed: row["seconds"] for seed, row in found.chosen()[CELL.name].items()} == {0: 9.0, 1: 5.0}
    assert found.keys() == {(CELL.name, 0)}


def test_rows_of_states_are_collected_once(tmp_path: Path) -> None:
    states = [tmp_path / "a", tmp_path / "b"]
    append_rows(states[0] / ROWS, [a_row(0), a_row(1)])
    append_rows(states[1] / ROWS, [a_row(1), a_row(2)])
    results = tmp_path / "results"
    assert collect_rows(states, results) == (3, [])
    assert collect_rows(states, results) == (0, [])
    assert [row["seed"] for row in read_rows(results / "imitation.jsonl").rows] == [0, 1, 2]
    with pytest.raises(StudyError, match="nowhere"):
        collect_rows([tmp_path / "nowhere"], results)


# ------------------------------------------------------------ states


def test_unfinished_runs_travel(tmp_path: Path) -> None:
    here = State(tmp_path / "state", tmp_path / "here")
    make_run(here.runs / "first", 5.0)
    make_run(here.runs / "second", 7.0)
    (here.runs / "without-checkpoint").mkdir()
    assert here.pack({"frames": 1}) == []
    there = State(tmp_path / "state", tmp_path / "there")
    assert there.unpack() == ["second", "first"] and there.slices == [{"frames": 1}]
    for name in ("first", "second"):
        files = {path.relative_to(there.runs / name) for path in (there.runs / name).rglob("*") if path.is_file()}
        assert {str(file) for file in files} == {
            *("config.json", "metrics.jsonl", "checkpoints/000000012/model.safetensors"),
        }
        assert all((there.runs / name / file).read_bytes() == (here.runs / name / file).read_bytes() for file in files)
    assert seconds_trained(there.runs / "second") == 7.0


def test_run_that_is_further_here_stays(tmp_path: Path) -> None:
    state = State(tmp_path / "state", tmp_path / "work")
    make_run(state.runs / "run", 5.0)
    state.pack()
    (state.runs / "run" / "metrics.jsonl").write_text('{"seconds": 8.0}\n')
    state.unpack()
    assert seconds_trained(state.runs / "run") == 8.0


def test_least_advanced_runs_are_dropped_when_the_state_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "PART_BYTES", 20_000)
    state = State(tmp_path / "state", tmp_path / "work", parts=1)
    for number in range(4):
        make_run(state.runs / f"run-{number}", seconds=float(number), size=8_000)
    assert state.pack() == ["run-1", "run-0"]
    parts = list((tmp_path / "state").glob("*.part"))
    assert [path.stat().st_size <= 20_000 for path in parts] == [True]
    # Packed again, the old part is gone.
    state.pack()
    assert len(list((tmp_path / "state").iterdir())) == 2
    assert State(tmp_path / "state", tmp_path / "there").unpack() == ["run-3", "run-2"]


def test_damaged_states_are_named(tmp_path: Path) -> None:
    state = State(tmp_path / "state", tmp_path / "work")
    make_run(state.runs / "run", 5.0)
    state.pack()
    (part,) = (tmp_path / "state").glob("*.part")
    content = part.read_bytes()
    part.write_bytes(b"x" + content[1:])
    with pytest.raises(StudyError, match="run has changed"):
        State(tmp_path / "state", tmp_path / "there").unpack()
    part.unlink()
    with pytest.raises(StudyError, match=part.name):
        State(tmp_path / "state", tmp_path / "there").unpack()
    (tmp_path / "state" / INDEX).write_text('{"version": 7}')
    with pytest.raises(StudyError, match="version 1"):
        State(tmp_path / "state", tmp_path / "there")
    (tmp_path / "state" / INDEX).write_text("{")
    with pytest.raises(StudyError, match="damaged"):
        State(tmp_path / "state", tmp_path / "there")
    append_rows(tmp_path / "state" / ROWS, [a_row(0)])
    with pytest.raises(StudyError, match=INDEX):
        collect_rows([tmp_path / "state"], tmp_path / "results")
    assert not (tmp_path / "results").exists()
    (tmp_path / "results").mkdir()
    for damaged in ("{", "{}"):
        (tmp_path / "results" / SLICES).write_text(damaged)
        with pytest.raises(StudyError, match=SLICES):
            read_slices(tmp_path / "results")


def test_rows_of_unfinished_runs_are_not_collected(tmp_path: Path) -> None:
    unfinished, finished = a_row(0) | {"complete": False}, a_row(0)
    for name, row in (("first", unfinished), ("second", finished)):
        append_rows(tmp_path / name / ROWS, [row])
    states = [tmp_path / "first", tmp_path / "second"]
    assert collect_rows(states[:1], tmp_path / "results") == (0, [])
    assert [collect_rows(states, tmp_path / "results")[0] for _ in range(2)] == [1, 0]
    assert read_rows(tmp_path / "results").rows == [finished]
