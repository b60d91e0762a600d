"""Ratios, verdicts and Markdown tables from measured rates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarks.provenance import ROOT

SPEED_PAGE = ROOT / "docs" / "speed.md"
Rounds = Sequence[Mapping[str, float]]
Verdict = Literal["target", "pass", "FAIL", "not measured"]


@dataclass(frozen=True)
class Comparison:
    """The ratio of one of our rates to one of a peer's, with the value that is required on every level."""

    name: str
    title: str
    ours: str
    peer: str
    required: float
    target: float | None = None

    def judge(self, ratio: float | None) -> Verdict:
        """The verdict on a ratio."""
        if ratio is None:
            return "not measured"
        if ratio < self.required:
            return "FAIL"
        return "target" if self.target is not None and ratio >= self.target else "pass"


COMPARISONS = (
    Comparison("engine_minigrid", "engine / Minigrid", "engine", "minigrid", required=1000, target=2000),
    Comparison("engine_envpool", "engine / EnvPool", "engine", "envpool", required=40, target=100),
    Comparison("views_minigrid", "make_vec, copy=False / Minigrid", "vector_views", "minigrid", required=800),
    Comparison("copies_minigrid", "make_vec / Minigrid", "vector_copies", "minigrid", required=500),
    Comparison("resets_minigrid", "resets / Minigrid", "resets", "minigrid_resets", required=400),
    Comparison("single_minigrid", "gym.make / Minigrid", "single", "minigrid", required=20),
)
MAX_BYTES = 1536


def median_ratio(rounds: Rounds, ours: str, peer: str) -> float | None:
    """The median of the ratios of all rounds; None if one of the two was not measured."""
    ratios = [rates[ours] / rates[peer] for rates in rounds if ours in rates and peer in rates]
    return median(ratios) if ratios else None


def choose_best(rounds: Rounds, peer: str) -> Rounds:
    """The rounds with a rate for `peer` added, which is that of the `peer_…` with the best median."""
    names = [name for name in rounds[0] if name.startswith(f"{peer}_")]
    if not names:
        return rounds
    best = max(names, key=lambda name: median(rates[name] for rates in rounds))
    return [{**rates, peer: rates[best]} for rates in rounds]


def summarize_level(rounds: Rounds) -> dict[str, Any]:
    """Median rates, median ratios, and the ratios of all rounds of one level."""
    names = dict.fromkeys(name for rates in rounds for name in rates)
    summary: dict[str, Any] = {
        "rates": {name: significant(median(rates[name] for rates in rounds)) for name in names},
        "ratios": {},
        "rounds": {},
    }
    for comparison in COMPARISONS:
        ratio = median_ratio(rounds, comparison.ours, comparison.peer)
        if ratio is not None:
            summary["ratios"][comparison.name] = significant(ratio)
            summary["rounds"][comparison.name] = [
                significant(rates[comparison.ours] / rates[comparison.peer]) for rates in rounds
            ]
    return summary


def significant(value: float, digits: int = 4) -> float:
    """The value rounded to this many significant digits."""
    return float(f"{value:.{digits}g}")


# ---------------------------------------------------------------- tables


def level_table(levels: Mapping[str, Mapping[str, Any]]) -> str:
    """A table with one row per level: the engine's rate, and each ratio with a mark for its verdict."""
    titles = ["level", "engine, M steps/CPU-s", *(comparison.title for comparison in COMPARISONS)]
    rows = [
        [
            level,
            f"{summary['rates']['engine'] / 1e6:.2f}",
            *(_cell(c, summary["ratios"].get(c.name)) for c in COMPARISONS),
        ]
        for level, summary in levels.items()
    ]
    return markdown_table(titles, rows)


def _cell(comparison: Comparison, ratio: float | None) -> str:
    if ratio is None:
        return "–"
    return format_ratio(ratio) + {"FAIL": " ✗", "target": " ★"}.get(comparison.judge(ratio), "")


def format_ratio(ratio: float) -> str:
    """The ratio as text for tables."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}"


def verdict_table(levels: Mapping[str, Mapping[str, Any]], record_bytes: int) -> tuple[str, bool]:
    """A table with one row per requirement and its worst level, and whether all requirements are met.

    A requirement that could not be measured on any level counts as missed.
    """
    rows = []
    passed = True
    for comparison in COMPARISONS:
        ratios = {level: s["ratios"][comparison.name] for level, s in levels.items() if comparison.name in s["ratios"]}
        worst = min(ratios, key=ratios.__getitem__, default="–")
        verdict = comparison.judge(ratios.get(worst))
        failures = sum(comparison.judge(ratio) == "FAIL" for ratio in ratios.values())
        passed &= verdict in ("pass", "target")
        rows.append(
            [
                comparison.title,
                worst,
                format_ratio(ratios[worst]) if ratios else "–",
                f"≥ {comparison.required:,.0f}",
                f"{comparison.target:,.0f}" if comparison.target else "–",
                f"{verdict} ({failures} of {len(ratios)})" if failures else verdict,
            ]
        )
    small = record_bytes <= MAX_BYTES
    rows.append(["bytes per world", "all", f"{record_bytes:,}", f"≤ {MAX_BYTES:,}", "–", "pass" if small else "FAIL"])
    return markdown_table(["metric", "worst level", "worst", "required", "target", "verdict"], rows), passed and small


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table that is also readable as plain text; all columns but the first are right-aligned."""
    widths = [max(len(line[k]) for line in (titles, *rows)) for k in range(len(titles))]

    def line(cells: Sequence[str]) -> str:
        first, *others = zip(cells, widths, strict=True)
        padded = [first[0].ljust(first[1]), *(cell.rjust(width) for cell, width in others)]
        return f"| {' | '.join(padded)} |"

    rule = (
        "|" + "|".join("-" * (width + 2) if k == 0 else "-" * (width + 1) + ":" for k, width in enumerate(widths)) + "|"
    )
    return "\n".join([line(titles), rule, *map(line, rows)])


def describe(entry: Mapping[str, Any]) -> str:
    """A sentence with date, machine, commit and versions of a measurement."""
    versions = ", ".join(f"{name} {number}" for name, number in entry["versions"].items() if number)
    commit = (entry["commit"] or "no commit")[:12] + (" with changes" if entry["dirty"] else "")
    return f"Measured {entry['date'][:10]} on {entry['cpu']} at {commit}; {versions}."


def write_between(marker: str, text: str, page: Path = SPEED_PAGE) -> None:
    """Replaces the text between the comments `<!-- marker: begin -->` and `<!-- marker: end -->` of a page."""
    begin = f"<!-- {marker}: begin -->"
    end = f"<!-- {marker}: end -->"
    content = page.read_text(encoding="utf-8")
    if content.count(begin) != 1 or content.count(end) != 1:
        raise ValueError(f"{page.name} must contain {begin} and {end} exactly once each")
    head, tail = content.split(begin)
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{tail.split(end)[1]}", encoding="utf-8")
