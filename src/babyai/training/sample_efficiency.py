"""Sample efficiency: the number of training episodes until the success rate reaches 99 % (paper, Appendix B)."""

from collections import deque
from typing import Any

import numpy as np

from babyai.evaluation.statistics import centered_sample_efficiency

# The authors' smoothing window in log rows, and the shorter one that they use for one level.
WINDOW = 100
SHORT_WINDOW = 10
RECENT_EPISODES = 1000


def default_window(levels: list[str]) -> int:
    """The authors' window for these levels."""
    return SHORT_WINDOW if levels == ["GoToRedBallGrey"] else WINDOW


class SampleEfficiency:
    """The number of episodes until 99 % success, measured in two ways.

    Attributes:
        centered: The authors' definition: the first row around which the mean of `window` rows reaches 99 %.
        trailing: The first time that 99 % of the last 1,000 finished episodes succeeded.
    """

    def __init__(self, window: int, worlds: int) -> None:
        self.window = window
        self.worlds = worlds
        self.episodes = 0
        self.centered: float | None = None
        self.trailing: int | None = None
        self.rates: list[float] = []
        self.counts: list[int] = []
        # The authors' list of returns starts with a zero for each world.
        self.latest = [0.0] * worlds
        self.recent: deque[bool] = deque(maxlen=RECENT_EPISODES)
        # Of the episodes that ended since the last row.
        self.returns: list[float] = []
        self.lengths: list[int] = []

    def add(self, returns: list[float], lengths: list[int]) -> None:
        """Counts the episodes that ended in one update."""
        self.returns += returns
        self.lengths += lengths
        self.latest = (self.latest + returns)[-max(len(returns), self.worlds) :]
        for value in returns:
            self.episodes += 1
            self.recent.append(value > 0)
            full = len(self.recent) == RECENT_EPISODES
            if self.trailing is None and full and sum(self.recent) >= 0.99 * RECENT_EPISODES:
                self.trailing = self.episodes

    def close_row(self) -> dict[str, float]:
        """Success, return and length for a log row; updates the centered figure."""
        rate = sum(value > 0 for value in self.latest) / len(self.latest)
        self.rates.append(rate)
        self.counts.append(self.episodes)
        if self.centered is None:
            recent = slice(max(0, len(self.rates) - self.window), None)
            self.centered = centered_sample_efficiency(self.rates[recent], self.counts[recent], self.window)
        row = {"success": rate, "return": _mean(self.returns), "length": _mean(self.lengths)}
        self.returns = []
        self.lengths = []
        return row

    @property
    def known(self) -> bool:
        """Whether both figures are known."""
        return self.centered is not None and self.trailing is not None

    def state_dict(self) -> dict[str, Any]:
        """The counters, as JSON."""
        return {name: list(value) if isinstance(value, deque) else value for name, value in vars(self).items()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restores the counters."""
        vars(self).update(state | {"recent": deque(state["recent"], maxlen=RECENT_EPISODES)})


def _mean(values: list[Any]) -> float:
    return float(np.mean(values)) if values else 0.0
