"""Measuring one run of a cell: training it and testing the agent, timing PPO, or collecting demonstrations."""

import shlex
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from babyai.demos.collect import collect
from babyai.demos.store import DemoFile
from babyai.evaluation.statistics import best_rolling_mean
from babyai.studies.cells import Cell, Run
from babyai.training.options import PPOOptions, TrainingOptions

# The version of rows; readers refuse others.
VERSION = 1
TEST_MISSIONS = 2048
QUICK_TEST_MISSIONS = 256
# The rolling window over validations. In the authors' code it is 100 (10 on GoToRedBallGrey), for longer runs.
WINDOW = 10
# Timing PPO: updates per round, after as many to warm up, and rounds.
SPEED_UPDATES = 40
QUICK_SPEED_UPDATES = 1
SPEED_ROUNDS = 3
QUICK_SPEED_ROUNDS = 1

Report = Callable[[float, float], None]
"""Called with the part of the run that is done, from 0 to 1, and the number of frames so far."""


def measure(run: Run, folder: Path, device: str, deadline: float, report: Report) -> dict[str, Any] | None:
    """The results of a run; None if the deadline came first, and the run can be resumed from its folder.

    Args:
        run: What to measure.
        folder: Folder of the run; it may hold a part of it.
        device: Device.
        deadline: When to stop, as of `time.time()`.
        report: Called from time to time.
    """
    if run.cell.kind == "demo-lengths":
        return measure_lengths(run.cell, folder, deadline, report)
    if run.cell.kind == "speed":
        return measure_speed(run, device)
    return train(run, folder, device, deadline, report)


# ------------------------------------------------------------ training


def train(run: Run, folder: Path, device: str, deadline: float, report: Report) -> dict[str, Any] | None:
    """Trains an agent, and tests its best checkpoint and its last weights."""
    from babyai.training.fit import find_algorithm, fit
    from babyai.training.run import holds_run, read_rows

    options = run_options(run, folder, device)
    session = fit(
        options,
        find_algorithm(run.cell.kind),
        resume=holds_run(folder),
        display=_Reporter(options.total, report),
        stop=lambda: time.time() > deadline,
    )
    if session.interrupted or time.time() > deadline:
        return None
    rows = read_rows(folder)
    missions = QUICK_TEST_MISSIONS if run.cell.quick else TEST_MISSIONS
    return {
        "command": command_of(run),
        "figures": describe_rows(rows, run.cell.kind),
        "test": test_agents(folder, session, run.cell, missions),
        "seconds": sum(row["seconds"] + row.get("validation_seconds", 0.0) for row in rows),
        "curve": make_curve(rows),
    }


def run_options(run: Run, folder: Path, device: str) -> TrainingOptions:
    """The options of a run in its folder. A cell that names its device keeps it."""
    options = run.cell.options(run.seed)
    chosen = options.device if options.device != "auto" else device
    return replace(options, out=str(folder), device=chosen, quiet=True)


class _Reporter:
    """Passes the progress of a run on."""

    def __init__(self, total: float, report: Report) -> None:
        self._total = total
        self._report = report
        self._done = 0.0

    def note(self, text: str) -> None:
        pass

    def begin_at(self, done: float) -> None:
        self.advance(done)

    def advance(self, done: float) -> None:
        self._done = done / self._total

    def update(self, done: float, row: Mapping[str, Any]) -> None:
        self.advance(done)
        self._report(self._done, row.get("frames", 0))


def command_of(run: Run) -> str:
    """The `babyai train` command that trains the same agent."""
    options = run.cell.options(run.seed)
    words = ["babyai", "train", run.cell.kind]
    for each in fields(options):
        value = getattr(options, each.name)
        default = None if each.default is MISSING else each.default
        if value == default:
            continue
        name = each.name.replace("_", "-")
        words.append(f"--{'no-' if value is False else ''}{name}")
        if isinstance(value, tuple):
            words += value
        elif not isinstance(value, bool):
            words.append(str(value))
    return shlex.join(words)


