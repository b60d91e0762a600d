"""The commands `babyai study ...`. Each imports what it needs when it runs, so that `--help` is fast."""

import sys
from pathlib import Path
from typing import Annotated

import tyro

from babyai.console import console
from babyai.training.options import DESCRIBED

RESULTS = Path("results/studies")


def make_app() -> tyro.extras.SubcommandApp:
    """The commands as one group."""
    app = tyro.extras.SubcommandApp()
    for command in (run, collect, status):
        app.command(name=command.__name__)(command)
    return app


def run(
    table: tyro.conf.Positional[str],
    *,
    levels: tuple[str, ...] = (),
    architectures: tuple[str, ...] = (),
    demos: tuple[int, ...] = (),
    seeds: Annotated[int | None, DESCRIBED] = None,
    shard: Annotated[str | None, DESCRIBED] = None,
    quick: bool = False,
    minutes: Annotated[float | None, DESCRIBED] = None,
    state: Path = Path("runs/study"),
    work: Annotated[Path | None, DESCRIBED] = None,
    results: Path = RESULTS,
    at_once: Annotated[int | None, DESCRIBED] = None,
    device: str = "auto",
) -> None:
    """Measure the cells of a table. Run the same command again to continue, here or on another machine.

    Args:
        table: Table: `babyai study list` has their names.
        levels: Only these levels.
        architectures: Only these architectures.
        demos: Only these numbers of demonstrations.
        seeds: Number of seeds per cell; default: as many as in the paper.
        shard: `i/n`: the i-th of n parts of the runs, for n machines; default: all runs.
        quick: Quick form: one seed and far less training, not comparable with the paper.
        minutes: Time limit in minutes, packing included, after which the state can be resumed; default: none.
        state: State folder: measured rows and unfinished runs, at most 8 files and 64 MiB.
        work: Work folder, for runs in progress; default: next to the state.
        results: Results folder; what is measured there is not measured again.
        at_once: Runs in parallel; default: 10 on a GPU, otherwise one per core.
        device: Device: auto (a GPU if there is one), cpu, cuda, cuda:1.
    """
    from babyai.studies.cells import find_cells, list_runs
    from babyai.studies.scheduler import Plan, run_study
    from babyai.studies.store import State

    if minutes is not None and minutes <= 0:
        raise ValueError(f"minutes must be positive, not {minutes}")
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once must be at least 1, not {at_once}")
    runs = list_runs(find_cells(table, levels, architectures, demos, quick), seeds, shard)
    kept = State(state, work or state.with_name(f"{state.name}.work"))
    screen = console()
    for problem in kept.rows().problems:
        screen.print(problem)
    plan = Plan(device, at_once, minutes, results if results.exists() else None)
    summary = run_study(runs, kept, plan, screen.print)
    rate = f", {summary.frames / summary.seconds:,.0f} frames/s in total" if summary.frames else ""
    screen.print(f"{summary.measured} runs measured in {summary.seconds:.0f} s{rate}; rows and state are in {state}")
    screen.print(f"{summary.total - summary.left} of {summary.total} runs measured")
    if summary.failed:
        sys.exit(f"babyai: {len(summary.failed)} runs failed: {', '.join(summary.failed)}")


def collect(states: tyro.conf.Positional[tuple[Path, ...]], *, results: Path = RESULTS) -> None:
    """Add the measured rows of states to the results.

    Args:
        states: State folders.
        results: Results folder.
    """
    from babyai.studies.store import collect_rows

    if not states:
        raise ValueError("name the folder of a state")
    added, problems = collect_rows(states, results)
    for problem in problems:
        console().print(problem)
    console().print(f"{added} rows added to {results}")


def status(*, results: Path = RESULTS, state: Annotated[Path | None, DESCRIBED] = None) -> None:
    """Show how many cells of each table are measured.

    Args:
        results: Results folder.
        state: State folder to count as well; default: none.
    """
    from babyai.studies.cells import PAPER_STUDIES, STUDIES
    from babyai.studies.store import read_rows

    found = read_rows(results, *([state / "rows.jsonl"] if state else []))
    screen = console()
    for problem in found.problems:
        screen.print(problem)
    keys = found.keys()
    measured = 0
    total = 0
    for study in STUDIES.values():
        cells = {cell.name: cell for cell in study.cells}
        counts = [sum((name, seed) in keys for seed in cell.seeds) for name, cell in cells.items()]
        complete = sum(count == len(cell.seeds) for count, cell in zip(counts, cells.values(), strict=True))
        begun = sum(count > 0 for count in counts)
        screen.print(
            f"{study.name:20} {begun:3} of {len(cells):3} cells measured, {complete} with all seeds; "
            f"{sum(counts)} of {sum(len(cell.seeds) for cell in cells.values())} runs"
        )
        if study.name in PAPER_STUDIES:
            measured += begun
            total += len(cells)
    screen.print(f"{measured} of {total} cells of the paper measured")
