"""Speed of the world, compared with Minigrid and EnvPool: `python -m benchmarks.world`.

Every contestant takes random actions on one thread, including resets, in short interleaved slices. Rates are per CPU
second. Each round gives one ratio; the result is the median over the rounds.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import babyai
from benchmarks import ours, peers
from benchmarks.provenance import append_history, describe_provenance
from benchmarks.report import (
    COMPARISONS,
    choose_best,
    describe,
    format_ratio,
    level_table,
    summarize_level,
    verdict_table,
    write_between,
)
from benchmarks.timing import Contestant, measure_round

LEGEND = "Ratios are per CPU second, medians over rounds. ✗: below the required value. ★: reaches the target."


@dataclass(frozen=True)
class Settings:
    """Measure our worlds and the peers', and append the result to benchmarks/history.jsonl."""

    levels: tuple[str, ...] = ()
    """Levels to measure; none means all 19 of the paper."""
    rounds: int = 5
    """Number of rounds per level; the result is the median of their ratios."""
    seconds: float = 1.0
    """CPU seconds per round for Minigrid's steps; faster contestants get a fraction of it."""
    worlds: int = 1024
    """Number of our worlds in a batch."""
    envpool_worlds: tuple[int, ...] = (64, 256, 1024)
    """Batch sizes of EnvPool; all are measured, and the one with the best median rate counts."""
    quick: bool = False
    """Run only three short rounds, for a rough result."""
    write_docs: bool = False
    """Write the tables to docs/speed.md."""
    check: bool = False
    """Exit with status 1 if a requirement is missed or could not be measured."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.seconds <= 0 or self.worlds < 1:
            raise ValueError("rounds, seconds and worlds must be positive")
        for level in self.levels:
            babyai.find_level(level)

    def chosen_levels(self) -> tuple[str, ...]:
        """The names of the levels to measure."""
        return tuple(babyai.find_level(level).name for level in self.levels) or babyai.PAPER_LEVELS

    def chosen_time(self) -> tuple[int, float]:
        """The number of rounds and the seconds per round."""
        return (3, 0.2) if self.quick else (self.rounds, self.seconds)


def open_contestants(level: str, settings: Settings) -> dict[str, Contestant]:
    """All contestants that have the level, warmed up, with ours and the peers' interleaved."""
    worlds = settings.worlds
    contestants: dict[str, Contestant] = {}
    if peers.has_minigrid(level):
        contestants["minigrid"] = peers.open_minigrid(level)
    contestants["engine"] = ours.open_engine(level, worlds)
    if peers.has_envpool(level):
        limit = ours.median_time_limit(level, worlds)
        for size in settings.envpool_worlds:
            contestants[f"envpool_{size}"] = peers.open_envpool(level, limit, size)
    if ours.has_environments():
        contestants["vector_views"] = ours.open_vector(level, worlds, copy=False)
        contestants["vector_copies"] = ours.open_vector(level, worlds, copy=True)
        contestants["single"] = ours.open_single(level)
    if peers.has_minigrid(level):
        contestants["minigrid_resets"] = peers.open_minigrid_resets(level)
    contestants["resets"] = ours.open_resets(level, worlds)
    return contestants


def measure_level(level: str, settings: Settings, advance: Callable[[], None] = lambda: None) -> dict[str, Any]:
    """Median rates and ratios of a level; calls `advance` after each round."""
    contestants = open_contestants(level, settings)
    rounds, seconds = settings.chosen_time()
    measure_round(contestants, seconds / 10)
    measured = []
    for _ in range(rounds):
        measured.append(measure_round(contestants, seconds))
        advance()
    for contestant in contestants.values():
        contestant.close()
    return summarize_level(choose_best(measured, "envpool"))


@contextmanager
def show_progress(total: int) -> Iterator[tuple[Callable[[str], None], Callable[[], None]]]:
    """Yields a function to print a message and one to count a round: with a bar on a terminal, else plain lines."""
    if not sys.stdout.isatty():
        yield lambda message: print(message, flush=True), lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        task = progress.add_task("rounds", total=total)
        yield progress.console.print, lambda: progress.advance(task)


def measure(settings: Settings) -> dict[str, Any]:
    """The results of all levels, as stored in the history."""
    levels: dict[str, Any] = {}
    names = settings.chosen_levels()
    with show_progress(len(names) * settings.chosen_time()[0]) as (show, advance):
        for level in names:
            levels[level] = measure_level(level, settings, advance)
            show(describe_level(level, levels[level]))
    record, arrays = ours.bytes_per_world(settings.worlds)
    return {"levels": levels, "bytes_per_world": {"record": record, "arrays": arrays}}


def describe_level(level: str, summary: dict[str, Any]) -> str:
    """One line for a level that has just been measured."""
    ratios = {c: summary["ratios"][c.name] for c in COMPARISONS if c.name in summary["ratios"]}
    parts = [f"{c.name} {format_ratio(ratio)} {c.judge(ratio)}" for c, ratio in ratios.items()]
    rate = summary["rates"]["engine"] / 1e6
    return f"{level}: {rate:.2f} M steps/CPU-s; {'; '.join(parts) or 'not available in any peer'}"


def main(settings: Settings) -> int:
    """Measures, appends to the history and prints the tables; returns the exit status."""
    if not ours.has_environments():
        print("babyai.envs.single and babyai.envs.vector are missing: gym.make and gym.make_vec are not measured")
    origin = describe_provenance()
    results = measure(settings)
    entry = append_history("world", origin, asdict(settings), results)
    table = level_table(results["levels"])
    verdicts, passed = verdict_table(results["levels"], results["bytes_per_world"]["record"])
    page = "\n\n".join([table, LEGEND, verdicts, describe(entry)])
    print(f"\n{page}")
    if settings.write_docs:
        write_between("speed", page)
    return 1 if settings.check and not passed else 0


if __name__ == "__main__":
    import tyro

    sys.exit(main(tyro.cli(Settings, prog="python -m benchmarks.world")))
