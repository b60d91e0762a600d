"""Runs a study: several runs at once, one process each, until all are measured or the time is over.

A process that fails or is killed is replaced, and its run tried once more. `babyai.studies.cluster` does the same on a
Ray cluster.
"""

import os
import shutil
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from multiprocessing.connection import wait
from pathlib import Path
from typing import Any

from babyai.studies.cells import Run
from babyai.studies.costs import NEXT_STARTUP_SECONDS, STARTUP_SECONDS, Machine, estimate_seconds
from babyai.studies.measure import OutOfTime, collect_demos
from babyai.studies.recorder import Recorder, Summary, Tell
from babyai.studies.store import State, read_rows, seconds_trained
from babyai.studies.worker import Worker
from babyai.training.interrupts import catch_interrupts

ON_GPU = 10
# Of the time: how much is kept for stopping runs and packing them, at most.
RESERVE_SECONDS = 30.0
RESERVE_PART = 0.2
# Bytes of an unfinished run in a state.
RUN_BYTES = {"small": 17 * 2**20, "big": 320 * 2**20}
# Kinds of runs that share the machine with nothing.
ALONE = ("speed", "demo-lengths")
END_SECONDS = 3.0
POLL_SECONDS = 0.5
# Between two lines about progress.
TELL_SECONDS = 15.0
NEVER = float("inf")


@dataclass(frozen=True)
class Plan:
    """How to run a study."""

    device: str = "auto"
    at_once: int | None = None
    """Runs in parallel; default: 10 on a GPU, otherwise one per core."""
    minutes: float | None = None
    """Time limit; default: none."""
    results: Path | None = None
    """Folder with rows that need not be measured again."""
    cluster: str | None = None
    """Address of a Ray cluster, or "auto"; default: this machine."""

    def deadlines(self, started: float) -> tuple[float, float]:
        """When runs must stop, and when the state must be packed."""
        if self.minutes is None:
            return NEVER, NEVER
        seconds = 60 * self.minutes
        return started + seconds - min(RESERVE_SECONDS, RESERVE_PART * seconds), started + seconds


def run_study(runs: Sequence[Run], state: State, plan: Plan, tell: Tell = lambda line: None) -> Summary:
    """Measures runs until all are measured, the time is over, or Ctrl-C or SIGTERM arrive; then packs the state.

    Args:
        runs: Runs, in the order in which to start them.
        state: Where rows are added, and unfinished runs come from and go to.
        plan: How to run.
        tell: Called with lines about what happens.
    """
    started = time.time()
    known = read_rows(*([plan.results] if plan.results else [])).keys() | state.rows().keys()
    runs = list({run.key: run for run in runs}.values())
    todo = [run for run in runs if (run.cell.name, run.seed) not in known]
    summary = Summary(before=len(runs) - len(todo), total=len(runs))
    state.unpack()
    # The most advanced runs first: they free their place soonest.
    todo.sort(key=lambda run: -seconds_trained(state.runs / run.key))
    recorder = Recorder(state, plan.results, summary, tell)
    # Measurements of speed come first, and share the machine with nothing.
    groups = [[run for run in todo if (run.cell.kind in ALONE) == alone] for alone in (True, False)]
    if plan.cluster is None:
        slice_row = _run_here(groups, state, plan, recorder, started)
    else:
        from babyai.studies.cluster import run_on_cluster

        slice_row = None
        run_on_cluster(groups, state, plan, recorder, started)
    summary.seconds = time.time() - started
    summary.dropped = state.pack(slice_row)
    for key in summary.dropped:
        tell(f"{key}: does not fit into the state, and starts again elsewhere; it stays in {state.runs / key}")
    return summary


