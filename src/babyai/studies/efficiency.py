"""Data efficiency as in BabyAI 1.0: how many demonstrations reach 99 %, by a Gaussian process over all runs.

The success rate is a smooth function of log2 of the number of demonstrations. A Gaussian process is fitted to the runs;
its posterior gives the distribution of the first number of demonstrations at which the function reaches 99 %.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import Any

import numpy as np

from babyai.evaluation.paper import IMITATION
from babyai.evaluation.statistics import SOLVED
from babyai.studies.cells import STUDIES
from babyai.studies.statistics import Chosen

# The authors' requirements and settings.
MIN_POINTS = 5
NEARLY = 0.95
GRID_STEP = 0.02
NOISE_BOUNDS = (1e-10, 10.0)
# Smooth over at least a doubling of demonstrations. Without this bound, runs of few different numbers of demonstrations
# can be explained as well by a function that jumps between them.
LENGTH_SCALE_BOUNDS = (1.0, 1e5)
# Paths drawn from the posterior, instead of the authors' integrals over it.
PATHS = 20_000
CREDIBLE = (0.01, 0.99)


class TooFewRuns(ValueError):
    """There are not enough runs on both sides of 99 %."""


@dataclass(frozen=True)
class DataEfficiency:
    """The number of demonstrations that reach 99 %, as a distribution of its log2."""

    log2_mean: float
    log2_std: float
    low: float
    high: float
    """The 98 % credible interval, in demonstrations."""
    unreached: float
    """The probability that even the largest number of demonstrations does not reach it."""

    @property
    def demos(self) -> float:
        """The central estimate, in demonstrations."""
        return 2**self.log2_mean


def estimate_efficiency(demos: Sequence[int], successes: Sequence[float], seed: int = 0) -> DataEfficiency:
    """Estimates how many demonstrations reach 99 %.

    Args:
        demos: (n,) number of demonstrations of each run.
        successes: (n,) success rate of each run.
        seed: Random seed of the paths.

    Raises:
        TooFewRuns: Fewer than five runs are above 99 %, or fewer than five between 95 % and 99 %.
    """
    x = np.log2(np.asarray(demos, dtype=np.float64))
    rates = np.asarray(successes, dtype=np.float64)
    kept = drop_lowest(rates)
    grid = np.arange(x[kept].min(), x[kept].max() + GRID_STEP / 2, GRID_STEP)
    mean, covariance = fit_posterior(x[kept], 100 * (rates[kept] - SOLVED), grid)
    paths = np.random.default_rng(seed).multivariate_normal(mean, covariance, PATHS, method="eigh")
    above = paths >= 0
    reached = above.any(axis=1)
    if not reached.any():
        raise TooFewRuns("no path of the posterior reaches 99 %")
    first = grid[above[reached].argmax(axis=1)]
    low, high = np.quantile(first, CREDIBLE)
    return DataEfficiency(
        float(first.mean()), float(first.std()), float(2**low), float(2**high), float(1 - reached.mean())
    )


def drop_lowest(rates: np.ndarray) -> np.ndarray:
    """The runs to use: the lowest are left out as long as five remain between 95 % and 99 %.

    Returns:
        Indices into `rates`, ascending.
    """
    solved = int((rates > SOLVED).sum())
    nearly = int(((rates > NEARLY) & (rates < SOLVED)).sum())
    if min(solved, nearly) < MIN_POINTS:
        raise TooFewRuns(
            f"needs {MIN_POINTS} runs above 99 % and {MIN_POINTS} between 95 and 99 %; there are {solved} and {nearly}"
        )
    order = np.argsort(rates, kind="stable")
    below = int((rates[order] < SOLVED).sum())
    return np.sort(order[below - MIN_POINTS :])


def fit_posterior(x: np.ndarray, y: np.ndarray, grid: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and covariance of the function on a grid, without the runs' noise."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

    smooth = ConstantKernel() * RBF(length_scale_bounds=LENGTH_SCALE_BOUNDS)
    kernel: Any = smooth + WhiteKernel(noise_level_bounds=NOISE_BOUNDS)
    # Several runs of the same number of demonstrations need a little on the diagonal even without noise.
    process = GaussianProcessRegressor(kernel, alpha=1e-10, n_restarts_optimizer=2, random_state=0)
    with warnings.catch_warnings():
        # A hyperparameter at its bound, such as no noise at all, is an answer, too.
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(x[:, None], y)
    mean, covariance = process.predict(grid[:, None], return_cov=True)
    fitted: Any = process.kernel_
    return mean, covariance - fitted.k2.noise_level * np.eye(len(grid))


@dataclass(frozen=True)
class Comparison:
    """Two data efficiencies."""

    ratio: float
    """How many times as many demonstrations the second needs."""
    low: float
    high: float
    """The 99 % interval of the ratio."""
    p: float
    """Two-sided."""


def compare_efficiencies(first: DataEfficiency, second: DataEfficiency) -> Comparison:
    """Compares two estimates, by a normal approximation of the difference of their log2."""
    difference = second.log2_mean - first.log2_mean
    error = math.hypot(first.log2_std, second.log2_std)
    if error == 0:
        return Comparison(2**difference, 2**difference, 2**difference, float(difference == 0))
    normal = NormalDist()
    half_width = normal.inv_cdf(0.995) * error
    p = 2 * (1 - normal.cdf(abs(difference) / error))
    return Comparison(2**difference, 2 ** (difference - half_width), 2 ** (difference + half_width), p)


# ------------------------------------------------------------ the report


def efficiency_tables(chosen: Chosen) -> list[Any]:
    """A table of the estimates for all levels and architectures of Table 3, and one of their comparisons."""
    architectures = list(next(iter(IMITATION.values())))
    estimates: dict[tuple[str, str], DataEfficiency] = {}
    rows = []
    for level in dict.fromkeys(cell.level for cell in STUDIES["imitation"].cells):
        cells = []
        for architecture in architectures:
            try:
                estimates[level, architecture] = estimate_cell(chosen, level, architecture)
                cells.append(format_efficiency(estimates[level, architecture]))
            except TooFewRuns as error:
                cells.append(str(error).rpartition("; ")[2] if measured_runs(chosen, level, architecture)[0] else "–")
        rows.append((level, *cells))
    blocks: list[Any] = [
        "The estimate of BabyAI 1.0: a Gaussian process over log2 of the number of demonstrations, with all runs of a "
        "level and an architecture; thousands of demonstrations with the 98 % credible interval. It needs five runs "
        "above 99 % and five between 95 % and 99 %; where there are fewer, the table says how many there are.",
        (("level", *architectures), rows),
    ]
    comparisons = [
        (level, f"{second} / {first}", f"{ratio.ratio:.2f} ({ratio.low:.2f} to {ratio.high:.2f})", f"{ratio.p:.3f}")
        for level in dict.fromkeys(level for level, _ in estimates)
        for first, second in pairwise(architectures)
        if (level, first) in estimates and (level, second) in estimates
        for ratio in [compare_efficiencies(estimates[level, first], estimates[level, second])]
    ]
    if comparisons:
        blocks.append((("level", "demonstrations needed", "ratio (99 % interval)", "p"), comparisons))
    return blocks


def measured_runs(chosen: Chosen, level: str, architecture: str) -> tuple[list[int], list[float]]:
    """Numbers of demonstrations and success rates of the measured runs."""
    demos = []
    successes = []
    for cell in STUDIES["imitation"].cells:
        if (cell.level, cell.architecture) == (level, architecture):
            for row in chosen.get(cell.name, {}).values():
                if (best := row["figures"]["best_mean"]) is not None:
                    demos.append(cell.demos or 0)
                    successes.append(best)
    return demos, successes


def estimate_cell(chosen: Chosen, level: str, architecture: str) -> DataEfficiency:
    """The estimate from the measured runs of Table 3."""
    demos, successes = measured_runs(chosen, level, architecture)
    return estimate_efficiency(demos, successes)


def format_efficiency(estimate: DataEfficiency) -> str:
    """In thousands of demonstrations."""
    unreached = f", not reached with probability {estimate.unreached:.0%}" if estimate.unreached > 0.005 else ""
    interval = f"{estimate.low / 1000:.1f} to {estimate.high / 1000:.1f}"
    return f"{estimate.demos / 1000:.1f} ({interval}){unreached}"
