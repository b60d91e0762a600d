"""Ablations of the map agent: small agents without a part of their memory, trained on four levels at the same time.

    python -m benchmarks.map_ablations train runs/ablations --minutes 8.7
    python -m benchmarks.map_ablations recurrent runs/ablations --minutes 15
    python -m benchmarks.map_ablations evaluate runs/ablations --out results.jsonl

The full agent is trained with two seeds, which shows how much results vary between seeds. In all runs of `train` the
expert plays alone for the same number of frames, up to the next log row: an ablated agent may never agree with it as
often as `--expert-until` requires.

For comparison, `recurrent` trains the paper's 1.1 agent, which also sees its last action, by `babyai train dagger`:
half of its frames are demonstrations, the others its own, labeled by the teacher. Four runs share the GPU: both sizes,
each with the paper's learning rate and with four times that, since the budget is short.

Repeating `train` or `recurrent` continues its runs. `evaluate` takes the last weights of the map agents, and for the
others those that did best in validation.

Without a GPU, choose quicker levels, fewer frames, and a smaller batch and buffer: six buffers of a million frames take
20 GB.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from babyai.agents import Agent
from babyai.agents.config import MAP_PARTS
from babyai.agents.device import PRECISIONS, Precision
from babyai.envs.custom_levels import load_levels
from babyai.evaluation.players import AgentPlayer
from babyai.seeds import VALIDATION_SEED
from babyai.training.options import DaggerOptions, OnlineDaggerOptions, TrainingOptions
from babyai.training.parallel import train_parallel
from babyai.training.run import holds_run, read_config, read_rows
from benchmarks.map_agent import describe, measure

# Long episodes first; see `evaluate_levels`.
LEVELS = "BossLevel,GoToSeq,SynthLoc,PutNext"
# What is left out, and the seed. The repetition penalty is for acting: `benchmarks.map_agent --without history`.
RUNS = [("", 0), ("", 1), *((part, 0) for part in MAP_PARTS if part != "history")]
# The paper's agent: size and learning rate.
RECURRENT_RUNS = [("small", 1e-4), ("small", 4e-4), ("big", 5e-5), ("big", 2e-4)]
FRAMES = 24_000_000
EXPERT_FRAMES = 2_500_000
MISSIONS = 1000
# Not the episodes that chose the recurrent agents' weights.
FIRST_SEED = VALIDATION_SEED + 100_000


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["train", "recurrent", "evaluate"], help="Train, or evaluate all there is.")
    parser.add_argument("folder", type=Path, help="Folder of the runs.")
    parser.add_argument("--minutes", type=float, help="Time limit of training (default: none).")
    parser.add_argument(
        "--levels", default=LEVELS, help=f"Levels to train on, long episodes first (default: {LEVELS})."
    )
    parser.add_argument("--frames", type=int, default=FRAMES, help=f"train: frames of each agent (default: {FRAMES}).")
    parser.add_argument(
        "--expert-frames", type=int, default=EXPERT_FRAMES, help="train: frames of the expert alone, at first."
    )
    parser.add_argument(
        "--batch-size", type=int, default=4096, help="train: worlds, and frames of a batch (default: 4096)."
    )
    parser.add_argument(
        "--buffer-size", type=int, default=1_000_000, help="train: frames in the replay buffer (default: 1000000)."
    )
    parser.add_argument("--precision", choices=PRECISIONS, help="evaluate: default bf16 on a GPU, float32 elsewhere.")
    parser.add_argument("--out", type=Path, help="evaluate: output file, JSON lines.")
    arguments = parser.parse_args()
    if arguments.command == "train":
        shared = {"levels": arguments.levels, "frames": arguments.frames, "max_minutes": arguments.minutes}
        shared |= {"expert_frames": arguments.expert_frames, "buffer_size": arguments.buffer_size}
        train(make_options(arguments.folder, worlds=arguments.batch_size, batch_size=arguments.batch_size, **shared))
        return
    if arguments.command == "recurrent":
        if arguments.minutes is None:
            parser.error("recurrent needs --minutes: nothing else ends it")
        train(
            make_recurrent_options(arguments.folder, levels=arguments.levels, max_minutes=arguments.minutes), "dagger"
        )
        return
    if not arguments.folder.is_dir():
        parser.error(f"there is no folder {arguments.folder}")
    if arguments.out is None or arguments.out.exists():
        parser.error("evaluate needs --out, a file that does not exist yet")
    for row in evaluate(arguments.folder, MISSIONS, arguments.precision):
        with arguments.out.open("a", encoding="utf-8") as out:
            print(json.dumps(row), file=out)
        print(f"{row['run']}: {describe(row)}", flush=True)


def make_options(folder: Path, **settings: Any) -> list[OnlineDaggerOptions]:
    """The options of all runs."""
    shared: dict[str, Any] = {
        "levels": LEVELS,
        "size": "small",
        "frames": FRAMES,
        "expert_until": 1.0,
        "expert_frames": EXPERT_FRAMES,
        "validate_every": 0,
        "threads": 3,
    }
    return [
        OnlineDaggerOptions(
            settings=(f"without={part}",) if part else (),
            seed=seed,
            out=str(folder / f"{part or 'all'}-{seed}"),
            **shared | settings,
        )
        for part, seed in RUNS
    ]


def make_recurrent_options(folder: Path, **settings: Any) -> list[DaggerOptions]:
    """The options of the runs of the recurrent agent; they end with the time limit only."""
    shared: dict[str, Any] = {
        "levels": LEVELS,
        "endless": True,
        "last_action": True,
        "epochs": 1_000_000,
        "patience": 1_000_000,
        "epoch_length": 51_200,
        "validation_episodes": 64,
        "threads": 3,
    }
    return [
        DaggerOptions(
            size=size,
            learning_rate=learning_rate,
            out=str(folder / f"bow_endpool_res-{size}-{learning_rate:g}"),
            **shared | settings,
        )
        for size, learning_rate in RECURRENT_RUNS
    ]


def train(runs: Sequence[TrainingOptions], algorithm: str = "online-dagger") -> None:
    """Trains agents in parallel, or continues."""
    results = train_parallel(algorithm, runs, [holds_run(run.out or "") for run in runs], runs[0].quiet)
    for result in results:
        print(f"{result.folder}: {result.error or ('finished' if result.finished else 'not finished')}")
    if any(result.error for result in results):
        raise SystemExit(1)


def find_row_of_agent(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The log row of the weights that are evaluated: the best validation, or the last row if there was none."""
    validated = [row for row in rows if "success" in row]
    # Of equals the first, which is the one that the run keeps.
    return max(validated, key=lambda row: row["success"]) if validated else rows[-1]


def evaluate(folder: Path, missions: int, precision: Precision | None = None) -> Iterator[dict[str, Any]]:
    """The results of all agents that have been trained, on validation missions, level by level."""
    for run in sorted(path for path in folder.iterdir() if holds_run(path)):
        rows = read_rows(run)
        if not rows:
            print(f"{run}: no agent yet")
            continue
        config = read_config(run)["config"]
        chosen = find_row_of_agent(rows)
        about = {
            "run": run.name,
            "algorithm": read_config(run)["kind"],
            **{name: config[name] for name in ("architecture", "size", "settings", "seed", "learning_rate")},
            "frames": chosen["frames"],
            "trained_frames": rows[-1]["frames"],
            "label_accuracy": chosen["accuracy"],
            "minutes": sum(row["seconds"] + row.get("validation_seconds", 0.0) for row in rows) / 60,
        }
        player = AgentPlayer(Agent.load(run).model, device="auto", precision=precision)
        levels = [level.name for level in load_levels(config["levels"])]
        for row in measure(player, levels, {"missions": missions, "first_seed": FIRST_SEED}, 0):
            yield about | {"precision": player.precision} | row


if __name__ == "__main__":
    main()
