"""Statistics of studies: the paper's own shadings, thresholds, agreement, data efficiency."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from babyai.evaluation import paper
from babyai.evaluation.statistics import Summary
from babyai.studies.cells import CELLS, STUDIES
from babyai.studies.efficiency import (
    DataEfficiency,
    TooFewRuns,
    compare_efficiencies,
    drop_lowest,
    estimate_efficiency,
)
from babyai.studies.statistics import CellResult, mean_interval, paper_summary, shade, shade_row

# Row and column of cells whose shading does not follow from the published figures.
CONTRADICTIONS = {
    # Both comparisons are significant, but not shaded.
    ("1c", "PutNextLocal", "bow_endpool_res"),
    ("1c", "PutNextLocal", "pixels_endpool_res"),
    # Shaded at p = 0.015.
    ("3", "GoToRedBallGrey 10", "bow_endpool_res"),
    # 100 next to 100: rounding hides the difference.
    ("3", "GoToRedBallGrey 50", "original_endpool_res"),
    ("3", "GoToRedBallGrey 100", "original_endpool_res"),
    ("3", "GoToRedBallGrey 100", "bow_endpool_res"),
    ("3", "PutNextLocal 500", "bow_endpool_res"),
}
TABLES = {
    "1a": (paper.PPO_ARCHITECTURES, False),
    "1b": (paper.PPO_REPRESENTATIONS, False),
    "1c": (paper.PPO_LOW_LEARNING_RATE, False),
    "3": (paper.IMITATION, True),
}


def test_shadings_of_the_paper_follow_from_its_figures() -> None:
    contradictions = set()
    compared = 0
    for name, (table, higher_is_better) in TABLES.items():
        for row, figures in table.items():
            for (_, left), (column, right) in pairwise(figures.items()):
                if left is None or right is None:
                    continue
                compared += 1
                if shade(paper_summary(left), paper_summary(right), higher_is_better) != right.shade:
                    contradictions.add((name, row, column))
    assert compared == 3 * 6 * 2 - 2 + 27 * 2
    assert contradictions == CONTRADICTIONS


def test_other_contradictions_of_the_paper_are_as_printed() -> None:
    one = paper.PPO_ARCHITECTURES["PutNextLocal"]["original_endpool_res"]
    other = paper.PPO_REPRESENTATIONS["PutNextLocal"]["original_endpool_res"]
    assert one and other and (one.mean, other.mean) == (1009, 1092)
    figures = [figure for row in paper.IMITATION.values() for figure in row.values() if figure]
    assert sorted(figure.mean for figure in figures if figure.bold and figure.mean < 99) == [97.8, 98.5, 98.6]
    assert not [figure for figure in figures if figure.mean >= 99 and not figure.bold]


def row(kind: str = "imitation", test: float = 0.99, **figures: Any) -> dict[str, Any]:
    return {"kind": kind, "complete": True, "figures": figures, "test": {"best": {"success_rate": test}}}


def test_threshold_is_met_only_in_validation_and_test() -> None:
    cell = CELLS["imitation/GoToRedBall/10k/bow_endpool_res"]
    assert CellResult(cell, (row(best_mean=0.997, test=0.988),)).is_solved is False
    assert CellResult(cell, (row(best_mean=0.997, test=0.991),)).is_solved is True
    assert CellResult(cell, (row(best_mean=0.989, test=0.995),)).is_solved is False
    assert CellResult(cell, ()).is_solved is None


def test_runs_are_compared_with_the_papers_ten() -> None:
    cell = CELLS["imitation/GoToLocal/5k/bow_endpool_res"]
    alike = CellResult(cell, tuple(row(best_mean=rate) for rate in (0.83, 0.842, 0.85)))
    apart = CellResult(cell, tuple(row(best_mean=rate) for rate in (0.93, 0.931, 0.932)))
    assert alike.agrees is True and apart.agrees is False
    assert CellResult(cell, (row(best_mean=0.5),)).agrees is None
    low, high = alike.interval or (0, 0)
    assert low < 84 < high


def test_ppo_runs_that_do_not_reach_99_percent_have_no_figure() -> None:
    cell = CELLS["ppo/GoToLocal/bow_endpool_res"]
    result = CellResult(cell, (row("ppo", centered=400_000), row("ppo", centered=None)))
    assert result.values == [400.0] and len(result.rows) == 2
    assert CellResult(cell, (row("ppo", centered=None),)).summary is None


def test_interval_is_students() -> None:
    # scipy.stats.t.interval(0.95, 2, 2, scale=1 / sqrt(3)) of the sample 1, 2, 3.
    low, high = mean_interval(Summary(2.0, float(np.std([1, 2, 3])), 3)) or (0, 0)
    assert (low, high) == pytest.approx((-0.484138, 4.484138), abs=1e-5)
    assert mean_interval(Summary(2.0, 0.0, 1)) is None


def test_shading_needs_two_runs_on_each_side_and_knows_which_way_is_better() -> None:
    few = Summary(10.0, 0.0, 1)
    low = Summary(10.0, 1.0, 10)
    high = Summary(20.0, 1.0, 10)
    assert shade_row([few, high, low, None, high], higher_is_better=True) == [None, None, "worse", None, None]
    assert shade_row([high, low], higher_is_better=False) == [None, "better"]


def test_every_paper_study_has_a_unit_and_a_table() -> None:
    assert {study.table for study in STUDIES.values()} == {"1a", "1b", "1c", "2", "3", "4", None}


# ------------------------------------------------------------ data efficiency


def make_runs(reached_at: float, seed: int = 0) -> tuple[list[int], list[float]]:
    """Success rates that rise in log2 of the number of demonstrations, and reach 99 % at a given one."""
    generator = np.random.default_rng(seed)
    demos = [round(5000 * 2 ** (k / 2)) for k in range(13) for _ in range(3)]
    rates = 0.99 + 0.008 * (np.log2(demos) - np.log2(reached_at)) + generator.normal(0, 0.001, len(demos))
    return demos, list(np.minimum(rates, 1.0))


def test_estimate_finds_where_99_percent_is_reached() -> None:
    estimate = estimate_efficiency(*make_runs(40_000))
    assert 30_000 < estimate.low < 40_000 < estimate.high < 53_000
    assert estimate.low < estimate.demos < estimate.high and estimate.unreached == 0


def test_twice_as_many_demos_are_found_to_be_twice_as_many() -> None:
    comparison = compare_efficiencies(
        estimate_efficiency(*make_runs(30_000)), estimate_efficiency(*make_runs(60_000, 1))
    )
    assert comparison.low < 2 < comparison.high and comparison.low > 1 and comparison.p < 0.01
    same = DataEfficiency(15.0, 0.0, 1, 2, 0)
    assert compare_efficiencies(same, same).p == 1


def test_lowest_runs_are_left_out_while_five_remain() -> None:
    rates = np.array([0.5, 0.96, 0.951, 0.97, 0.98, 0.975, 0.981, 0.995, 0.996, 0.997, 0.998, 0.999])
    assert drop_lowest(rates).tolist() == [1, 3, 4, 5, 6, 7, 8, 9, 10, 11]
    for few in (rates[4:], rates[:-1]):
        with pytest.raises(TooFewRuns, match="5"):
            drop_lowest(few)
