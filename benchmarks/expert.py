"""Success rate, demonstration lengths and speed of the expert: `python -m benchmarks.expert`.

Measures how many missions the expert fails, over many seeds of each of the paper's levels and in both styles; the
lengths of its demonstrations, compared with the paper's Table 4; and the number of demonstrations per CPU second,
including level generation, compared with Minigrid's bot in the same run.
"""

import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

import babyai
from benchmarks.peers import make_minigrid
from benchmarks.provenance import ROOT, append_history, describe_provenance
from benchmarks.report import describe, markdown_table, median_ratio, significant, write_between
from benchmarks.timing import Contestant, measure_round

PAGE = ROOT / "docs" / "expert.md"
SPEED_LEVELS = ("GoToLocal", "GoTo", "BossLevel")
REQUIRED_RATIO = 200
BATCH = 2000
# Paper, Table 4, last column. The paper does not give the number of missions; its validation sets have 512.
PAPER_MISSIONS = 512
PAPER_LENGTHS = {
    "GoToObj": (5.18, 2.38),
    "GoToRedBallGrey": (5.81, 3.29),
    "GoToRedBall": (5.38, 3.13),
    "GoToLocal": (5.04, 2.76),
    "PutNextLocal": (12.4, 4.54),
    "PickupLoc": (6.13, 2.97),
    "GoToObjMaze": (70.8, 48.9),
    "GoTo": (56.8, 46.7),
    "Pickup": (57.8, 46.7),
    "UnblockPickup": (57.2, 50.0),
    "Open": (31.5, 30.5),
    "Unlock": (81.6, 61.1),
    "PutNext": (89.9, 49.6),
    "Synth": (50.4, 49.3),
    "SynthLoc": (47.9, 47.9),
    "GoToSeq": (72.7, 52.2),
    "SynthSeq": (81.8, 61.3),
    "GoToImpUnlock": (110.0, 81.9),
    "BossLevel": (84.3, 64.5),
}


@dataclass(frozen=True)
class Settings:
    """Measure the expert, and append the result to benchmarks/history.jsonl."""

    missions: int = 100_000
    """Number of missions per level and style."""
    rounds: int = 5
    """Number of timing rounds; the result is the median of their ratios."""
    seconds: float = 4.0
    """CPU seconds per round for Minigrid's bot."""
    write_docs: bool = False
    """Write the tables to docs/expert.md."""
    check: bool = False
    """Exit with status 1 if a mission failed or the speed is too low."""


def play_missions(level: str, style: str, missions: int) -> dict[str, Any]:
    """Plays the seeds 0, 1, 2, ... of a level with the expert; returns statistics."""
    engine = babyai.Engine(level, BATCH)
    expert = babyai.ExpertBatch(engine, style)
    lengths = []
    lost = []
    handed_over = 0
    for first in range(0, missions, BATCH):
        engine.reset(first)
        _, length, reward = expert.demonstrate()
        lengths.append(length)
        lost += [first + int(k) for k in np.flatnonzero(reward <= 0)]
        handed_over += int(np.count_nonzero(expert.experts.handed_over)) if style == "paper" else 0
    all_lengths = np.concatenate(lengths)
    return {
        "missions": len(all_lengths),
        "lost": lost,
        "handed_over": handed_over,
        "mean": significant(float(all_lengths.mean()), 5),
        "std": significant(float(all_lengths.std()), 5),
    }


