"""The page of runs without a network: the runs it finds, names that stay in the folder, curves, results of studies."""

import json
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from babyai.studies.report import make_report
from babyai.training import run as run_folders
from babyai.web import run_list, runs_session
from babyai.web.runs_session import MAX_LOGS, RunLibrary, RunsSession
from babyai.web.study_results import describe_results
from tests.web.running import RESULTS

OPTIONS = {"levels": "GoToLocal", "architecture": "bow_endpool_res", "size": "small", "seed": 3}


def tell(session: RunsSession, **message: Any) -> dict[str, Any]:
    return json.loads(json.dumps(session.answer(json.dumps(message))))


def write_run(folder: Path, rows: int, kind: str = "imitation") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    config = {"kind": kind, "config": OPTIONS, "origin": {}, "resumed": []}
    (folder / "config.json").write_text(json.dumps(config))
    content = [{"epoch": k, "frames": 100 * k, "loss": 1 / k, "success": 0.5} for k in range(1, rows + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in content))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "runs"
    for age, (name, rows) in enumerate((("first", 3), ("study.work/deep/second", 5), ("third", 0))):
        os.utime(write_run(root / name, rows) / "metrics.jsonl", (1e9 - age, 1e9 - age))
    write_run(tmp_path / "outside", 2)
    return root


@pytest.fixture
def session(root: Path) -> RunsSession:
    return RunsSession(RunLibrary(root, RESULTS))


def test_the_names_of_files_are_those_of_training() -> None:
    assert (run_list.CONFIG, run_list.METRICS) == (run_folders.CONFIG, run_folders.METRICS)


def test_runs_are_found_at_any_depth_newest_first(session: RunsSession, root: Path) -> None:
    (root / "not a run").mkdir()
    (root / "broken").mkdir()
    (root / "broken" / "config.json").write_text("{")
    answer = tell(session, do="runs")
    assert [run["name"] for run in answer["runs"]] == ["first", "study.work/deep/second", "third", "broken"]
    first = answer["runs"][0]
    assert first["kind"] == "imitation" and first["options"].startswith(
        "levels GoToLocal, architecture bow_endpool_res"
    )
    assert first["changed"] == 1e9 and first["bytes"] > 0 and answer["runs"][-1]["kind"] == "unknown"
    assert tell(RunsSession(RunLibrary(root / "nothing", RESULTS)), do="runs")["runs"] == []


def test_one_run_can_be_the_folder(root: Path) -> None:
    session = RunsSession(RunLibrary(root / "first", RESULTS))
    assert [run["name"] for run in tell(session, do="runs")["runs"]] == ["."]
    assert tell(session, do="metrics", run=".", names=["loss"])["rows"] == 3


def test_the_number_of_runs_and_folders_is_bounded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_list, "MAX_RUNS", 2)
    for k in range(20):
        write_run(root / f"more-{k}", 0)
    found = run_list.list_runs(root)
    assert 2 <= len(found) < 23
    shutil.rmtree(root)
    deep = root.joinpath(*"abcdefgh")
    write_run(deep, 1)
    assert run_list.list_runs(root) == []


def test_curves_while_the_run_is_written(session: RunsSession, root: Path) -> None:
    answer = tell(session, do="metrics", run="first", names=["loss", "nothing"], axis="frames")
    assert answer["series"] == {"loss": {"x": [100, 200, 300], "y": [1, 0.5, 0.3333333]}, "nothing": {"x": [], "y": []}}
    assert answer["names"][:4] == ["epoch", "frames", "loss", "success"] and answer["behind"] == 0
    same = tell(session, do="metrics", run="first", names=["loss"], axis="frames", since=answer["version"])
    assert same["type"] == "unchanged" and same["version"] == answer["version"]
    with open(root / "first" / "metrics.jsonl", "a") as file:
        file.write('{"frames": 400, "loss": 0.25}\n{"frames": 5')
    more = tell(session, do="metrics", run="first", names=["loss"], axis="frames", since=answer["version"])
    assert more["rows"] == 4 and more["series"]["loss"]["y"][-1] == 0.25 and more["damaged"] == 0


