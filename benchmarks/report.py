"""From rates to ratios, verdicts and tables."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarks.provenance import ROOT

SPEED_PAGE = ROOT / "docs" / "speed.md"
Rounds = Sequence[Mapping[str, float]]
Verdict = Literal["aim", "pass", "FAIL", "not measured"]


@dataclass(frozen=True)
class Comparison:
    """One of our rates over one of a peer's, and how much it must be on every level."""

    name: str
    title: str
    ours: str
    peer: str
    must: float
    aim: float | None = None

    def judge(self, ratio: float | None) -> Verdict:
        """Whether a ratio is good enough."""
        if ratio is None:
            return "not measured"
        if ratio < self.must:
            return "FAIL"
        return "aim" if self.aim is not None and ratio >= self.aim else "pass"


COMPARISONS = (
    Comparison("engine_minigrid", "engine / Minigrid", "engine", "minigrid", must=1000, aim=2000),
    Comparison("engine_envpool", "engine / EnvPool", "engine", "envpool", must=40, aim=100),
    Comparison("views_minigrid", "make_vec, copy=False / Minigrid", "vector_views", "minigrid", must=800),
    Comparison("copies_minigrid", "make_vec / Minigrid", "vector_copies", "minigrid", must=500),
    Comparison("resets_minigrid", "resets / Minigrid", "resets", "minigrid_resets", must=400),
    Comparison("single_minigrid", "gym.make / Minigrid", "single", "minigrid", must=20),
)
MAX_BYTES = 1536


def median_ratio(rounds: Rounds, ours: str, peer: str) -> float | None:
    """The median over rounds of the ratio within each round; None if either was not measured."""
    ratios = [rates[ours] / rates[peer] for rates in rounds if ours in rates and peer in rates]
    return median(ratios) if ratios else None


def choose_best(rounds: Rounds, peer: str) -> Rounds:
    """The rounds with the rates of `peer` added: those of whichever `peer_…` has the best median."""
    names = [name for name in rounds[0] if name.startswith(f"{peer}_")]
    if not names:
        return rounds
    best = max(names, key=lambda name: median(rates[name] for rates in rounds))
    return [{**rates, peer: rates[best]} for rates in rounds]


def summarize_level(rounds: Rounds) -> dict[str, Any]:
    """Median rates and median ratios of one level, with all rounds' ratios beside them."""
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
    """The value with so many significant digits."""
    return float(f"{value:.{digits}g}")


# ---------------------------------------------------------------- tables


def level_table(levels: Mapping[str, Mapping[str, Any]]) -> str:
    """One line a level: our rate, and each ratio with a mark for its verdict."""
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
    return show(ratio) + {"FAIL": " ✗", "aim": " ★"}.get(comparison.judge(ratio), "")


def show(ratio: float) -> str:
    """The ratio as the tables print it."""
    return f"{ratio:,.0f}" if ratio >= 100 else f"{ratio:.1f}"


def verdict_table(levels: Mapping[str, Mapping[str, Any]], record_bytes: int) -> tuple[str, bool]:
    """One line a requirement with the level that does worst; and whether every must is met.

    A must that could not be measured anywhere counts as missed.
    """
    rows, fine = [], True
    for comparison in COMPARISONS:
        ratios = {level: s["ratios"][comparison.name] for level, s in levels.items() if comparison.name in s["ratios"]}
        worst = min(ratios, key=ratios.__getitem__, default="–")
        verdict = comparison.judge(ratios.get(worst))
        failing = sum(comparison.judge(ratio) == "FAIL" for ratio in ratios.values())
        fine &= verdict in ("pass", "aim")
        numbers = [show(ratios[worst]) if ratios else "–", f"≥ {comparison.must:,.0f}"]
        aim = f"{comparison.aim:,.0f}" if comparison.aim else "–"
        rows.append(
            [comparison.title, worst, *numbers, aim, f"{verdict} ({failing} of {len(ratios)})" if failing else verdict]
        )
    small = record_bytes <= MAX_BYTES
    rows.append(["bytes per world", "all", f"{record_bytes:,}", f"≤ {MAX_BYTES:,}", "–", "pass" if small else "FAIL"])
    return markdown_table(["what", "worst level", "worst", "must", "aim", "verdict"], rows), fine and small


def markdown_table(titles: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table that reads well both as Markdown and as plain text; all but the first column are right-aligned."""
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
    """One paragraph on where the numbers come from."""
    versions = ", ".join(f"{name} {number}" for name, number in entry["versions"].items() if number)
    commit = (entry["commit"] or "no commit")[:12] + (" with changes" if entry["dirty"] else "")
    return f"Measured {entry['date'][:10]} on {entry['cpu']} at {commit}; {versions}."


def write_between(marker: str, text: str, page: Path = SPEED_PAGE) -> None:
    """Replaces what stands between the two comments `<!-- marker: begin -->` and `<!-- marker: end -->` of a page."""
    begin, end = f"<!-- {marker}: begin -->", f"<!-- {marker}: end -->"
    content = page.read_text(encoding="utf-8")
    if content.count(begin) != 1 or content.count(end) != 1:
        raise ValueError(f"{page.name} must contain {begin} and {end}, once each")
    head, rest = content.split(begin)
    page.write_text(f"{head}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}", encoding="utf-8")
