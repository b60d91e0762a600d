"""The results of studies as JSON, from the report of the studies themselves.

A report takes seconds, with importing SciPy. So the server has it made by a process of its own, and meanwhile answers
all other sessions: python -m babyai.web.study_results FOLDER.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

from babyai.studies.cells import ARCHITECTURES
from babyai.studies.html import MAX_POINTS
from babyai.studies.report import Chart, make_report
from babyai.studies.tables import Grid


def describe_results(results: Path) -> dict[str, Any]:
    """The tables of the paper with our figures, and the learning curves."""
    report = make_report(results)
    return {
        "grids": [_describe_grid(grid) for grid in report.grids],
        "charts": [_describe_chart(chart) for chart in report.charts],
        "problems": report.problems[:20],
    }


def _describe_grid(grid: Grid) -> dict[str, Any]:
    rows = [
        {
            "name": name,
            "cells": [
                {
                    "paper": cell.paper,
                    "paper_shade": cell.paper_shade,
                    "ours": cell.ours,
                    "shade": cell.shade,
                    "solved": cell.solved,
                    "agrees": cell.agrees,
                }
                for cell in cells
            ],
        }
        for name, cells in grid.rows
    ]
    study = grid.study
    return {
        "title": f"Table {study.table}: {study.title[0].lower()}{study.title[1:]}",
        "unit": study.unit,
        "measured": grid.measured,
        "total": grid.total,
        "columns": grid.columns,
        "rows": rows,
        "detail_headings": grid.detail_headings,
        "details": grid.details,
        "notes": grid.notes,
    }


def _describe_chart(chart: Chart) -> dict[str, Any]:
    """Curves of the same architecture share a number, which the page turns into a style."""
    order = list(ARCHITECTURES)
    curves = []
    for curve in chart.curves:
        step = max(1, len(curve.x) // MAX_POINTS)
        style = order.index(curve.name) if curve.name in order else len(order)
        name = f"{curve.name}, seed {curve.seed}"
        curves.append({"name": name, "group": curve.name, "style": style, "x": curve.x[::step], "y": curve.y[::step]})
    return {"title": chart.title, "x_label": chart.x_label, "curves": curves}


def main() -> None:
    """Writes the results in a folder as JSON."""
    if hasattr(os, "nice"):
        # The games of the server come first.
        os.nice(5)
    try:
        sys.stdout.write(json.dumps(describe_results(Path(sys.argv[1]))))
    except ModuleNotFoundError as error:
        sys.exit(f"{error.name} is missing: pip install 'babyai[agents]'")


if __name__ == "__main__":
    main()