def test_a_run_that_trains_is_followed(tmp_path: Path) -> None:
    """With the rows that training itself writes."""
    session = RunsSession(RunLibrary(tmp_path, RESULTS))
    with run_folders.Run.create(tmp_path / "mine", OPTIONS, "ppo") as run:
        assert tell(session, do="metrics", run="mine", names=["loss"])["rows"] == 0
        for k in range(3):
            run.log(
                {"update": k, "loss": float("nan") if k == 1 else 0.5, "levels": {"GoToObj": {"success_rate": 0.5}}}
            )
            assert tell(session, do="metrics", run="mine", names=["loss"])["rows"] == k + 1
    answer = tell(session, do="metrics", run="mine", names=["loss", "levels/GoToObj/success_rate"], axis="update")
    assert answer["series"]["loss"] == {"x": [0, 2], "y": [0.5, 0.5]}
    assert answer["series"]["levels/GoToObj/success_rate"]["y"] == [0.5] * 3
    assert tell(session, do="runs")["runs"][0]["kind"] == "ppo"


@pytest.mark.parametrize(
    "name",
    ["../outside", "..", "", "/etc", "first/../../outside", "linked", "linked/inner", "nobody", 3, ["first"], "a\\b"]
    + ["first/", "/first", ".", "./first", "study.work", ".hidden", "first\n", "first\0", "a/" * 300],
)
def test_names_cannot_leave_the_folder(session: RunsSession, root: Path, name: Any) -> None:
    write_run(root.parent / "outside" / "inner", 1)
    (root / "linked").symlink_to(root.parent / "outside")
    assert tell(session, do="metrics", run=name, names=["loss"])["type"] == "error"
    assert "linked" not in [run["name"] for run in tell(session, do="runs")["runs"]]


def test_links_to_files_are_not_followed(session: RunsSession, root: Path) -> None:
    (root / "third" / "metrics.jsonl").unlink()
    (root / "third" / "metrics.jsonl").symlink_to(root.parent / "outside" / "metrics.jsonl")
    assert tell(session, do="metrics", run="third", names=["loss"])["type"] == "error"
    (root / "third" / "config.json").unlink()
    (root / "third" / "config.json").symlink_to(root.parent / "outside" / "config.json")
    assert {run["name"]: run["kind"] for run in tell(session, do="runs")["runs"]}["third"] == "unknown"
    # The folder itself may be a link: whoever starts the server chose it.
    (root.parent / "alias").symlink_to(root)
    alias = RunsSession(RunLibrary(root.parent / "alias", RESULTS))
    assert tell(alias, do="metrics", run="first", names=["loss"])["rows"] == 3


@pytest.mark.parametrize(
    "message",
    [
        {"run": "first"},
        {"run": "first", "names": "loss"},
        {"run": "first", "names": [1]},
        {"run": "first", "names": ["loss"] * 25},
        {"run": "first", "names": [], "axis": "loss"},
        {"run": "first", "names": [], "axis": None},
        {"run": "first", "names": [], "since": "now"},
        {"run": "first", "names": [], "path": "/etc"},
    ],
)
def test_wrong_messages_are_refused(session: RunsSession, message: dict[str, Any]) -> None:
    assert tell(session, do="metrics", **message)["type"] == "error"
    assert tell(session, do="metrics", run="first", names=["loss"])["rows"] == 3


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["run", "names", "axis", "since"]), inner),
)


@given(ANYTHING, st.sampled_from(["runs", "metrics", "study"]))
def test_any_json_is_answered(content: Any, name: str) -> None:
    session = RunsSession(RunLibrary(Path("/nonexistent/runs"), Path("/nonexistent/results")))
    if isinstance(content, dict):
        content = {**content, "do": name}
    assert session.answer(json.dumps(content))["type"] in ("error", "runs")


