"""Sizes to which the map agent's tokens are padded, so that few CUDA graphs are needed."""

from typing import NamedTuple

# Room for more of each sort than needed, as a part of it (see `Sizes`): little where padding costs time.
SLACK = (0.04, 0.1, 0.1, 1.0, 0.5, 1.0)
# Padding shrinks once it is this many times as large as it would be chosen now.
TOO_LARGE = 1.25


class Sizes(NamedTuple):
    """How many of each sort there are."""

    patches: int
    events: int
    words: int
    traced: int
    visited: int
    neighbors: int

    @property
    def tokens(self) -> int:
        """The number of tokens besides the agents'."""
        return self.patches + self.events + self.words


class Capacities:
    """Sizes to which tokens are padded, so that the same few shapes recur, which CUDA graphs need.

    Args:
        slack: How much more room than needed to make; 1 makes as much more as `SLACK` says.
    """

    def __init__(self, slack: float = 1.0) -> None:
        self._slack = slack
        self._sizes: Sizes | None = None

    def fit(self, needed: Sizes) -> Sizes:
        """At least the needed sizes: those of the last time, unless they are too small or much too large."""
        roomy = Sizes(
            *(
                round_up(int((1 + self._slack * slack) * count), 1024)
                for count, slack in zip(needed, SLACK, strict=True)
            )
        )
        if self._sizes is None or self._sizes.tokens > TOO_LARGE * roomy.tokens:
            self._sizes = roomy
        sorts = zip(needed, self._sizes, roomy, strict=True)
        self._sizes = Sizes(*(size if size >= count else new for count, size, new in sorts))
        return self._sizes


def round_up(number: int, multiple: int) -> int:
    """The next multiple."""
    return -(-number // multiple) * multiple