def describe_rows(rows: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The figures that follow from the log rows."""
    key = "validation" if kind == "ppo" else "success"
    validations = [row[key] for row in rows if key in row]
    figures: dict[str, Any] = {
        "best_mean": best_rolling_mean(validations, WINDOW),
        "window": WINDOW,
        "validations": len(validations),
    }
    if kind == "ppo":
        efficiency = rows[-1]["sample_efficiency"]
        figures |= {"centered": efficiency["centered"], "trailing": efficiency["trailing"]}
    return figures


def make_curve(rows: list[dict[str, Any]]) -> dict[str, list[float | None]]:
    """The numbers of the log rows as columns, to 7 digits; None where a row has none."""
    numbers = [{name: value for name, value in row.items() if isinstance(value, int | float)} for row in rows]
    names = dict.fromkeys(name for row in numbers for name in row)
    return {name: [_shorten(row.get(name)) for row in numbers] for name in names}


def _shorten(value: float | None) -> float | None:
    return float(f"{value:.7g}") if isinstance(value, float) else value


def test_agents(folder: Path, session: Any, cell: Cell, missions: int) -> dict[str, Any]:
    """Results on test missions: of the best checkpoint, and of the last weights, argmax and sampled actions."""
    from babyai.agents.checkpoint import load_policy
    from babyai.agents.device import place_model
    from babyai.evaluation.evaluate import evaluate
    from babyai.evaluation.players import AgentPlayer

    models = {"last": session.policy}
    if list((folder / "checkpoints").glob("best-*")):
        models["best"] = place_model(load_policy(folder, trust=True)[0], session.device)
    players = {which: AgentPlayer(model, precision=session.precision) for which, model in models.items()}
    players["sampled"] = AgentPlayer(session.policy, precision=session.precision, sample=True)
    return {which: evaluate(player, cell.level, missions=missions).to_dict() for which, player in players.items()}


# ------------------------------------------------------------ speed


def measure_speed(run: Run, device_name: str) -> dict[str, Any]:
    """Frames per second of PPO (rollouts and gradient steps), with nothing else on the device."""
    import torch

    from babyai.agents.custom import build_policy
    from babyai.agents.device import find_device, find_precision, place_model
    from babyai.engine import Engine
    from babyai.seeds import ppo_seed
    from babyai.training.ppo import PPO

    options = run.cell.options(run.seed)
    assert isinstance(options, PPOOptions)
    device = find_device(device_name)
    updates = QUICK_SPEED_UPDATES if run.cell.quick else SPEED_UPDATES
    torch.manual_seed(run.seed)
    policy = place_model(build_policy(options.agent_config()), device)
    engine = Engine(run.cell.level, options.worlds)
    engine.reset(ppo_seed(run.seed))
    ppo = PPO(policy, engine, options, seed=run.seed, precision=find_precision(None, device, training=True))

    def play_round() -> float:
        if device.type == "cuda":
            torch.cuda.synchronize()
        started = time.perf_counter()
        for _ in range(updates):
            ppo.update()
        if device.type == "cuda":
            torch.cuda.synchronize()
        return time.perf_counter() - started

    play_round()
    seconds = [play_round() for _ in range(QUICK_SPEED_ROUNDS if run.cell.quick else SPEED_ROUNDS)]
    rates = [updates * options.frames_per_update / each for each in seconds]
    figures = {"frames_per_second": float(np.median(rates)), "rounds": rates, "updates": updates}
    return {"figures": figures, "seconds": sum(seconds)}


# ------------------------------------------------------------ demonstrations


class OutOfTime(Exception):
    """The deadline came before the demonstrations were collected; finished blocks are kept."""


def collect_demos(cell: Cell, path: Path, deadline: float, report: Report, threads: int | None = None) -> None:
    """Collects the demonstrations of a cell, as `babyai train imitation --demos` does.

    Args:
        cell: The cell.
        path: File to write.
        deadline: When to stop, as of `time.time()`.
        report: Called from time to time.
        threads: Number of threads; default: one per core.

    Raises:
        OutOfTime: The deadline came first.
    """

    def progress(done: int, total: int) -> None:
        report(done / total, 0)
        if done < total and time.time() > deadline:
            raise OutOfTime

    assert cell.demos is not None
    path.parent.mkdir(parents=True, exist_ok=True)
    collect(cell.level, cell.demos, cell.first_seed, path, threads=threads, progress=progress)


def measure_lengths(cell: Cell, folder: Path, deadline: float, report: Report) -> dict[str, Any] | None:
    """Mean and population standard deviation of the lengths of demonstrations."""
    started = time.perf_counter()
    path = folder / "demos.parquet"
    try:
        collect_demos(cell, path, deadline, report)
    except OutOfTime:
        return None
    with DemoFile(path) as file:
        lengths = file.read(slice(0, len(file)), missions=False).lengths
        unsolved = sum(len(seeds) for source in file.header.sources for seeds in source.unsolved.values())
    figures = {"mean": float(lengths.mean()), "std": float(lengths.std()), "demos": len(lengths), "unsolved": unsolved}
    return {"figures": figures, "seconds": time.perf_counter() - started}
