"""What was measured for a cell, and how it compares with the paper and with the cell to its left."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from babyai.evaluation import paper
from babyai.evaluation.paper import Figure, Shade
from babyai.evaluation.statistics import Summary, best_rolling_mean, summarize, welch_test_of_summaries
from babyai.studies.cells import BASELINE_DEMOS, Cell, Study
from babyai.studies.measure import WINDOW
from babyai.studies.store import Row

# The paper's level of significance.
LEVEL = 0.01
SOLVED = 99.0
# What the paper's means and standard deviations are over: ten runs or, as assumed because it does not say, the 512
# demonstrations of a validation set. The speed of another machine is not tested.
PAPER_COUNTS = {"imitation": paper.RUNS, "ppo": paper.RUNS, "demo-lengths": paper.MISSIONS}

Chosen = Mapping[str, Mapping[int, Row]]


@dataclass(frozen=True)
class CellResult:
    """A cell and its measured runs."""

    cell: Cell
    rows: tuple[Row, ...]
    """By seed; incomplete runs included."""

    @property
    def values(self) -> list[float]:
        """The figure of each run that has one, in the study's unit."""
        return [value for row in self.rows if (value := figure_of(row)) is not None]

    @property
    def summary(self) -> Summary | None:
        """Mean and population standard deviation over runs; over demonstrations, for their lengths."""
        if self.cell.kind == "demo-lengths" and self.rows:
            figures = self.rows[-1]["figures"]
            return Summary(figures["mean"], figures["std"], figures["demos"])
        return summarize(self.values) if self.values else None

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the mean (Student's t); None with fewer than two runs."""
        return None if self.summary is None else mean_interval(self.summary)

    @property
    def tests(self) -> list[float]:
        """The test success of each run's best checkpoint, in percent."""
        return [100 * row["test"]["best"]["success_rate"] for row in self.rows if "best" in row.get("test", {})]

    @property
    def paper_p(self) -> float | None:
        """The p-value of Welch's test against the paper's figure; None if it cannot be tested."""
        figure = self.cell.paper
        if figure is None or self.summary is None or self.cell.quick or self.summary.count < 2:
            return None
        count = PAPER_COUNTS.get(self.cell.kind, 0) if self.cell.demos != BASELINE_DEMOS else 1
        return welch_test_of_summaries(self.summary, Summary(figure.mean, figure.std, count)).p if count > 1 else None

    @property
    def agrees(self) -> bool | None:
        """Whether ours does not differ significantly from the paper's figure; None if that cannot be tested."""
        return None if self.paper_p is None else self.paper_p >= LEVEL

    @property
    def is_solved(self) -> bool | None:
        """Whether 99 % is reached, in validation and in test; None if not measured."""
        if self.summary is None or not self.tests:
            return None
        return min(self.summary.mean, sum(self.tests) / len(self.tests)) >= SOLVED


def study_results(study: Study, chosen: Chosen) -> list[CellResult]:
    """The cells of a study with their rows, in the order of the study."""
    return [CellResult(cell, tuple(chosen.get(cell.name, {}).values())) for cell in study.cells]


def figure_of(row: Row) -> float | None:
    """The figure of a run, in the unit of its table; None if the run is too short, or did not reach 99 %."""
    figures = row["figures"]
    if row["kind"] == "ppo":
        return None if figures["centered"] is None else figures["centered"] / 1000
    if row["kind"] == "speed":
        return figures["frames_per_second"]
    if row["kind"] == "demo-lengths":
        return figures["mean"]
    return None if figures["best_mean"] is None else 100 * figures["best_mean"]


def paper_summary(figure: Figure) -> Summary:
    """The paper's figure over its ten runs."""
    return Summary(figure.mean, figure.std, paper.RUNS)


def mean_interval(summary: Summary, confidence: float = 0.95) -> tuple[float, float] | None:
    """The confidence interval of a mean (Student's t); None with fewer than two values."""
    if summary.count < 2:
        return None
    from scipy.stats import t as student

    error = summary.std / math.sqrt(summary.count - 1)
    half_width = float(student.ppf((1 + confidence) / 2, summary.count - 1)) * error
    return summary.mean - half_width, summary.mean + half_width


def shade(left: Summary | None, right: Summary | None, higher_is_better: bool) -> Shade | None:
    """The paper's rule: whether `right` is better or worse than `left` at 1 %; None if not, or if untestable."""
    if left is None or right is None or min(left.count, right.count) < 2:
        return None
    test = welch_test_of_summaries(right, left)
    if test.p >= LEVEL:
        return None
    return "better" if (test.difference > 0) == higher_is_better else "worse"


def shade_row(summaries: Sequence[Summary | None], higher_is_better: bool) -> list[Shade | None]:
    """The shade of each cell of a row, by the cell to its left."""
    return [None, *(shade(left, right, higher_is_better) for left, right in pairwise(summaries))]


def rows_of(chosen: Chosen, cell: str) -> list[Row]:
    """The rows of a cell."""
    return list(chosen.get(cell, {}).values())


def early_success(row: Row, validations: int, window: int = WINDOW) -> float | None:
    """The best rolling mean of the first validations, in percent; None if there are too few."""
    best = best_rolling_mean(row["curve"]["success"][:validations], window)
    return None if best is None else 100 * best
