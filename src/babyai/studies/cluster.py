"""Runs a study on a Ray cluster: each run is a task, whose row or unfinished folder comes back to this machine.

The state is the same as without a cluster. A run whose node is lost starts again elsewhere, from what the state had of
it. Rows are added by this process alone, one for each run, so none is lost or doubled.
"""

import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from babyai.cluster import (
    RETRIES,
    ClusterError,
    check_version,
    connect,
    count_resource,
    explain,
    largest_node,
    own_version,
)
from babyai.studies.cells import Cell, Run
from babyai.studies.measure import collect_demos
from babyai.studies.recorder import Recorder
from babyai.studies.scheduler import ALONE, NEVER, ON_GPU, POLL_SECONDS, RESERVE_SECONDS, TELL_SECONDS, Plan
from babyai.studies.store import State, unzip_run, zip_run
from babyai.studies.worker import try_measure
from babyai.training.interrupts import catch_interrupts

# CPUs for collecting the demonstrations of a cell, at most.
DEMO_CPUS = 4


def run_on_cluster(
    groups: Sequence[Sequence[Run]], state: State, plan: Plan, recorder: Recorder, started: float
) -> None:
    """Measures groups of runs, one group after the other, on the cluster that the plan names.

    Raises:
        ClusterError: The cluster cannot be reached, or has no GPU although the plan asks for one.
    """
    assert plan.cluster is not None
    # Ray has a handler of its own for SIGTERM, so ours comes after the connection.
    with connect(plan.cluster) as ray, catch_interrupts() as interrupted:
        for group in filter(None, groups):
            places = find_places(ray, plan, group[0].cell.kind in ALONE)
            recorder.tell(f"{recorder.done} runs are measured; {places.describe(ray)}")
            _ClusterScheduler(ray, state, plan, places, recorder, started, interrupted).run(group)


@dataclass(frozen=True)
class Places:
    """What a run occupies in the cluster."""

    cpus: float
    gpus: float
    at_once: int
    """Runs that share a machine (without GPUs) or a GPU."""

    def describe(self, ray: Any) -> str:
        """Says how big the cluster is."""
        amounts = {"CPUs": count_resource(ray, "CPU"), "GPUs": count_resource(ray, "GPU")}
        nodes = sum(node["Alive"] for node in ray.nodes())
        return f"{nodes} nodes, {', '.join(f'{amount:g} {name}' for name, amount in amounts.items())}"


def find_places(ray: Any, plan: Plan, alone: bool = False) -> Places:
    """What each run occupies: a CPU, and a share of a GPU if the cluster has any; alone, all CPUs of a node."""
    if plan.device not in ("auto", "cpu", "cuda"):
        raise ClusterError(f"on a cluster the device is auto, cpu or cuda, not {plan.device!r}; Ray chooses the GPU")
    has_gpu = count_resource(ray, "GPU") > 0
    if plan.device == "cuda" and not has_gpu:
        raise ClusterError("the cluster has no GPU; pass --device cpu, or start its nodes with `ray start --num-gpus`")
    on_gpu = has_gpu and plan.device != "cpu"
    if plan.at_once is not None and not on_gpu:
        raise ClusterError("at_once is the number of runs per GPU of a cluster; without GPUs each CPU gets one run")
    node_cpus = int(largest_node(ray, "CPU"))
    if alone:
        return Places(node_cpus, 1.0 if on_gpu else 0.0, 1)
    at_once = (plan.at_once or ON_GPU) if on_gpu else node_cpus
    return Places(1.0, 1.0 / at_once if on_gpu else 0.0, at_once)


