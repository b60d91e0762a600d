"""The section of the report about training speed on a GPU, from results/training.json (`benchmarks.training`)."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

# Key in results/training.json, heading, required and target frames per second.
SPEED_COLUMNS = (
    ("ppo", "PPO, one run", 60_000, 100_000),
    ("many", "PPO, 8 seeds", 200_000, 300_000),
    ("imitation", "imitation, small", 250_000, 800_000),
    ("big", "imitation, big", 100_000, 300_000),
)
MAX_EVALUATION_SECONDS = 10

Lines = list[str]
Wrap = Callable[..., Lines]
Table = Callable[..., Lines]


def speed_lines(path: Path, wrap: Wrap, table: Table) -> Lines:
    """One row per measurement, and what each was.

    Args:
        path: results/training.json.
        wrap: Writes a paragraph.
        table: Writes a table.
    """
    try:
        measurements = json.loads(path.read_text(encoding="utf-8"))["measurements"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} has no measurements of benchmarks.training: {error!r}; name another file") from None
    headings = ("frames per second", *(heading for _, heading, _, _ in SPEED_COLUMNS), "512 BossLevel missions")
    rows = [
        ("required", *(f"{required:,}" for _, _, required, _ in SPEED_COLUMNS), f"{MAX_EVALUATION_SECONDS} s"),
        ("target", *(f"{target:,}" for _, _, _, target in SPEED_COLUMNS), ""),
    ]
    for entry in measurements:
        title = f"{entry['group']}: {entry.get('label') or entry['origin']['commit'][:7]}"
        rates = [_format_speed(entry.get(key)) for key, _, _, _ in SPEED_COLUMNS]
        seconds = f"{min(entry['evaluation']['seconds']):.1f} s" if "evaluation" in entry else "–"
        rows.append((title, *rates, seconds))
    gpus = sorted({entry["origin"]["gpu"] for entry in measurements})
    return [
        *wrap(
            f"The whole training loop on one {', '.join(gpus)}: worlds or replay, acting, gradient steps; without",
            "validation, after a warm-up, best of three rounds. PPO is on GoToLocal, imitation learning on GoToLocal",
            "(small agent) and BossLevel (big agent), evaluation with a big agent. Only measurements with the same",
            "letter were made on the same machine, one right after the other; between letters, the same commit",
            "differs, too.",
        ),
        "",
        *table(headings, rows),
        "",
        *(line for entry in measurements if "note" in entry for line in wrap(f"* {entry['note']}")),
        "",
        *_parallel_lines(measurements, table),
        "",
        "[Speed](speed.md#training-without-a-gpu) compares PPO without a GPU with plain PyTorch and Minigrid.",
        "",
        "![GPU time of an imitation update by purpose of its kernels](images/kernels.png)",
        "",
        *wrap(
            "The chart shows imitation learning (`results/kernels.json`). Demonstrations are replayed on other",
            "threads meanwhile, so the loop is about as fast as its gradient steps alone.",
        ),
    ]


def _format_speed(result: dict[str, Any] | None) -> str:
    return "–" if result is None else f"{result['frames_per_second']:,.0f}"


def _parallel_lines(measurements: list[dict[str, Any]], table: Table) -> Lines:
    """Ways of training eight seeds at once on one GPU."""
    ways = {
        "one process, runs as generators that take turns": "generators",
        "processes without MPS": "processes",
        "processes with MPS": "mps",
        "processes with MPS, each with 40 % of the GPU": "share",
    }
    groups = dict.fromkeys(entry["group"] for entry in measurements if "many" in entry)
    figures = {}
    for entry in measurements:
        # Before there was a choice, results did not say which way they used.
        if many := entry.get("many"):
            way = {None: "generators", False: "processes", True: "mps"}[many.get("mps")]
            way = "share" if "share" in many else way
            figures[entry["group"], way] = many["frames_per_second"]
        for way, rate in entry.get("parallel", {}).items():
            figures[entry["group"], way] = rate
    rows = [
        (title, *(f"{figures[group, way]:,.0f}" if (group, way) in figures else "–" for group in groups))
        for title, way in ways.items()
    ]
    return ["Ways of training 8 seeds of PPO on one GPU, frames per second in total:", "", *table(("", *groups), rows)]
