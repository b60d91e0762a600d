"""Studies on a Ray cluster measure each run once, and have the rows of a study on one machine."""

import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from babyai.cluster import ClusterError, own_version
from babyai.studies.cluster import Places, collect_for_runs, find_places, measure_run
from babyai.studies.scheduler import Plan, run_study
from babyai.studies.store import State, make_row, unzip_run
from tests.ray_cluster import is_busy, ray_cluster, wait_until
from tests.studies.test_scheduler import stable, stable_rows
from tests.studies.tiny_study import make_runs, run_tiny

NEVER = float("inf")


def fake_ray(*nodes: dict[str, float]) -> Any:
    """A cluster of these nodes, none of which does anything."""
    total = {name: sum(node.get(name, 0) for node in nodes) for name in ("CPU", "GPU")}
    return SimpleNamespace(
        cluster_resources=lambda: total, nodes=lambda: [{"Alive": True, "Resources": node} for node in nodes]
    )


def test_runs_share_gpus_and_those_that_need_a_machine_get_one() -> None:
    cpus = fake_ray({"CPU": 4}, {"CPU": 16})
    gpus = fake_ray({"CPU": 4}, {"CPU": 16, "GPU": 2})
    assert find_places(cpus, Plan("auto")) == Places(1, 0, 16)
    assert find_places(cpus, Plan("auto"), alone=True) == Places(16, 0, 1)
    assert find_places(gpus, Plan("auto")) == Places(1, 0.1, 10)
    assert find_places(gpus, Plan("cuda", at_once=4)) == Places(1, 0.25, 4)
    assert find_places(gpus, Plan("cpu")) == Places(1, 0, 16)
    assert find_places(gpus, Plan("auto"), alone=True) == Places(16, 1, 1)
    for plan, message in (
        (Plan("cuda"), "no GPU"),
        (Plan("cuda:1"), "not 'cuda:1'"),
        (Plan("cpu", at_once=3), "per GPU"),
    ):
        with pytest.raises(ClusterError, match=message):
            find_places(cpus, plan)


def test_unreachable_cluster_is_an_error_and_the_state_stays(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    state = tmp_path / "state"
    make_state(State(state, tmp_path / "work"))
    before = {path.name: path.read_bytes() for path in state.iterdir()}
    assert len(before) == 3
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:9 .*refused"):
        run_tiny(state, cluster="127.0.0.1:9")
    assert {path.name: path.read_bytes() for path in state.iterdir()} == before


def make_state(state: State) -> None:
    """A measured run, and an unfinished one."""
    measured, unfinished = make_runs(seeds=1)
    state.add(make_row(measured, {"figures": {}, "seconds": 1.0}, {}, 1), measured)
    folder = state.runs / unfinished.key
    (folder / "checkpoints" / "000000001").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    (folder / "metrics.jsonl").write_text('{"seconds": 2.0}\n')
    state.pack()


def test_task_returns_a_row_or_an_unfinished_run_that_another_task_continues(tmp_path: Path) -> None:
    run = make_runs(seeds=1, epochs=6)[0]
    demos = collect_for_runs(run.cell, 1, own_version())
    task = ("cpu", 1, NEVER, own_version())
    what, (whole, origin) = measure_run(run, *task, b"", demos)
    assert what == "row" and whole["figures"]["validations"] == 6 and origin["babyai"] == own_version()
    what, unfinished = measure_run(run, "cpu", 1, time.time(), own_version(), b"", demos)
    assert what == "unfinished"
    unzip_run(unfinished, tmp_path)
    assert list(tmp_path.glob("checkpoints/*/training.safetensors"))
    what, (resumed, _) = measure_run(run, *task, unfinished, demos)
    assert what == "row" and stable(resumed) == stable(whole)
    with pytest.raises(ClusterError, match=r"not 9\.9\.9"):
        measure_run(run, "cpu", 1, NEVER, "9.9.9", b"", demos)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    state = tmp_path_factory.mktemp("study") / "undisturbed"
    assert run_tiny(state, seeds=3).measured == 6
    return state


@pytest.mark.long
def test_study_survives_the_loss_of_a_node(undisturbed: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray")
    lines: list[str] = []
    with ray_cluster(3) as (nodes, address):
        killed = threading.Event()

        def tell(line: str) -> None:
            lines.append(line)
            # A row has come back, and other runs are in progress.
            if line.startswith("1 of 6: "):
                wait_until(lambda: is_busy(nodes[1]))
                nodes[1].kill()
                killed.set()

        state = State(tmp_path / "state", tmp_path / "work")
        summary = run_study(make_runs(seeds=3), state, Plan("cpu", cluster=address), tell)
        assert killed.is_set()
    assert (summary.measured, summary.left, summary.failed) == (6, 0, {})
    assert lines[0].startswith("0 of 6 runs are measured; 4 nodes, 3 CPUs")
    rows = state.rows().rows
    assert len(rows) == len({(row["cell"], row["seed"]) for row in rows}) == 6
    assert stable_rows(tmp_path / "state") == stable_rows(undisturbed)
    # A row is not measured again, on the cluster or without it.
    assert run_tiny(tmp_path / "state", seeds=3).measured == 0


def terminate_when_trained(key: str) -> None:
    """Sends SIGTERM to this process when a task has written the first rows of a run."""
    folder = Path(tempfile.gettempdir())
    # A killed node leaves its folder behind.
    stale = set(folder.glob("babyai-*"))

    def is_trained() -> bool:
        written = folder.glob(f"babyai-*/{key}/metrics.jsonl")
        return any(path.parents[1] not in stale and path.stat().st_size for path in written)

    wait_until(is_trained)
    os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.long
@pytest.mark.parametrize("how", ["time limit", "SIGTERM"])
def test_stopped_study_leaves_a_state_that_continues_elsewhere(tmp_path: Path, how: str) -> None:
    pytest.importorskip("ray")
    runs = make_runs(seeds=1, epochs=100_000)[:1]
    key = runs[0].key
    with ray_cluster(1) as (_, address):
        state = State(tmp_path / "state", tmp_path / "work")
        minutes = 1.0 if how == "time limit" else None
        if how == "SIGTERM":
            threading.Thread(target=terminate_when_trained, args=(key,)).start()
        summary = run_study(runs, state, Plan("cpu", minutes=minutes, cluster=address), print)
    assert (summary.measured, summary.left, summary.failed, summary.dropped) == (0, 1, {}, [])
    elsewhere = State(tmp_path / "state", tmp_path / "elsewhere")
    assert elsewhere.unpack() == [key]
    assert (elsewhere.runs / key / "metrics.jsonl").read_bytes().count(b"\n") >= 1


def test_ray_is_not_imported_without_a_cluster() -> None:
    code = "import sys, babyai.cli, babyai.studies.cluster, babyai.demos.collect; sys.exit('ray' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
