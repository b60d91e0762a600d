"""The expert's records: its knowledge, one record per world, and search scratch memory, one record per thread."""

import numpy as np

from babyai.world.codes import COLORS, NUM_ACTIONS
from babyai.world.state import MAX_DESCRIPTORS, NUM_CELLS

MAX_STACK = 96
# Returned instead of an action if the mission can no longer be solved.
NO_ADVICE = -1


EXPERT = np.dtype(
    [
        # Whether each cell has been seen, by flat index.
        ("seen", np.uint8, NUM_CELLS),
        # The depth of the stack of subgoals, and the state of the agent at the last advice.
        ("depth", np.int16),
        ("agent", np.int16),
        ("front", np.int16),
        ("front_cell", np.uint8),
        ("agent_dir", np.uint8),
        ("carrying", np.uint8),
        ("advice", np.int8),
        # How often `drop` has been advised in this episode.
        ("drops", np.int32),
        # Set once the reference's plan has failed and the teacher has taken over.
        ("handed_over", np.uint8),
        # Why there is no advice; see `teacher.FAILURE_MESSAGES`.
        ("failure", np.uint8),
        # The stack of subgoals, bottom first; see `planner`.
        ("kinds", np.uint8, MAX_STACK),
        ("reasons", np.uint8, MAX_STACK),
        ("targets", np.uint8, MAX_STACK),
        ("values", np.int16, MAX_STACK),
    ],
    align=True,
)

SEARCH = np.dtype(
    [
        # Visited cells in the order of visits, the heading in which each was entered, and their number.
        ("order", np.int16, NUM_CELLS),
        ("entered", np.uint8, NUM_CELLS),
        ("count", np.int64),
        # Index of the next cell to expand; whether the search goes through objects; the number of cells visited before.
        ("next", np.int64),
        ("blockers", np.int64),
        ("unblocked", np.int64),
        # For each cell visited in this search (stamp == epoch): its parent, its distance, and its index in `order`.
        ("epoch", np.uint32),
        ("stamp", np.uint32, NUM_CELLS),
        ("parent", np.int16, NUM_CELLS),
        ("distance", np.int16, NUM_CELLS),
        ("place", np.int16, NUM_CELLS),
        # The cell to which the teacher's last advice leads, 0 for none; whether a path to it starts at the agent.
        ("goal", np.int64),
        ("has_path", np.bool_),
    ],
    align=True,
)


def check_experts(experts: np.ndarray, num_failures: int) -> None:
    """Checks records from outside, a run's folder for instance: kernels trust them.

    Args:
        experts: (N,) EXPERT records.
        num_failures: How many reasons for having no advice there are.

    Raises:
        ValueError: One of them is not the record of an expert.
    """
    depth = experts["depth"][:, None]
    used = np.arange(MAX_STACK) < depth
    values = experts["values"]
    # What a subgoal's value may be, by its kind of target: nothing, a descriptor, a color, and two kinds of cells.
    bounds = np.array([NUM_CELLS, MAX_DESCRIPTORS, len(COLORS), NUM_CELLS, NUM_CELLS])
    targets = np.minimum(experts["targets"], len(bounds) - 1)
    subgoals = (experts["kinds"] < 6) & (experts["reasons"] < 6) & (experts["targets"] < len(bounds))
    subgoals &= (values >= 0) & (values < bounds[targets])
    valid = (depth >= 0).all() and (depth <= MAX_STACK).all() and subgoals[used].all()
    for name, largest in (("seen", 1), ("handed_over", 1), ("failure", num_failures - 1), ("advice", NUM_ACTIONS - 1)):
        valid &= bool((experts[name] <= largest).all())
    if not valid or (experts["advice"] < NO_ADVICE).any():
        raise ValueError("the saved state of the expert is damaged")


def make_experts(count: int) -> np.recarray:
    """Returns `count` blank experts."""
    return np.zeros(count, dtype=EXPERT).view(np.recarray)


def make_search() -> np.recarray:
    """Returns an array with one search record."""
    return np.zeros(1, dtype=SEARCH).view(np.recarray)
