"""Statistics against SciPy and against obvious implementations."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from babyai.evaluation.statistics import (
    Summary,
    best_rolling_mean,
    centered_means,
    centered_sample_efficiency,
    missions_needed,
    summarize,
    trailing_sample_efficiency,
    welch_test,
    welch_test_of_summaries,
    wilson_interval,
)

runs = st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=12)


# ------------------------------------------------------------ success rates


@given(st.integers(1, 5000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))), st.sampled_from([0.9, 0.95]))
def test_wilson_interval_equals_scipys(counts: tuple[int, int], confidence: float) -> None:
    expected = stats.binomtest(*counts).proportion_ci(confidence, method="wilson")
    low, high = wilson_interval(*counts, confidence)
    assert (low, high) == pytest.approx((expected.low, expected.high), abs=1e-9)
    assert 0 <= low <= counts[0] / counts[1] <= high <= 1


def test_512_missions_prove_99_percent_only_if_all_succeed() -> None:
    assert wilson_interval(512, 512)[0] > 0.99 > wilson_interval(511, 512)[0]


def test_missions_needed_is_the_smallest_sufficient_number() -> None:
    needed = missions_needed(1.0)
    assert needed == 381
    assert wilson_interval(381, 381)[0] >= 0.99 > wilson_interval(380, 380)[0]
    below = missions_needed(0.98) or 0
    assert below == pytest.approx(380.3, abs=1)
    assert wilson_interval(49 * 8, 50 * 8)[1] < 0.99 < wilson_interval(49 * 7, 50 * 7)[1]
    assert missions_needed(0.99) is None


@pytest.mark.parametrize(("successes", "count"), [(0, 0), (-1, 4), (5, 4)])
def test_invalid_counts_are_rejected(successes: int, count: int) -> None:
    with pytest.raises(ValueError, match=f"{successes} of {count}$"):
        wilson_interval(successes, count)


def test_invalid_confidence_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1.* 95$"):
        wilson_interval(1, 2, 95)


# ------------------------------------------------------------ comparing runs


@given(runs, runs)
def test_welch_test_equals_scipys(first: list[float], second: list[float]) -> None:
    # If all values are nearly equal, rounding errors dominate the comparison.
    if np.std(first) < 1e-3 or np.std(second) < 1e-3:
        return
    expected = stats.ttest_ind(first, second, equal_var=False)
    interval = expected.confidence_interval(0.95)
    result = welch_test(first, second)
    assert (result.t, result.degrees) == pytest.approx((expected.statistic, expected.df), rel=1e-6, abs=1e-9)
    assert result.p == pytest.approx(expected.pvalue, rel=1e-6, abs=1e-12)
    assert (result.low, result.high) == pytest.approx((interval.low, interval.high), rel=1e-6, abs=1e-6)


def test_welch_test_of_summaries_equals_scipys() -> None:
    paper = Summary(84.2, 1.9, 10)
    ours = Summary(82.0, 2.5, 3)
    # SciPy expects the sample standard deviation; the paper reports the population standard deviation.
    expected = stats.ttest_ind_from_stats(
        *(paper.mean, paper.std * math.sqrt(10 / 9), 10, ours.mean, ours.std * math.sqrt(3 / 2), 3), equal_var=False
    )
    result = welch_test_of_summaries(paper, ours)
    assert (result.t, result.p) == pytest.approx((expected.statistic, expected.pvalue))
    assert result.difference == pytest.approx(2.2) and result.low < 2.2 < result.high


def test_welch_test_of_runs_without_variance() -> None:
    same = welch_test([1.0] * 3, [1.0] * 4)
    assert (same.t, same.p, same.low, same.high) == (0.0, 1.0, 0.0, 0.0)
    other = welch_test([1.0] * 3, [0.5] * 4)
    assert (other.t, other.p, other.low, other.high) == (math.inf, 0.0, 0.5, 0.5)


def test_welch_test_rejects_a_single_run() -> None:
    with pytest.raises(ValueError, match=r"1 and 3$"):
        welch_test([1.0], [1.0, 2.0, 3.0])


def test_summary_has_the_population_standard_deviation() -> None:
    summary = summarize([2.0, 4.0])
    assert summary == Summary(3.0, 1.0, 2)
    assert summary.band == pytest.approx((3 - 2.576, 3 + 2.576))
    with pytest.raises(ValueError, match="at least one value"):
        summarize([])


# ------------------------------------------------------------ learning curves


def centered_means_reference(values: list[float], window: int) -> list[float]:
    """The definition of pandas, from its documentation of `center` and of its indexer."""
    offset = (window - 1) // 2
    means = []
    for i in range(len(values)):
        last = i + offset
        first = last - window + 1
        inside = first >= 0 and last < len(values)
        means.append(sum(values[first : last + 1]) / window if inside else math.nan)
    return means


@given(st.lists(st.floats(0, 1), max_size=30), st.integers(1, 12))
def test_centered_means_equal_pandas(values: list[float], window: int) -> None:
    expected = centered_means_reference(values, window)
    assert centered_means(values, window) == pytest.approx(expected, nan_ok=True)
    best = best_rolling_mean(values, window)
    if len(values) < window:
        assert best is None
    else:
        assert best == pytest.approx(np.nanmax(expected))


def test_even_window_has_one_value_more_before_its_center() -> None:
    # pandas.Series([1, 2, 3, 4, 5, 6]).rolling(4, center=True).mean()
    nan = math.nan
    assert centered_means([1, 2, 3, 4, 5, 6], 4).tolist() == pytest.approx([nan, nan, 2.5, 3.5, 4.5, nan], nan_ok=True)


def test_nan_affects_only_the_windows_that_contain_it() -> None:
    assert best_rolling_mean([0.9, math.nan, 0.1, 0.2, 0.3], 2) == pytest.approx(0.25)
    assert best_rolling_mean([math.nan], 1) is None


def test_empty_windows_are_rejected() -> None:
    for call in (lambda: centered_means([1.0], 0), lambda: trailing_sample_efficiency([True], 0)):
        with pytest.raises(ValueError, match=r"at least one .* 0$"):
            call()


def test_sample_efficiency_is_that_of_the_windows_center() -> None:
    rates = [0.0] * 5 + [1.0] * 5
    episodes = [100 * (row + 1) for row in range(10)]
    # The first window of four that is full of successes covers rows 5 to 8, and its center is row 7.
    assert centered_sample_efficiency(rates, episodes, 4) == 800
    assert centered_sample_efficiency(rates, episodes, 4, threshold=0.5) == 600
    assert centered_sample_efficiency(rates, episodes, 6) is None
    assert centered_sample_efficiency(rates[:3], episodes[:3], 4) is None
    with pytest.raises(ValueError, match=r"10 and 9$"):
        centered_sample_efficiency(rates, episodes[:9], 4)


def test_mean_of_a_hundred_times_99_percent_reaches_99_percent() -> None:
    assert centered_sample_efficiency([0.99] * 100, list(range(100)), 100) == 50


@given(st.lists(st.booleans(), max_size=40), st.integers(1, 10), st.sampled_from([0.5, 0.7, 0.99, 1.0]))
def test_trailing_sample_efficiency_equals_the_reference(successes: list[bool], window: int, threshold: float) -> None:
    expected = None
    for finished in range(window, len(successes) + 1):
        if sum(successes[finished - window : finished]) / window >= threshold:
            expected = finished
            break
    assert trailing_sample_efficiency(successes, window, threshold) == expected