def _run_here(
    groups: Sequence[Sequence[Run]], state: State, plan: Plan, recorder: Recorder, started: float
) -> dict[str, Any] | None:
    """Measures groups of runs on this machine; returns what running several at once brought, if any were trained."""
    from babyai.training.parallel import gpu_share, mps_daemon

    machine = find_machine(plan)
    with catch_interrupts() as interrupted:
        for group in filter(None, groups):
            machine = find_machine(plan, group[0].cell.kind in ALONE)
            machine = replace(machine, at_once=min(machine.at_once, len(group)))
            recorder.tell(f"{recorder.done} runs are measured; {machine.at_once} at once on {_describe(machine)}")
            kinds = {run.cell.kind for run in group}
            share = gpu_share(kinds.pop(), machine.at_once) if len(kinds) == 1 else None
            with mps_daemon(plan.device if machine.at_once > 1 else "cpu", share):
                scheduler = _Scheduler(state, plan, machine, recorder, started, interrupted)
                try:
                    scheduler.run(group)
                finally:
                    scheduler.close()
    recorder.summary.seconds = time.time() - started
    return _describe_slice(recorder.summary, machine, groups[-1]) if recorder.summary.frames else None


def find_machine(plan: Plan, alone: bool = False) -> Machine:
    """This machine, and how many runs share it."""
    from babyai.agents.device import find_device

    device = find_device(plan.device)
    gpu = None
    if device.type == "cuda":
        import torch

        gpu = torch.cuda.get_device_name(device)
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return Machine(gpu, cores, 1 if alone else plan.at_once or (ON_GPU if gpu else cores))


def _describe(machine: Machine) -> str:
    return f"{machine.gpu or 'the CPU'}, {machine.cores} cores"


def _describe_slice(summary: Summary, machine: Machine, runs: Sequence[Run]) -> dict[str, Any]:
    """What running several at once brought, as JSON."""
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "kinds": sorted({f"{run.cell.kind}{' big' if run.cell.size == 'big' else ''}" for run in runs}),
        "gpu": machine.gpu,
        "cores": machine.cores,
        "at_once": summary.at_once,
        "measured": summary.measured,
        "frames": summary.frames,
        "seconds": summary.seconds,
    }


