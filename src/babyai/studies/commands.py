"""The commands `babyai study ...`. Each imports what it needs when it runs, so that `--help` is fast."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from babyai.console import console
from babyai.training.options import DESCRIBED

RESULTS = Path("results/studies")
TRAINING = Path("results/training.json")


def make_app() -> tyro.extras.SubcommandApp:
    """The commands as one group."""
    app = tyro.extras.SubcommandApp()
    for name, command in (("list", list_studies), ("run", run), ("status", status), ("collect", collect)):
        app.command(name=name)(command)
    app.command(name="report")(report)
    return app


def run(
    table: tyro.conf.Positional[str],
    *,
    levels: tuple[str, ...] = (),
    architectures: tuple[str, ...] = (),
    demos: tuple[int, ...] = (),
    variants: tuple[str, ...] = (),
    seeds: Annotated[int | None, DESCRIBED] = None,
    shard: Annotated[str | None, DESCRIBED] = None,
    quick: bool = False,
    minutes: Annotated[float | None, DESCRIBED] = None,
    state: Path = Path("runs/study"),
    work: Annotated[Path | None, DESCRIBED] = None,
    results: Path = RESULTS,
    at_once: Annotated[int | None, DESCRIBED] = None,
    device: str = "auto",
    cluster: Annotated[str | None, DESCRIBED] = None,
) -> None:
    """Measure the cells of a table. Run the same command again to continue, here or on another machine.

    Args:
        table: Table: `babyai study list` has their names.
        levels: Only these levels.
        architectures: Only these architectures.
        demos: Only these numbers of demonstrations.
        variants: Only these variants of the protocol, in studies that have some, such as `float32` in `disagreements`.
        seeds: Number of seeds per cell; default: as many as in the paper.
        shard: `i/n`: the i-th of n parts of the runs, for n machines; default: all runs.
        quick: Quick form: one seed and far less training, not comparable with the paper.
        minutes: Time limit in minutes, packing included, after which the state can be resumed; default: none.
        state: State folder: measured rows and unfinished runs, at most 8 files and 64 MiB.
        work: Work folder, for runs in progress; default: next to the state.
        results: Results folder; what is measured there is not measured again.
        at_once: Runs in parallel, on a cluster those of each GPU; default: 10 on a GPU, otherwise one per core.
        device: Device: auto (a GPU if there is one), cpu, cuda, cuda:1.
        cluster: Ray cluster to run on: its address (host:port), or auto; default: this machine.
    """
    from babyai.studies.cells import find_cells, list_runs
    from babyai.studies.scheduler import Plan, run_study
    from babyai.studies.store import State

    if minutes is not None and minutes <= 0:
        raise ValueError(f"minutes must be positive, not {minutes}")
    if at_once is not None and at_once < 1:
        raise ValueError(f"at_once must be at least 1, not {at_once}")
    runs = list_runs(find_cells(table, levels, architectures, demos, quick, variants), seeds, shard)
    kept = State(state, work or state.with_name(f"{state.name}.work"))
    screen = console()
    print_problems(kept.rows().problems)
    plan = Plan(device, at_once, minutes, results if results.exists() else None, cluster)
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
    print_problems(problems)
    console().print(f"{added} rows added to {results}")


def status(*, results: Path = RESULTS, state: Annotated[Path | None, DESCRIBED] = None) -> None:
    """Show how many cells of each table are measured.

    Args:
        results: Results folder.
        state: State folder to count as well; default: none.
    """
    from babyai.studies.cells import PAPER_STUDIES, STUDIES
    from babyai.studies.store import ROWS, read_rows

    if state is not None and not state.is_dir():
        raise FileNotFoundError(f"there is no state folder {state}")
    note_missing(results)
    found = read_rows(results, *([state / ROWS] if state else []))
    screen = console()
    keys = found.keys()
    begun: set[str] = set()
    for study in STUDIES.values():
        counts = {cell.name: sum((cell.name, seed) in keys for seed in cell.seeds) for cell in study.cells}
        complete = sum(counts[cell.name] == len(cell.seeds) for cell in study.cells)
        runs = sum(len(cell.seeds) for cell in study.cells)
        measured = {name for name, count in counts.items() if count}
        screen.print(
            f"{study.name:20} {len(measured):3} of {len(counts):3} cells measured, {complete:3} with all seeds; "
            f"{sum(counts.values()):3} of {runs:3} runs"
        )
        begun |= measured if study.name in PAPER_STUDIES else set()
    total = {cell.name for name in PAPER_STUDIES for cell in STUDIES[name].cells}
    print_problems(found.problems)
    screen.print(f"{len(begun)} of {len(total)} cells of the paper measured")


def list_studies(
    *, results: Path = RESULTS, at_once: Annotated[int | None, DESCRIBED] = None, device: str = "auto"
) -> None:
    """List the tables: what each measures, how much is measured, and what the rest would cost on this machine.

    Args:
        results: Results folder.
        at_once: Runs in parallel; default: 10 on a GPU, otherwise one per core.
        device: Device: auto (a GPU if there is one), cpu, cuda, cuda:1.
    """
    from babyai.studies.cells import GROUPS, STUDIES, list_runs
    from babyai.studies.costs import estimate_seconds
    from babyai.studies.scheduler import Plan, find_machine
    from babyai.studies.store import read_rows

    note_missing(results)
    found = read_rows(results)
    keys = found.keys()
    screen = console()
    screen.print(f"{'name':20} table  cells   runs  measured  hours left here")
    for study in STUDIES.values():
        alone = study.name in ("speed", "demo-lengths")
        machine = find_machine(Plan(device, at_once), alone)
        runs = list_runs(study.cells)
        left = [run for run in runs if (run.cell.name, run.seed) not in keys]
        costs = {run.cell.name: estimate_seconds(run.cell, machine, found.rows) for run in left}
        hours = sum(costs[run.cell.name] for run in left) / machine.at_once / 3600
        counts = f"{len(study.cells):6} {len(runs):6} {len(runs) - len(left):9}"
        screen.print(f"{study.name:20} {study.table or '–':5} {counts} {hours:11,.1f}  {study.title}")
    for name, members in GROUPS.items():
        screen.print(f"{name}: {', '.join(members)}")
    print_problems(found.problems)


def report(
    *,
    results: Path = RESULTS,
    training: Path = TRAINING,
    markdown: Annotated[Path | None, DESCRIBED] = None,
    html: Annotated[Path | None, DESCRIBED] = None,
    latex: Annotated[Path | None, DESCRIBED] = None,
) -> None:
    """Write all tables, ours next to the paper's; without a file, print them as Markdown.

    Args:
        results: Results folder.
        training: Training speeds, for a section of the Markdown; without this file there is none.
        markdown: Markdown file; default: none.
        html: HTML file, complete in itself, with learning curves; default: none.
        latex: LaTeX file; default: none.
    """
    from babyai.atomic_io import atomic_file
    from babyai.studies import html as html_format
    from babyai.studies import latex as latex_format
    from babyai.studies import markdown as markdown_format
    from babyai.studies.report import make_report

    note_missing(results)
    content = make_report(results)
    makers = {
        markdown: lambda: markdown_format.make_page(content, training),
        html: lambda: html_format.make_page(content),
        latex: lambda: latex_format.make_page(content),
    }
    files = [path for path in makers if path is not None]
    for path in files:
        path.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(path) as temporary:
            temporary.write_text(makers[path](), encoding="utf-8")
        console().print(f"written: {path}")
    if not files:
        console().print(markdown_format.make_page(content, training))
    print_problems(content.problems)


def note_missing(results: Path) -> None:
    """Says, on standard error, that there are no results."""
    if not results.is_dir():
        print_problems([f"there is no folder {results}, so nothing counts as measured; --results names another folder"])


def print_problems(problems: Sequence[str]) -> None:
    """Prints what was wrong with results, to standard error."""
    for problem in problems:
        sys.stderr.write(f"babyai: {problem}\n")