def test_only_so_many_logs_are_kept(root: Path) -> None:
    library = RunLibrary(root, RESULTS)
    session = RunsSession(library)
    for k in range(MAX_LOGS + 5):
        write_run(root / f"run-{k}", 2)
        assert tell(session, do="metrics", run=f"run-{k}", names=["loss"])["rows"] == 2
    assert len(library._logs) == MAX_LOGS
    assert tell(session, do="metrics", run="run-0", names=["loss"])["rows"] == 2


def test_a_session_does_not_wait_for_another_that_reads(session: RunsSession) -> None:
    for lock, message in (
        ("_reading_log", {"do": "metrics", "run": "first", "names": []}),
        ("_reading_results", {"do": "study"}),
    ):
        held: threading.Lock = getattr(session._library, lock)
        with held:
            assert tell(session, **message) == {"type": "busy"}


# ---------------------------------------------------------------- studies


@pytest.mark.long
def test_results_of_studies_are_those_of_the_report(session: RunsSession) -> None:
    answer = tell(session, do="study")
    report = make_report(RESULTS)
    assert [(grid["measured"], grid["total"]) for grid in answer["grids"]] == [
        (grid.measured, grid.total) for grid in report.grids
    ]
    for shown, grid in zip(answer["grids"], report.grids, strict=True):
        cells = [(cell["paper"], cell["ours"], cell["agrees"]) for row in shown["rows"] for cell in row["cells"]]
        assert cells == [(cell.paper, cell.ours, cell.agrees) for _, cells in grid.rows for cell in cells]
    assert len(answer["charts"]) == len(report.charts) and answer["charts"][0]["curves"][0]["y"]
    assert tell(session, do="study", since=answer["version"]) == {"type": "unchanged"}


def test_new_results_are_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # In this process, which has imported everything already.
    monkeypatch.setattr(runs_session, "_make_report", describe_results)
    results = tmp_path / "results"
    shutil.copytree(RESULTS, results)
    lines = (results / "demo-lengths.jsonl").read_text().splitlines(keepends=True)
    (results / "demo-lengths.jsonl").write_text("".join(lines[:5]))
    session = RunsSession(RunLibrary(tmp_path, results))
    before = tell(session, do="study")
    with open(results / "demo-lengths.jsonl", "a") as file:
        file.write(lines[5] + lines[6][:50])
    after = tell(session, do="study", since=before["version"])
    measured = [next(grid["measured"] for grid in each["grids"] if grid["unit"] == "steps") for each in (before, after)]
    assert measured == [5, 6] and "line 7" in after["problems"][0]


def test_missing_and_oversized_results_are_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    answer = tell(RunsSession(RunLibrary(tmp_path, tmp_path / "nothing")), do="study")
    assert answer["type"] == "error" and "nothing" in answer["message"]
    monkeypatch.setattr(runs_session, "MAX_RESULTS", 1000)
    answer = tell(RunsSession(RunLibrary(tmp_path, RESULTS)), do="study")
    assert answer["type"] == "error" and "babyai study report" in answer["message"]


def test_runs_are_shown_without_torch_and_scipy(root: Path) -> None:
    script = (
        "import sys; sys.modules['torch'] = sys.modules['scipy'] = None\n"
        "from pathlib import Path; from babyai.web import study_results\n"
        "from babyai.web.runs_session import RunLibrary, RunsSession\n"
        f"session = RunsSession(RunLibrary(Path({str(root)!r}), Path()))\n"
        'assert session.answer(\'{"do": "metrics", "run": "first", "names": ["loss"]}\')["rows"] == 3\n'
        f"sys.argv = ['', {str(RESULTS)!r}]\n"
        "study_results.main()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pip install 'babyai[agents]'" in done.stderr, done.stderr


def test_a_report_that_fails_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line says what is wrong; the server goes on."""
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\necho Traceback >&2\necho it is broken >&2\nexit 1\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    answer = tell(RunsSession(RunLibrary(tmp_path, tmp_path)), do="study")
    assert answer["type"] == "error" and answer["message"].endswith("cannot be shown: it is broken")
