"""Learning results: trains the cells below on one GPU, several at a time, and records how well they learned.

    python -m benchmarks.learning imitation ppo --minutes 9 --out OUT

Every cell is one `babyai train` command, which is stored in its entry. Results are written to OUT/<cell>.json as cells
end, with the run's log rows; `python -m benchmarks.learning --collect OUT` stores them in results/learning/. The same
command again resumes cells that were cut short.
"""

import argparse
import gzip
import json
import multiprocessing
import shlex
import sys
import time
import traceback
from concurrent.futures import ProcessPoolExecutor
from dataclasses import MISSING, fields, replace
from pathlib import Path
from typing import Any

import torch

from babyai.agents.checkpoint import load_policy
from babyai.agents.device import place_model
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.evaluation.statistics import best_rolling_mean
from babyai.training.commands import OPTIONS
from babyai.training.fit import find_algorithm, fit
from babyai.training.parallel import mps_daemon
from babyai.training.provenance import describe_provenance
from babyai.training.run import holds_run, read_rows

ROOT = Path(__file__).parent.parent
TEST_MISSIONS = 2048
WINDOW = 10


def cell(kind: str, levels: str, seed: int = 0, **settings: Any) -> tuple[str, Any]:
    """An algorithm and its options."""
    return kind, OPTIONS[kind](levels=levels, seed=seed, quiet=True, **settings)


def imitation_cells() -> dict[str, tuple[str, Any]]:
    """The cells of Table 3 that are compared, longest first."""
    cells = {}
    for level, thousands, epochs in [
        *(("PutNextLocal", 100, 150), ("PickupLoc", 100, 150), ("GoToLocal", 50, 101), ("GoToRedBallGrey", 5, 101)),
        *(("GoToRedBall", 10, 101), ("PutNextLocal", 5, 101)),
    ]:
        cells[f"imitation-{level}-{thousands}k"] = cell("imitation", level, demos=1000 * thousands, epochs=epochs)
    few = {"demos": 5000, "epochs": 101}
    cells["imitation-GoToLocal-5k-bf16-0"] = cell("imitation", "GoToLocal", precision="bf16", **few)
    cells["imitation-GoToLocal-5k-original"] = cell("imitation", "GoToLocal", architecture="original", **few)
    return cells


def precision_cells() -> dict[str, tuple[str, Any]]:
    """bf16 and float32, three seeds each."""
    cells = {}
    for seed in range(3):
        for precision in ("bf16", "float32"):
            # float32 is slow, so the two are compared over its 40 epochs.
            settings = {"precision": precision, "demos": 5000, "epochs": 101 if precision == "bf16" else 40}
            cells[f"imitation-GoToLocal-5k-{precision}-{seed}"] = cell("imitation", "GoToLocal", seed, **settings)
    for seed in range(1, 4):
        settings = {"precision": "float32", "frames": 3_000_000, "validate_every": 250}
        cells[f"ppo-GoToRedBallGrey-float32-{seed}"] = cell("ppo", "GoToRedBallGrey", seed, **settings)
    return cells


def ppo_cells() -> dict[str, tuple[str, Any]]:
    """The three easiest levels of Table 1, ten seeds each as in the paper."""
    return {
        f"ppo-{level}-{seed}": cell("ppo", level, seed, frames=frames, validate_every=250)
        for level, frames in (("GoToLocal", 16_000_000), ("GoToRedBall", 8_000_000), ("GoToRedBallGrey", 3_000_000))
        for seed in range(1, 11)
    }


def dagger_cells() -> dict[str, tuple[str, Any]]:
    """DAgger and imitation learning on endless demonstrations, with the same number of labeled frames."""
    cells = {}
    shape = {"endless": True, "batch_size": 20, "epoch_length": 4000, "epochs": 25}
    for seed in range(3):
        cells[f"dagger-GoToObjMaze-{seed}"] = cell("dagger", "GoToObjMaze", seed, threads=2, **shape)
        cells[f"dagger-GoToObjMaze-greedy-{seed}"] = cell(
            "dagger", "GoToObjMaze", seed, threads=2, greedy=True, **shape
        )
        cells[f"imitation-GoToObjMaze-{seed}"] = cell("imitation", "GoToObjMaze", seed, threads=2, **shape)
    return cells


def pixel_cells() -> dict[str, tuple[str, Any]]:
    """An agent that sees pixels."""
    settings = {"architecture": "pixels_endpool_res", "demos": 5000, "epochs": 101}
    return {"imitation-GoToRedBallGrey-5k-pixels": cell("imitation", "GoToRedBallGrey", **settings)}


STUDIES = {
    "imitation": imitation_cells,
    "precision": precision_cells,
    "ppo": ppo_cells,
    "dagger": dagger_cells,
    "pixels": pixel_cells,
}


def command_of(kind: str, options: Any) -> str:
    """The `babyai train` command with these options."""
    words = ["babyai", "train", kind]
    for each in fields(options):
        value = getattr(options, each.name)
        default = None if each.default is MISSING else each.default
        if value != default and each.name not in ("out", "quiet"):
            name = each.name.replace("_", "-")
            words.append(f"--{'' if value is not False else 'no-'}{name}")
            if isinstance(value, tuple):
                words += value
            elif not isinstance(value, bool):
                words.append(str(value))
    return shlex.join(words)


