"""The report as one HTML page without any other file: tables shaded as in the paper, and learning curves."""

import re
from collections.abc import Iterable, Sequence
from html import escape

from babyai.studies.cells import ARCHITECTURES
from babyai.studies.report import Chart, Curve, Report
from babyai.studies.tables import NOT_MEASURED, Grid, GridCell

WIDTH = 460
HEIGHT = 240
MARGIN = 40
# Points per curve; more cannot be seen.
MAX_POINTS = 150
COLORS = dict(zip(ARCHITECTURES, ("#777777", "#b07aa1", "#4e79a7", "#e15759", "#59a14f"), strict=True))
# Markdown inside a line.
INLINE = (
    (r"\[([^]]*)\]\([^)]*\)", r"\1"),
    (r"\*\*(.+?)\*\*", r"<b>\1</b>"),
    (r"\*(\S.*?)\*", r"<i>\1</i>"),
    (r"`(.+?)`", r"<code>\1</code>"),
)
STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 76rem; margin: 2rem auto; padding: 0 1rem; color: #222; }
table { border-collapse: collapse; margin: 1rem 0; font-variant-numeric: tabular-nums; }
th, td { border-bottom: 1px solid #ddd; padding: .25rem .7rem; text-align: left; vertical-align: top; }
.better { background: #b8ecf5; } .worse { background: #fdf3a7; } .missing { color: #999; }
.ours { display: block; } .paper { display: block; color: #666; } .differs { color: #b3261e; }
figure { display: inline-block; margin: 0 1rem 1rem 0; } figcaption { font-size: 13px; }
svg text { font-size: 11px; fill: #555; }
@media (prefers-color-scheme: dark) {
  body { background: #1b1b1d; color: #ddd; } th, td { border-color: #444; }
  .paper, svg text { color: #aaa; fill: #aaa; }
  .better { background: #0f4c5c; } .worse { background: #5f5300; }
}
"""


def make_page(report: Report) -> str:
    """The report as HTML."""
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>BabyAI 1.1: results</title>",
        f"<meta name='viewport' content='width=device-width'><style>{STYLE}</style><h1>Results</h1>",
        "<p>Gray: the paper. Below it: ours, with the number of runs. Shaded: significantly better "
        "(<span class='better'>blue</span>) or worse (<span class='worse'>yellow</span>) than the cell to the left, at "
        "1 %. Red: differs significantly from the paper.</p>",
        table(*report.origins),
    ]
    for grid in report.grids:
        parts.append(f"<h2>Table {escape(grid.study.table or '')}: {escape(grid.study.title)}</h2>")
        parts.append(f"<p>In {escape(grid.study.unit)}; {grid.measured} of {grid.total} cells measured.</p>")
        parts.append(grid_table(grid))
        parts += [f"<h3>Measured cells</h3>{table(grid.detail_headings, grid.details)}"] if grid.details else []
        parts += map(paragraph, grid.notes)
    parts.append("<h2>Learning curves</h2><p>Success in %, each line a run; PPO in training, others in validation.</p>")
    parts += map(draw_chart, report.charts)
    for section in report.sections:
        parts.append(f"<h2>{escape(section.title)}</h2>")
        for block in section.blocks:
            parts.append(paragraph(block) if isinstance(block, str) else table(*block))
    return "\n".join(parts) + "\n"


def paragraph(text: str) -> str:
    """A paragraph or list item of Markdown. Links become their text, because the page refers to no other file."""
    tag = "li" if text.startswith("* ") else "p"
    text = escape(text.removeprefix("* "))
    for pattern, replacement in INLINE:
        text = re.sub(pattern, replacement, text)
    return f"<{tag}>{text}</{tag}>"


def table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A plain table."""
    head = "".join(f"<th>{escape(heading)}" for heading in headings)
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}' for cell in row)}" for row in rows)
    return f"<table><tr>{head}{body}</table>"


def grid_table(grid: Grid) -> str:
    """A table in the paper's shape."""
    head = "".join(f"<th>{escape(column)}" for column in ("", *grid.columns))
    body = "".join(f"<tr><th>{escape(row)}{''.join(map(grid_cell, cells))}" for row, cells in grid.rows)
    return f"<table><tr>{head}{body}</table>"


def grid_cell(cell: GridCell) -> str:
    """The paper's figure above ours, each shaded by its own significance."""
    ours = escape(cell.ours) if cell.ours else NOT_MEASURED
    ours = f"<b>{ours}</b>" if cell.solved else ours
    classes = ["ours", cell.shade or "", "" if cell.ours else "missing", "differs" if cell.agrees is False else ""]
    return (
        f"<td><span class='paper {cell.paper_shade or ''}'>{escape(cell.paper)}</span>"
        f"<span class='{' '.join(filter(None, classes))}'>{ours}</span>"
    )


# ------------------------------------------------------------ curves


def draw_chart(chart: Chart) -> str:
    """Learning curves as a picture."""
    end = max((x for curve in chart.curves for x in curve.x), default=1.0) or 1.0
    lines = [_grid_line(percent) for percent in (0, 25, 50, 75, 100)]
    lines += [_draw_curve(curve, end) for curve in chart.curves]
    lines.append(f"<text x='{WIDTH - 5}' y='{HEIGHT - 8}' text-anchor='end'>{end:.3g} {chart.x_label}</text>")
    names = dict.fromkeys(curve.name for curve in chart.curves)
    legend = " ".join(f"<span style='color:{COLORS.get(name, '#333')}'>&#9632; {escape(name)}</span>" for name in names)
    return (
        f"<figure><svg width='{WIDTH}' height='{HEIGHT}' role='img' aria-label='{escape(chart.title)}'>"
        f"{''.join(lines)}</svg><figcaption><b>{escape(chart.title)}</b><br>{legend}</figcaption></figure>"
    )


def _height(percent: float) -> float:
    return HEIGHT - MARGIN / 2 - (HEIGHT - MARGIN) * percent / 100


def _grid_line(percent: float) -> str:
    y = _height(percent)
    line = f"<line x1='{MARGIN}' x2='{WIDTH}' y1='{y:.1f}' y2='{y:.1f}' stroke='#8884' />"
    return f"{line}<text x='{MARGIN - 6}' y='{y + 4:.1f}' text-anchor='end'>{percent:.0f}</text>"


def _draw_curve(curve: Curve, end: float) -> str:
    step = max(1, len(curve.x) // MAX_POINTS)
    points = " ".join(
        f"{MARGIN + (WIDTH - MARGIN) * x / end:.1f},{_height(y):.1f}"
        for x, y in zip(curve.x[::step], curve.y[::step], strict=True)
    )
    color = COLORS.get(curve.name, "#333")
    title = f"<title>{escape(curve.name)}, seed {curve.seed}</title>"
    return f"<polyline points='{points}' fill='none' stroke='{color}' stroke-opacity='.8'>{title}</polyline>"