class _ClusterScheduler:
    """The tasks of a group of runs."""

    def __init__(
        self,
        ray: Any,
        state: State,
        plan: Plan,
        places: Places,
        recorder: Recorder,
        started: float,
        interrupted: threading.Event,
    ) -> None:
        self.ray = ray
        self.state = state
        self.plan = plan
        self.places = places
        self.recorder = recorder
        self.interrupted = interrupted
        self.deadline, self.end = plan.deadlines(started)
        self.pending: dict[Any, Run] = {}
        self.demos: dict[tuple[str, int, int], Any] = {}
        self.last_told = time.time()

    def run(self, group: Sequence[Run]) -> None:
        if self.is_over():
            return
        for run in group:
            self.submit(run)
        while self.pending and not self.is_over():
            self.receive()
            self.tell_progress()
        self.stop()

    def is_over(self) -> bool:
        return self.interrupted.is_set() or time.time() > self.deadline

    def submit(self, run: Run) -> None:
        """Hands a run to Ray, with what the state has of it."""
        threads = int(self.places.cpus) if run.cell.kind == "speed" else 1
        unfinished = zip_run(self.state.runs / run.key)
        remote = self.ray.remote(num_cpus=self.places.cpus, num_gpus=self.places.gpus, max_retries=RETRIES)(measure_run)
        arguments = (run, self.plan.device, threads, self.deadline, own_version(), unfinished)
        self.pending[remote.remote(*arguments, self.find_demos(run.cell))] = run

    def find_demos(self, cell: Cell) -> Any:
        """The demonstrations of a cell: a task that collects them, once for all seeds and architectures."""
        if cell.kind != "imitation" or cell.demos is None:
            return b""
        key = (cell.level, cell.demos, cell.first_seed)
        if key not in self.demos:
            cpus = min(DEMO_CPUS, int(largest_node(self.ray, "CPU")))
            remote = self.ray.remote(num_cpus=cpus, max_retries=RETRIES)(collect_for_runs)
            self.demos[key] = remote.remote(cell, cpus, own_version())
        return self.demos[key]

    def receive(self) -> None:
        """Handles the next task that has ended, if one ends soon."""
        done, _ = self.ray.wait(list(self.pending), timeout=POLL_SECONDS)
        for reference in done:
            run = self.pending.pop(reference)
            what, content = self.result_of(reference)
            if what == "row":
                self.recorder.add(run, *content, at_once=self.places.at_once)
            elif what == "unfinished" and content:
                unzip_run(content, self.state.runs / run.key)
            elif what == "failed" and not self.is_over():
                for again in self.recorder.fail(run, content):
                    self.submit(again)

    def result_of(self, reference: Any) -> tuple[str, Any]:
        try:
            return self.ray.get(reference)
        except self.ray.exceptions.TaskCancelledError:
            return "unfinished", b""
        except self.ray.exceptions.RayError as error:
            return "failed", explain(error)

    def tell_progress(self) -> None:
        if time.time() - self.last_told < TELL_SECONDS:
            return
        self.last_told = time.time()
        nodes = sum(node["Alive"] for node in self.ray.nodes())
        self.recorder.tell(f"{self.recorder.done} runs measured, {len(self.pending)} to do on {nodes} nodes")

    def stop(self) -> None:
        """Lets runs in progress save and return, and gives up those that have not begun or take too long."""
        for reference in self.pending:
            # A run that is training takes it as Ctrl-C: it saves and stops.
            self.ray.cancel(reference)
        limit = min(time.time() + RESERVE_SECONDS, NEVER if self.plan.minutes is None else self.end)
        while self.pending and time.time() < limit:
            self.receive()
        for run in self.pending.values():
            self.recorder.tell(f"{run.key}: did not stop in time; it continues from what the state has of it")


# ------------------------------------------------------------ on a node of the cluster


def measure_run(
    run: Run, device: str, threads: int, deadline: float, version: str, unfinished: bytes, demos: bytes
) -> tuple[str, Any]:
    """The body of a task: measures a run in a temporary folder.

    Args:
        run: What to measure.
        device: Device.
        threads: Threads of torch.
        deadline: When to stop, as of `time.time()`; the clocks of the nodes must agree.
        version: babyai's version where the study was started.
        unfinished: A part of the run, from `zip_run`; may be empty.
        demos: Its file of demonstrations; empty if it needs none.

    Returns:
        What `try_measure` returns; an unfinished run with its folder, zipped.
    """
    check_version(version)
    # Ray cancels a task by SIGINT. While the run is training, it saves and stops; its last part, the test, is finished.
    with catch_interrupts() as interrupted, tempfile.TemporaryDirectory(prefix="babyai-") as work:
        import torch

        torch.set_num_threads(threads)
        folder = Path(work) / run.key
        folder.mkdir()
        if unfinished:
            unzip_run(unfinished, folder)
        if demos:
            (folder / "demos.parquet").write_bytes(demos)
        if interrupted.is_set():
            return "unfinished", unfinished
        what, content = try_measure(run, folder, device, deadline, lambda done, frames: None)
        return (what, zip_run(folder)) if what == "unfinished" else (what, content)


def collect_for_runs(cell: Cell, threads: int, version: str) -> bytes:
    """The body of a task: the content of the file of a cell's demonstrations."""
    check_version(version)
    with tempfile.TemporaryDirectory(prefix="babyai-") as work:
        path = Path(work) / "demos.parquet"
        collect_demos(cell, path, NEVER, lambda done, frames: None, threads)
        return path.read_bytes()