def open_ours(level: str) -> Contestant:
    """Our expert, one batch of missions at a time."""
    engine = babyai.Engine(level, BATCH // 10)
    expert = babyai.ExpertBatch(engine)
    seeds = count(0, BATCH // 10)

    def play() -> int:
        engine.reset(next(seeds))
        expert.demonstrate()
        return engine.num_worlds

    play()
    return Contestant(play, share=0.5)


def open_bot(level: str) -> Contestant:
    """Minigrid's bot, one mission at a time."""
    from minigrid.utils.baby_ai_bot import BabyAIBot

    world = make_minigrid(level).unwrapped
    seeds = count()

    def play() -> int:
        world.reset(seed=next(seeds))
        bot = BabyAIBot(world)
        done = False
        while not done:
            *_, terminated, truncated, _ = world.step(bot.replan())
            done = terminated or truncated
        return 1

    return Contestant(play)


def measure_speed(settings: Settings) -> dict[str, dict[str, float]]:
    """Demonstrations per CPU second of both, and the median ratio, for each level."""
    results = {}
    for level in SPEED_LEVELS:
        contestants = {"ours": open_ours(level), "bot": open_bot(level)}
        rounds = [measure_round(contestants, settings.seconds) for _ in range(settings.rounds)]
        rates = {name: significant(float(np.median([r[name] for r in rounds]))) for name in contestants}
        results[level] = rates | {"ratio": significant(median_ratio(rounds, "ours", "bot") or 0.0)}
    return results


def length_table(results: dict[str, dict[str, Any]]) -> str:
    """A table of our lengths and the paper's, with Welch's test."""
    from scipy.stats import ttest_ind_from_stats

    rows = []
    for level, ours in results.items():
        mean, std = PAPER_LENGTHS[level]
        test = ttest_ind_from_stats(
            *(ours["mean"], ours["std"], ours["missions"], mean, std, PAPER_MISSIONS), equal_var=False
        )
        ours_text = f"{ours['mean']:.2f} ± {ours['std']:.2f}"
        rows.append(
            [level, f"{ours['missions']:,}", str(len(ours["lost"])), ours_text, f"{mean} ± {std}", f"{test.pvalue:.2g}"]
        )
    return markdown_table(["level", "missions", "failed", "length", "paper", "p (Welch)"], rows)


def teacher_table(results: dict[str, dict[str, Any]]) -> str:
    """A table of the teacher's results on the same missions."""
    rows = [
        [level, f"{r['missions']:,}", str(len(r["lost"])), f"{r['mean']:.2f} ± {r['std']:.2f}"]
        for level, r in results.items()
    ]
    return markdown_table(["level", "missions", "failed", "length"], rows)


def speed_table(results: dict[str, dict[str, float]]) -> str:
    """A table of both rates and their ratio."""
    rows = [[level, f"{r['ours']:,.0f}", f"{r['bot']:,.1f}", f"{r['ratio']:,.0f}"] for level, r in results.items()]
    return markdown_table(["level", "babyai", "Minigrid's bot", "ratio"], rows)


def iter_with_progress(items: list[Any]) -> Iterator[Any]:
    """Yields the items with a progress bar."""
    from rich.progress import track

    yield from track(items, "The expert plays")


def main(settings: Settings) -> int:
    """Measures, appends to the history and prints the tables; returns the exit status."""
    origin = describe_provenance()
    results: dict[str, dict[str, Any]] = {"paper": {}, "teacher": {}}
    for style, level in iter_with_progress([(style, level) for style in results for level in babyai.PAPER_LEVELS]):
        results[style][level] = play_missions(level, style, settings.missions)
    speed = measure_speed(settings)
    entry = append_history("expert", origin, asdict(settings), {"styles": results, "speed": speed})
    tables = {
        "lengths": length_table(results["paper"]),
        "teacher": teacher_table(results["teacher"]),
        "speed": speed_table(speed),
    }
    print(*tables.values(), sep="\n\n")
    if settings.write_docs:
        for marker, table in tables.items():
            write_between(marker, f"{table}\n\n{describe(entry)}", Path(PAGE))
    lost = any(r["lost"] for style in results.values() for r in style.values())
    slow = any(r["ratio"] < REQUIRED_RATIO for r in speed.values())
    return int(settings.check and (lost or slow))


if __name__ == "__main__":
    import tyro

    sys.exit(main(tyro.cli(Settings)))
