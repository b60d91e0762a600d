"""Confidence intervals, Welch's t-test, and the smoothed metrics that the paper reports.

Standard deviations over runs are population standard deviations (divided by n, not n - 1), as in the paper. Welch's
test converts them to sample standard deviations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

Numbers = Sequence[float] | np.ndarray
# The success rate from which on the paper considers a level solved.
SOLVED = 0.99
# The half-width of the paper's 99 % band, in standard deviations.
BAND = 2.576

# ------------------------------------------------------------ success rates


def wilson_interval(successes: int, count: int, confidence: float = 0.95) -> tuple[float, float]:
    """Wilson score interval (low, high) of the success rate, given `successes` out of `count` (Wilson, 1927)."""
    if count < 1 or not 0 <= successes <= count:
        raise ValueError(f"successes must be between 0 and count, and count at least 1, not {successes} of {count}")
    z = _normal_quantile(confidence)
    rate = successes / count
    shrinkage = z * z / count
    center = (rate + shrinkage / 2) / (1 + shrinkage)
    half_width = z / (1 + shrinkage) * math.sqrt(rate * (1 - rate) / count + shrinkage / count / 4)
    low = 0.0 if successes == 0 else center - half_width
    high = 1.0 if successes == count else center + half_width
    return low, high


def missions_needed(rate: float, threshold: float = SOLVED, confidence: float = 0.95) -> int | None:
    """Number of missions after which the Wilson interval of a success rate no longer contains `threshold`.

    None if the rate equals the threshold, so that no number suffices.
    """
    if rate == threshold:
        return None
    z = _normal_quantile(confidence)
    return math.ceil(z * z * threshold * (1 - threshold) / (rate - threshold) ** 2)


def _normal_quantile(confidence: float) -> float:
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, such as 0.95, not {confidence}")
    return NormalDist().inv_cdf((1 + confidence) / 2)


# ------------------------------------------------------------ comparing runs


@dataclass(frozen=True)
class Summary:
    """Mean and standard deviation over several runs."""

    mean: float
    std: float
    """Population standard deviation (divided by n)."""
    count: int

    @property
    def band(self) -> tuple[float, float]:
        """The paper's 99 % band (low, high)."""
        return self.mean - BAND * self.std, self.mean + BAND * self.std


def summarize(values: Numbers) -> Summary:
    """Mean, population standard deviation and count of the values."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"expected a one-dimensional array with at least one value, not one of shape {array.shape}")
    return Summary(float(array.mean()), float(array.std()), array.size)


@dataclass(frozen=True)
class WelchTest:
    """The result of Welch's two-sided t-test."""

    t: float
    p: float
    degrees: float
    """Degrees of freedom."""
    difference: float
    """The first mean minus the second."""
    low: float
    high: float
    """The confidence interval of the difference is (low, high)."""


def welch_test(first: Numbers, second: Numbers, confidence: float = 0.95) -> WelchTest:
    """Welch's t-test: whether the means of two sets of runs differ, without assuming equal variances."""
    return welch_test_of_summaries(summarize(first), summarize(second), confidence)


def welch_test_of_summaries(first: Summary, second: Summary, confidence: float = 0.95) -> WelchTest:
    """Welch's t-test from means, population standard deviations and counts, for published results."""
    if min(first.count, second.count) < 2:
        raise ValueError(f"Welch's test needs at least two runs on each side, not {first.count} and {second.count}")
    from scipy.stats import t as student

    difference = first.mean - second.mean
    # The squared standard error of each mean; n - 1 converts the population variance to the sample variance.
    first_variance = first.std**2 / (first.count - 1)
    second_variance = second.std**2 / (second.count - 1)
    variance = first_variance + second_variance
    error = math.sqrt(variance)
    if error == 0:
        # Without any variance, every difference is significant.
        t = math.copysign(math.inf, difference) if difference else 0.0
        return WelchTest(t, 0.0 if difference else 1.0, math.nan, difference, difference, difference)
    degrees = variance**2 / (first_variance**2 / (first.count - 1) + second_variance**2 / (second.count - 1))
    t = difference / error
    half_width = error * float(student.ppf((1 + confidence) / 2, degrees))
    p = 2 * float(student.sf(abs(t), degrees))
    return WelchTest(t, p, degrees, difference, difference - half_width, difference + half_width)


# ------------------------------------------------------------ learning curves


def centered_means(values: Numbers, window: int) -> np.ndarray:
    """Centered rolling mean, NaN where the window does not fit.

    An even window has one value more before its center than after it, like pandas' `rolling(window, center=True)`,
    which the authors used.

    Returns:
        (n,) float64, one mean per value.
    """
    if window < 1:
        raise ValueError(f"window must have at least one value, not {window}")
    array = np.asarray(values, dtype=np.float64)
    means = np.full(len(array), np.nan)
    for first in range(len(array) - window + 1):
        # A correctly rounded sum, so that the mean of a hundred times 0.99 is 0.99.
        means[first + window // 2] = math.fsum(array[first : first + window]) / window
    return means


def best_rolling_mean(values: Numbers, window: int) -> float | None:
    """Highest centered rolling mean. Over validations, it is the paper's success rate of a run (window 100, or 10).

    None if there are fewer values than the window has.
    """
    means = centered_means(values, window)
    means = means[~np.isnan(means)]
    return float(means.max()) if means.size else None


def centered_sample_efficiency(
    success_rates: Numbers, episodes: Sequence[int] | np.ndarray, window: int, threshold: float = SOLVED
) -> int | None:
    """Sample efficiency of a PPO run as in the paper: the number of episodes until the level is solved; None if never.

    Args:
        success_rates: (n,) success rate of each row of the log.
        episodes: (n,) number of episodes finished since the start of training, at each row.
        window: Rolling window in rows of the log (ten updates each): 100 in the paper, 10 for GoToRedBallGrey.
        threshold: Success rate that the centered rolling mean must reach.
    """
    if len(success_rates) != len(episodes):
        raise ValueError(f"expected one episode count per success rate, got {len(success_rates)} and {len(episodes)}")
    reached = np.flatnonzero(centered_means(success_rates, window) >= threshold)
    return int(episodes[reached[0]]) if reached.size else None


def trailing_sample_efficiency(
    successes: Sequence[bool] | np.ndarray, window: int = 1000, threshold: float = SOLVED
) -> int | None:
    """Number of episodes until the last `window` episodes have a success rate of `threshold`; None if never.

    Args:
        successes: (n,) bool, the success of each episode, in the order in which they ended.
        window: Trailing window, in episodes.
        threshold: Success rate to reach.
    """
    if window < 1:
        raise ValueError(f"window must have at least one value, not {window}")
    counts = np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(np.asarray(successes, dtype=bool))])
    reached = np.flatnonzero((counts[window:] - counts[:-window]) / window >= threshold)
    return int(reached[0]) + window if reached.size else None