def run_cell(name: str, kind: str, options: Any, runs: Path, out: Path, deadline: float) -> None:
    """Trains a cell, tests its best checkpoint and its last one, and writes the results."""
    torch.set_num_threads(1)
    started = time.time()
    if started > deadline:
        return
    options = replace(options, out=str(runs / name))
    resume = holds_run(runs / name)
    session = fit(options, find_algorithm(kind), resume=resume, stop=lambda: time.time() > deadline)
    rows = read_rows(runs / name)
    if not rows:
        print(f"{name}: cut short before its first row", flush=True)
        return
    entry = {"cell": name, "command": command_of(kind, options), "seconds": time.time() - started}
    entry |= describe_rows(rows, kind) | {"whole": not session.run.interrupted}
    # Written before testing, so that the training is kept even if testing fails.
    (out / f"{name}.json").write_text(json.dumps(entry))
    entry["test"] = test_agents(runs / name, session, kind, options.level_names[0])
    (out / f"{name}.json").write_text(json.dumps(entry))
    print(summary_of(entry), flush=True)


def describe_rows(rows: list[dict[str, Any]], kind: str) -> dict[str, Any]:
    """The log rows without the results of single levels, and the figures that follow from them."""
    key = "validation" if kind == "ppo" else "success"
    validations = [row[key] for row in rows if key in row]
    return {
        "rolling": {"window": WINDOW, "best": best_rolling_mean(validations, WINDOW), "count": len(validations)},
        "sample_efficiency": rows[-1].get("sample_efficiency"),
        "rows": [{key: value for key, value in row.items() if key != "levels"} for row in rows],
    }


def test_agents(folder: Path, session: Any, kind: str, level: str) -> dict[str, Any]:
    """Test figures of the last weights and of the best; for PPO also with actions sampled as in training."""
    models = {"last": session.policy}
    if list((folder / "checkpoints").glob("best-*")):
        models["best"] = place_model(load_policy(folder)[0], session.device)
    players = {which: AgentPlayer(model, precision=session.precision) for which, model in models.items()}
    if kind == "ppo":
        players["drawn"] = AgentPlayer(session.policy, precision=session.precision, sample=True)
    return {which: evaluate(each, level, missions=TEST_MISSIONS).to_dict() for which, each in players.items()}


def summary_of(entry: dict[str, Any]) -> str:
    """One line about a cell."""
    rates = sorted(row["frames_per_second"] for row in entry["rows"])
    tests = {which: round(test["success_rate"], 4) for which, test in entry["test"].items()}
    return (
        f"{entry['cell']}: {entry['seconds']:.0f} s, {len(entry['rows'])} rows, rolling {entry['rolling']}, "
        f"test {tests}, {entry['sample_efficiency'] or ''}, {rates[len(rates) // 2]:,.0f} frames/s"
    )


def run_all(cells: dict[str, tuple[str, Any]], at_once: int, minutes: float, out: Path, runs: Path) -> None:
    """Trains all cells, one process each, `at_once` of them in parallel, until they end or the time is over."""
    deadline = time.time() + 60 * minutes
    context = multiprocessing.get_context("spawn")
    with mps_daemon("auto"), ProcessPoolExecutor(at_once, mp_context=context, max_tasks_per_child=1) as pool:
        jobs = {
            name: pool.submit(run_cell, name, kind, options, runs, out, deadline)
            for name, (kind, options) in cells.items()
            if not is_whole(out / f"{name}.json")
        }
        for name, job in jobs.items():
            try:
                job.result()
            except Exception:
                print(f"{name} failed:", flush=True)
                traceback.print_exc()


def is_whole(entry: Path) -> bool:
    """Whether a cell was trained to its end before."""
    return entry.exists() and json.loads(entry.read_text())["whole"]


def collect(out: Path, results: Path) -> None:
    """Writes the entries of a folder to one file, with their provenance."""
    entries = [json.loads(path.read_text()) for path in sorted(out.glob("*-*.json"))]
    origin = json.loads((out / "origin.json").read_text())
    target = results / f"{origin['date'][:16].replace(':', '')}.json.gz"
    with gzip.GzipFile(target, "wb", mtime=0) as file:
        file.write(json.dumps({"origin": origin, "cells": entries}).encode())
    print(f"{len(entries)} cells in {target}, {target.stat().st_size:,} bytes")


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("studies", nargs="*", choices=[*STUDIES, []])
    parser.add_argument("--minutes", type=float, default=9.0, help="Time limit in minutes (default: 9).")
    parser.add_argument("--at-once", type=int, default=8, help="Cells trained in parallel (default: 8).")
    parser.add_argument("--out", type=Path, default=Path("learning"), help="Folder for the results of cells.")
    parser.add_argument("--runs", type=Path, default=Path("runs/learning"), help="Folder for the run folders.")
    parser.add_argument("--only", default="", help="Cells whose names contain one of these, separated by commas.")
    parser.add_argument("--collect", type=Path, help="Folder whose results to store in results/learning/.")
    arguments = parser.parse_args()
    if arguments.collect is not None:
        collect(arguments.collect, ROOT / "results" / "learning")
        return
    arguments.out.mkdir(parents=True, exist_ok=True)
    (arguments.out / "origin.json").write_text(json.dumps(describe_provenance(), indent=1))
    cells = {name: each for study in arguments.studies for name, each in STUDIES[study]().items()}
    chosen = arguments.only.split(",")
    cells = {name: each for name, each in cells.items() if any(part in name for part in chosen)}
    run_all(cells, arguments.at_once, arguments.minutes, arguments.out, arguments.runs)


if __name__ == "__main__":
    sys.exit(main())