class _Scheduler:
    """The processes, and what they are doing."""

    def __init__(
        self,
        state: State,
        plan: Plan,
        machine: Machine,
        recorder: Recorder,
        started: float,
        interrupted: threading.Event,
    ) -> None:
        self.state = state
        self.plan = plan
        self.machine = machine
        self.recorder = recorder
        self.summary = recorder.summary
        self.summary.at_once = 0
        self.tell = recorder.tell
        self.interrupted = interrupted
        self.deadline, self.end = plan.deadlines(started)
        self.workers: list[Worker] = []
        self.last_told = started

    # ------------------------------------------------------------ the loop

    def run(self, todo: Sequence[Run]) -> None:
        waiting = list(todo)
        while not self.is_over() and (waiting or self.busy()):
            self.start_runs(waiting)
            if waiting and not self.busy() and not self.is_over():
                self.tell(f"{len(waiting)} runs are left; none can be finished, or kept unfinished, in the time left")
                break
            waiting += self.receive()
            self.tell_progress()
        self.stop_runs()

    def tell_progress(self) -> None:
        """Says from time to time how far the runs are."""
        if time.time() - self.last_told < TELL_SECONDS:
            return
        self.last_told = time.time()
        running = ", ".join(f"{worker.done:.0%}" for worker in self.busy())
        left = "" if self.plan.minutes is None else f"; {max(0.0, self.deadline - time.time()):.0f} s left"
        self.tell(f"{self.recorder.done} runs measured; in progress: {running or 'none'}{left}")

    def busy(self) -> list[Worker]:
        return [worker for worker in self.workers if worker.run is not None]

    def is_over(self) -> bool:
        return self.interrupted.is_set() or time.time() > self.deadline

    def start_runs(self, waiting: list[Run]) -> None:
        """Starts runs while there are free places, except those that could be neither finished nor kept."""
        for run in list(waiting):
            if len(self.busy()) >= self.machine.at_once or self.is_over():
                return
            worker = next((worker for worker in self.workers if worker.run is None), None)
            startup = NEXT_STARTUP_SECONDS if worker else STARTUP_SECONDS
            seconds = estimate_seconds(run.cell, self.machine, self.recorder.rows, startup)
            trained = seconds_trained(self.state.runs / run.key)
            finishes = time.time() + max(0.1 * seconds, seconds - max(0.0, trained))
            if finishes > self.deadline and not self.has_room(run):
                continue
            waiting.remove(run)
            try:
                self.prepare(run)
            except OutOfTime:
                return
            worker = worker or self.new_worker(run)
            worker.start(run, self.state.runs / run.key, self.deadline, finishes, resumed=trained >= 0)
            self.summary.at_once = max(self.summary.at_once, len(self.busy()))

    def has_room(self, run: Run) -> bool:
        """Whether the state can hold one more unfinished run."""
        unfinished = [worker.run for worker in self.busy() if worker.run and worker.finishes > self.deadline]
        return sum(RUN_BYTES[each.cell.size] for each in (*unfinished, run)) <= self.state.budget

    def prepare(self, run: Run) -> None:
        """Puts the demonstrations of a run into its folder; they are collected once for all seeds and architectures."""
        cell = run.cell
        folder = self.state.runs / run.key
        folder.mkdir(parents=True, exist_ok=True)
        if cell.kind != "imitation" or cell.demos is None or (folder / "demos.parquet").exists():
            return
        shared = self.state.work / "demos" / f"{cell.level}-{cell.demos}-{cell.first_seed}.parquet"
        collect_demos(cell, shared, self.deadline, lambda done, frames: None)
        try:
            os.link(shared, folder / "demos.parquet")
        except OSError:
            shutil.copyfile(shared, folder / "demos.parquet")

    def new_worker(self, run: Run) -> Worker:
        # Training has one thread on the CPU, so that results do not depend on how many run at once.
        threads = self.machine.cores if run.cell.kind == "speed" else 1
        self.workers.append(Worker(self.plan.device, threads))
        return self.workers[-1]

    def receive(self) -> list[Run]:
        """Handles what processes have sent; returns runs to try again."""
        again = []
        for connection in wait([worker.connection for worker in self.busy()], POLL_SECONDS):
            worker = next(worker for worker in self.workers if worker.connection is connection)
            run = worker.run
            assert run is not None
            what, content = self.receive_from(worker)
            if what == "progress":
                worker.note_progress(*content)
                continue
            self.finish(worker)
            if what == "row":
                self.recorder.add(run, *content, at_once=self.machine.at_once)
            elif what == "failed" and not self.interrupted.is_set():
                self.workers.remove(worker)
                worker.ask_to_end()
                worker.end(time.time() + END_SECONDS)
                again += self.recorder.fail(run, content)
        return again

    def receive_from(self, worker: Worker) -> tuple[str, Any]:
        try:
            return worker.connection.recv()
        except (EOFError, OSError):
            worker.process.join(END_SECONDS)
            return "failed", f"its process ended with exit code {worker.process.exitcode}"

    def finish(self, worker: Worker) -> None:
        """Frees a process."""
        if worker.frames:
            self.summary.frames += worker.frames[1] - worker.frames[0]
        worker.run = None
        worker.finishes = NEVER

    # ------------------------------------------------------------ the end

    def stop_runs(self) -> None:
        """Waits until all runs have saved, and ends those that take too long; their last checkpoint counts."""
        limit = time.time() + RESERVE_SECONDS
        if self.plan.minutes is not None:
            limit = min(limit, self.end - 0.4 * (self.end - self.deadline))
        if self.interrupted.is_set():
            for worker in self.busy():
                worker.process.terminate()
        while self.busy() and time.time() < limit:
            self.receive()
        for worker in self.busy():
            self.tell(f"{worker.run.key if worker.run else ''}: did not stop in time; its last checkpoint is kept")
            self.finish(worker)
            worker.process.kill()

    def close(self) -> None:
        for worker in self.workers:
            worker.ask_to_end()
        limit = time.time() + END_SECONDS
        if self.plan.minutes is not None:
            limit = min(limit, self.end - 0.3 * (self.end - self.deadline))
        for worker in self.workers:
            worker.end(limit)
