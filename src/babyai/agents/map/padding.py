"""Sizes to which the map agent's tokens are padded, so that few CUDA graphs are needed."""

from typing import NamedTuple

# Room for more of each sort than needed, as a part of it (see `Sizes`): little where padding costs time.
SLACK = (0.02, 0.04, 0.04, 1.0, 0.5, 1.0)
# Padding shrinks once there is this many times as much room as there would be now.
TOO_LARGE = 1.25
# Padding is divided into this many sequences, since attention takes time with the square of their length.
PADDING_SEQUENCES = 256


class Sizes(NamedTuple):
    """How many of each sort there are."""

    patches: int
    events: int
    words: int
    traced: int
    visited: int
    neighbors: int
    longest: int
    """The largest number of tokens of a sequence."""

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
        self._room: Sizes | None = None

    def fit(self, used: Sizes) -> Sizes:
        """Room for these sizes and padding: that of the last time, unless it is too small or much too large.

        The last patch and the last event are padding, so that padded cells and neighbors can belong to them.
        """
        least = used._replace(patches=used.patches + 1, events=used.events + 1, words=used.words + PADDING_SEQUENCES)
        factors = [1 + self._slack * slack for slack in SLACK]
        roomy = (round_up(int(factor * count), 1024) for factor, count in zip(factors, least[:-1], strict=True))
        room = Sizes(*roomy, longest=0)
        if self._room is not None and self._room.tokens <= TOO_LARGE * room.tokens:
            if all(size >= count for size, count in zip(self._room[:-1], least[:-1], strict=True)):
                room = self._room
            else:
                # All sorts grow together: each new size is a new graph.
                room = Sizes(*map(max, self._room, room))
        longest = max(used.longest, -(-(room.tokens - used.tokens) // PADDING_SEQUENCES))
        if longest > room.longest:
            room = room._replace(longest=round_up(longest, 64))
        self._room = room
        return room


def round_up(number: int, multiple: int) -> int:
    """The next multiple."""
    return -(-number // multiple) * multiple
