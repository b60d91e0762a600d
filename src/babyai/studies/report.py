"""The report of all studies, independent of its format: tables, curves, findings."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from babyai.studies.cells import PAPER_STUDIES, STUDIES
from babyai.studies.findings import Section, Table, make_sections
from babyai.studies.statistics import CellResult, study_results
from babyai.studies.store import Row, read_rows, read_slices
from babyai.studies.tables import Grid, make_grids, row_of


@dataclass(frozen=True)
class Curve:
    """The learning curve of a run."""

    name: str
    """The architecture, and what else makes runs differ."""
    seed: int
    x: list[float]
    y: list[float]
    """Success rates, in percent."""


@dataclass(frozen=True)
class Chart:
    """The learning curves of a row of a table."""

    title: str
    x_label: str
    curves: list[Curve]


@dataclass(frozen=True)
class Report:
    """All that a report shows."""

    origins: Table
    """Commits and machines of the runs."""
    grids: list[Grid]
    charts: list[Chart]
    sections: list[Section]
    problems: list[str]
    """Lines of results that could not be read."""


def make_report(results: Path) -> Report:
    """The report on a folder of results."""
    rows = read_rows(results)
    chosen = rows.chosen()
    shown = [row for seeds in chosen.values() for row in seeds.values() if not row["quick"]]
    charts = [
        chart
        for name in PAPER_STUDIES
        for chart in make_charts(STUDIES[name].title, study_results(STUDIES[name], chosen))
    ]
    sections = make_sections(rows, read_slices(results))
    return Report(describe_origins(shown), make_grids(chosen), charts, sections, rows.problems)


def describe_origins(rows: Iterable[Row]) -> Table:
    """The machines, versions and commits of runs."""
    counts: dict[tuple[str, ...], int] = {}
    for row in sorted(rows, key=lambda row: row["origin"]["date"]):
        origin = row["origin"]
        commit = (origin["commit"] or "unknown")[:7]
        became = f" (now {origin['became']})" if "became" in origin else ""
        key = (
            f"{commit}{' with uncommitted changes' if origin['dirty'] else ''}{became}",
            *(origin["date"][:10], f"{origin['gpu'] or 'no GPU'}, {origin['cpus']} cores", origin["versions"]["torch"]),
        )
        counts[key] = counts.get(key, 0) + 1
    return ("commit", "date", "machine", "torch", "runs shown"), [(*key, str(n)) for key, n in counts.items()]


def make_charts(title: str, results: Sequence[CellResult]) -> list[Chart]:
    """A chart for each row of a table that has curves."""
    groups: dict[str, list[Curve]] = {}
    for result in results:
        for row in result.rows:
            if "curve" in row:
                groups.setdefault(row_of(result), []).append(make_curve(row))
    return [Chart(f"{title}: {row}", "million frames", curves) for row, curves in groups.items()]


def make_curve(row: Row) -> Curve:
    """Success over frames: in validation or, for PPO, in training."""
    curve = row["curve"]
    points = [
        (frames / 1e6, 100 * success)
        for frames, success in zip(curve["frames"], curve["success"], strict=True)
        if success is not None
    ]
    return Curve(row["architecture"], row["seed"], [x for x, _ in points], [y for _, y in points])
