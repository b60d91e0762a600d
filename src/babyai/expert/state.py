"""What the expert knows of a world, one record each, and the scratch that a search needs, one a thread."""

import numpy as np

from babyai.world.state import NUM_CELLS

MAX_STACK = 96
# What the expert says instead of an action when the mission cannot be carried out any more.
NO_ADVICE = -1


EXPERT = np.dtype(
    [
        # Which cells have been seen, by their flat index.
        ("seen", np.uint8, NUM_CELLS),
        # The plan, its top last, and what the agent was like when the last advice was given.
        ("depth", np.int16),
        ("agent", np.int16),
        ("front", np.int16),
        ("front_cell", np.uint8),
        ("agent_dir", np.uint8),
        ("carrying", np.uint8),
        ("advice", np.int8),
        # How often dropping something has been advised in this episode.
        ("drops", np.int32),
        # Set once the reference's plan has broken down and the teacher has taken over.
        ("handed_over", np.uint8),
        # Why there is no advice; see `reasons`.
        ("trouble", np.uint8),
        ("kinds", np.uint8, MAX_STACK),
        ("reasons", np.uint8, MAX_STACK),
        ("targets", np.uint8, MAX_STACK),
        ("values", np.int16, MAX_STACK),
    ],
    align=True,
)

SEARCH = np.dtype(
    [
        # Cells in the order in which they are reached, the heading in which each was entered, and how many there are.
        ("order", np.int16, NUM_CELLS),
        ("entered", np.uint8, NUM_CELLS),
        ("count", np.int64),
        # The next cell to spread from; whether objects are walked through; how many were reached without that.
        ("next", np.int64),
        ("blockers", np.int64),
        ("unblocked", np.int64),
        # For each cell reached in this search (stamp == epoch): where from, in how many steps, its place in `order`.
        ("epoch", np.uint32),
        ("stamp", np.uint32, NUM_CELLS),
        ("parent", np.int16, NUM_CELLS),
        ("distance", np.int16, NUM_CELLS),
        ("place", np.int16, NUM_CELLS),
    ],
    align=True,
)


def make_experts(count: int) -> np.recarray:
    """`count` blank experts."""
    return np.zeros(count, dtype=EXPERT).view(np.recarray)


def make_search() -> np.recarray:
    """An array of one search."""
    return np.zeros(1, dtype=SEARCH).view(np.recarray)
