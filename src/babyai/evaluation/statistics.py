"""How sure a measurement is: intervals, tests, and the smoothed figures that the paper reports.

Standard deviations are those of the population (divided by n, not n - 1) wherever they describe a set of runs, since
that is what the paper prints; Welch's test turns them into estimates by itself.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

Numbers = Sequence[float] | np.ndarray
# The paper calls a level solved from here on.
SOLVED = 0.99
# The paper's 99 % band is the mean plus and minus this many standard deviations.
BAND = 2.576

# ------------------------------------------------------------ a success rate


def wilson_interval(successes: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """The lowest and the highest success rate that `successes` out of `count` leave plausible (Wilson 1927)."""
    if count < 1 or not 0 <= successes <= count:
        raise ValueError(f"{successes} successes out of {count} are not a success rate")
    z = _normal_quantile(confidence)
    rate, slack = successes / count, z * z / count
    center = (rate + slack / 2) / (1 + slack)
    spread = z / (1 + slack) * math.sqrt(rate * (1 - rate) / count + slack / count / 4)
    low = 0.0 if successes == 0 else center - spread
    high = 1.0 if successes == count else center + spread
    return low, high


def missions_needed(rate: float, threshold: float = SOLVED, confidence: float = 0.95) -> int | None:
    """How many missions it takes until a success rate puts the whole Wilson interval on one side of `threshold`.

    None where no number would do, because the rate is the threshold.
    """
    if rate == threshold:
        return None
    z = _normal_quantile(confidence)
    return math.ceil(z * z * threshold * (1 - threshold) / (rate - threshold) ** 2)


def _normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence must lie between 0 and 1, as 0.95 does, not {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


# ------------------------------------------------------------ runs beside runs


@dataclass(frozen=True)
class Summary:
    """Several runs in three numbers, as papers print them."""

    mean: float
    std: float
    """Of the population: divided by n."""
    count: int

    @property
    def band(self) -> tuple[float, float]:
        """The paper's 99 % band."""
        return self.mean - BAND * self.std, self.mean + BAND * self.std


def summarize(values: Numbers) -> Summary:
    """Mean, population standard deviation and number of the values."""
    every = np.asarray(values, dtype=np.float64)
    if every.ndim != 1 or every.size == 0:
        raise ValueError(f"a summary needs one row of at least one value, not an array of {every.shape}")
    return Summary(float(every.mean()), float(every.std()), every.size)


@dataclass(frozen=True)
class WelchTest:
    """The outcome of Welch's two-sided test."""

    t: float
    p: float
    degrees: float
    """The degrees of freedom."""
    difference: float
    """The first mean minus the second."""
    low: float
    high: float
    """The interval of the difference."""


def welch_test(first: Numbers, second: Numbers, confidence: float = 0.95) -> WelchTest:
    """Whether two sets of runs differ in their means; their variances need not be equal."""
    return welch_test_of_summaries(summarize(first), summarize(second), confidence)


def welch_test_of_summaries(first: Summary, second: Summary, confidence: float = 0.95) -> WelchTest:
    """The same from mean, population standard deviation and number, for results that are known only from print."""
    if min(first.count, second.count) < 2:
        raise ValueError(f"Welch's test needs two runs or more on each side, not {first.count} and {second.count}")
    from scipy.stats import t as student

    difference = first.mean - second.mean
    # The variance of each mean; n - 1 turns the population's standard deviation into an estimate.
    a, b = first.std**2 / (first.count - 1), second.std**2 / (second.count - 1)
    error = math.sqrt(a + b)
    if error == 0:
        # Runs that never vary: any difference at all is one.
        t = math.copysign(math.inf, difference) if difference else 0.0
        return WelchTest(t, 0.0 if difference else 1.0, math.nan, difference, difference, difference)
    degrees = (a + b) ** 2 / (a**2 / (first.count - 1) + b**2 / (second.count - 1))
    t = difference / error
    reach = error * float(student.ppf((1 + confidence) / 2, degrees))
    p = 2 * float(student.sf(abs(t), degrees))
    return WelchTest(t, p, degrees, difference, difference - reach, difference + reach)


# ------------------------------------------------------------ a run over time


def centered_means(values: Numbers, window: int) -> np.ndarray:
    """The mean of a window around each value, NaN where the window does not fit.

    An even window has one value more before its center than after, as in pandas' `rolling(window, center=True)`, which
    the authors used.

    Returns:
        (n,) float64, as many as there are values.
    """
    if window < 1:
        raise ValueError(f"a window must hold at least one value, not {window}")
    every = np.asarray(values, dtype=np.float64)
    means = np.full(len(every), np.nan)
    for first in range(len(every) - window + 1):
        # A correctly rounded sum, so that a hundred times 0.99 reaches 0.99.
        means[first + window // 2] = math.fsum(every[first : first + window]) / window
    return means


def best_rolling_mean(values: Numbers, window: int) -> float | None:
    """The highest centered mean: the paper's success rate of a run, over its validations (window 100, or 10).

    None where there are fewer values than the window holds.
    """
    means = centered_means(values, window)
    means = means[~np.isnan(means)]
    return float(means.max()) if means.size else None


def centered_sample_efficiency(
    success_rates: Numbers, episodes: Sequence[int] | np.ndarray, window: int, threshold: float = SOLVED
) -> int | None:
    """The episodes that a PPO run took to solve its level, as the paper counts them; None if it did not.

    Args:
        success_rates: (n,) of each row of the log.
        episodes: (n,) finished up to that row, since training began.
        window: Rows of the log, a row being ten updates: 100 in the paper, 10 for GoToRedBallGrey.
        threshold: What the centered mean has to reach.
    """
    if len(success_rates) != len(episodes):
        raise ValueError(f"there are {len(success_rates)} success rates and {len(episodes)} counts of episodes")
    reached = np.flatnonzero(centered_means(success_rates, window) >= threshold)
    return int(episodes[reached[0]]) if reached.size else None


def trailing_sample_efficiency(
    successes: Sequence[bool] | np.ndarray, window: int = 1000, threshold: float = SOLVED
) -> int | None:
    """The episodes finished when the last `window` of them first had a success rate of `threshold`; None if never.

    Args:
        successes: (n,) bool, of each episode in the order in which they ended.
        window: How many episodes.
        threshold: The success rate among them.
    """
    if window < 1:
        raise ValueError(f"a window must hold at least one value, not {window}")
    counts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.asarray(successes, dtype=bool))])
    reached = np.flatnonzero((counts[window:] - counts[:-window]) / window >= threshold)
    return int(reached[0]) + window if reached.size else None
