"""How fast the world is, beside Minigrid and EnvPool: `python -m benchmarks.world`.

Every contestant plays random actions on one thread, resets included, in short slices by turns; rates are per second
of CPU time. A round gives one ratio, and the median of the rounds is what counts.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import Any

import babyai
from benchmarks import ours, peers
from benchmarks.provenance import describe_origin, remember
from benchmarks.report import (
    COMPARISONS,
    choose_best,
    describe,
    level_table,
    show,
    summarize_level,
    verdict_table,
    write_between,
)
from benchmarks.timing import Contestant, measure_round


@dataclass(frozen=True)
class Settings:
    """Measures our worlds and the peers', and appends the result to benchmarks/history.jsonl."""

    levels: tuple[str, ...] = ()
    """Levels to measure; all 19 of the paper if none is given."""
    rounds: int = 5
    """Rounds a level; the median of their ratios counts."""
    seconds: float = 1.0
    """CPU seconds that Minigrid's steps get in a round; faster contestants get a part of it."""
    worlds: int = 1024
    """Worlds that ours step at once."""
    envpool_worlds: tuple[int, ...] = (64, 256, 1024)
    """Worlds that EnvPool steps at once; all are measured, and the number with the best median rate counts."""
    quick: bool = False
    """Three short rounds instead: good for a look, not for a claim."""
    write_docs: bool = False
    """Put the tables into docs/speed.md."""
    check: bool = False
    """Exit with status 1 if any must is missed or could not be measured."""

    def __post_init__(self) -> None:
        if self.rounds < 1 or self.seconds <= 0 or self.worlds < 1:
            raise ValueError("rounds, seconds and worlds must be positive")
        for level in self.levels:
            babyai.find_level(level)

    def chosen_levels(self) -> tuple[str, ...]:
        """The names of the levels to measure."""
        return tuple(babyai.find_level(level).name for level in self.levels) or babyai.PAPER_LEVELS

    def chosen_time(self) -> tuple[int, float]:
        """How many rounds of how many seconds."""
        return (3, 0.2) if self.quick else (self.rounds, self.seconds)


def open_contestants(level: str, settings: Settings) -> dict[str, Contestant]:
    """Everyone who can play the level, warmed up, the peers and ours by turns."""
    worlds = settings.worlds
    contestants: dict[str, Contestant] = {}
    if peers.has_minigrid(level):
        contestants["minigrid"] = peers.open_minigrid(level)
    contestants["engine"] = ours.open_engine(level, worlds)
    if peers.has_envpool(level):
        limit = ours.usual_limit(level, worlds)
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
    """Two functions, to say something and to count a round: a bar on a terminal, plain lines elsewhere."""
    if not sys.stdout.isatty():
        yield lambda message: print(message, flush=True), lambda: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn()
    with Progress(*columns) as progress:
        task = progress.add_task("rounds", total=total)
        yield progress.console.print, lambda: progress.advance(task)


def measure(settings: Settings) -> dict[str, Any]:
    """All levels, as the history keeps them."""
    levels: dict[str, Any] = {}
    names = settings.chosen_levels()
    with show_progress(len(names) * settings.chosen_time()[0]) as (say, advance):
        for level in names:
            levels[level] = measure_level(level, settings, advance)
            say(describe_level(level, levels[level]))
    record, shown = ours.bytes_per_world(settings.worlds)
    return {"levels": levels, "bytes_per_world": {"record": record, "arrays": shown}}


def describe_level(level: str, summary: dict[str, Any]) -> str:
    """One line for a level that has just been measured."""
    ratios = summary["ratios"]
    parts = [f"{c.name} {show(ratios[c.name])} {c.judge(ratios[c.name])}" for c in COMPARISONS if c.name in ratios]
    return f"{level}: {summary['rates']['engine'] / 1e6:.2f} M steps/CPU-s; {'; '.join(parts) or 'no peer has it'}"


def main(settings: Settings) -> int:
    """Measures, remembers and shows; returns the exit status."""
    if not ours.has_environments():
        print("babyai.envs.single and babyai.envs.vector are missing: gym.make and gym.make_vec are not measured")
    origin = describe_origin()
    results = measure(settings)
    entry = remember("world", origin, asdict(settings), results)
    table = level_table(results["levels"])
    verdicts, fine = verdict_table(results["levels"], results["bytes_per_world"]["record"])
    legend = "Ratios per CPU second, medians of rounds. ✗ misses its must, ★ reaches its aim."
    page = "\n\n".join([table, legend, verdicts, describe(entry)])
    print(f"\n{page}")
    if settings.write_docs:
        write_between("speed", page)
    return 1 if settings.check and not fine else 0


if __name__ == "__main__":
    import tyro

    sys.exit(main(tyro.cli(Settings, prog="python -m benchmarks.world")))
