"""The choice of a drop cell for a blocker: a safe one if possible, else the one with the lowest remaining cost."""

import numpy as np

from babyai._jit import njit
from babyai.expert.search import NEIGHBORS, RELATIVE_ORDER, is_seen
from babyai.expert.teacher_search import (
    FREE,
    active_side,
    can_enter,
    expand_unblocked,
    find_from,
    is_next_to_tracked,
    start_teacher_search,
)
from babyai.expert.teacher_subgoals import choose_subgoal, count_blockers
from babyai.world.codes import DOOR, EMPTY, KIND_MASK, OPAQUE, PUT_NEXT, WALL
from babyai.world.state import ORIGIN, STRIDE
from babyai.world.view import STEPS

RING_OFFSETS = np.array([-STRIDE - 1, -STRIDE, -STRIDE + 1, 1, STRIDE + 1, STRIDE, STRIDE - 1, -1], dtype=np.int64)
SOLID, WALKABLE, KEEP_REACHABLE = range(3)
# The maximum number of drop cells evaluated if none is safe.
MAX_TRIALS = 256
# More than the cost of any subgoal: no drop cell was found.
INFINITE_COST = 1 << 30
# Base of the cost: an upper bound on the number of walkable cells, and the number of 2x2 squares counted.
MAX_FREE_CELLS = 1024
MAX_SQUARES = 16
# Safe drop cells up to this distance are used without evaluating others.
MAX_SAFE_DISTANCE = 5


@njit
def _classify(s, e, p):
    """Classifies a cell as wall, walkable, or something that must stay reachable."""
    if not is_seen(e, p):
        return KEEP_REACHABLE
    cell = int(s.cells[p])
    if cell & KIND_MASK == WALL:
        return SOLID
    if cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR:
        return WALKABLE
    return KEEP_REACHABLE


@njit
def is_safe_drop(s, e, p):
    """Returns whether an object at `p` would block nothing: the cells around it stay connected and reachable."""
    last = _classify(s, e, p + RING_OFFSETS[7])
    before = _classify(s, e, p + RING_OFFSETS[6])
    changes = 0
    for k in range(8):
        current = _classify(s, e, p + RING_OFFSETS[k])
        changes += (current == WALKABLE) != (last == WALKABLE)
        if last == KEEP_REACHABLE and before != WALKABLE and current != WALKABLE:
            return False
        before, last = last, current
    return changes <= 2 and not _is_target_cell(s, e, p)


@njit
def _is_target_cell(s, e, p):
    """Returns whether `p` is next to the target of a pending put clause, so that it must stay free."""
    first = active_side(s)
    for k in range(first, first + 2):
        if s.verbs[k] == PUT_NEXT and not (int(s.clauses_done) >> k) & 1 and is_next_to_tracked(s, e, p, 2 << (2 * k)):
            return True
    return False


@njit
def find_safe_drop_cell(f, s, e):
    """Returns the nearest empty cell on which the carried object blocks nothing; 0 if there is none."""
    k = 1
    while True:
        p = find_from(f, s, e, FREE, 0, k, False)
        if p == 0 or is_safe_drop(s, e, p):
            return p
        while int(f.order[k]) != p:
            k += 1
        k += 1


@njit
def _is_walkable(f, s, e, k):
    """Returns whether the k-th visited cell can be entered on a free path."""
    p = int(f.order[k])
    return f.place[p] == 0 and (k == 0 or can_enter(s, e, p))


@njit
def cost_of(f, s, e, subgoal):
    """Returns the remaining work as one number: rank of the subgoal, number of blockers, and lack of free space.

    Free space is the number of walkable cells and, to break ties, the number of 2x2 squares of them, where the agent
    can get around things. Every moved object must lower the cost, so no object is moved back and forth.
    """
    expand_unblocked(f, s, e)
    free_cells = 0
    squares = 0
    for k in range(int(f.count)):
        if _is_walkable(f, s, e, k):
            free_cells += 1
            p = int(f.order[k])
            squares += can_enter(s, e, p + 1) and can_enter(s, e, p + STRIDE) and can_enter(s, e, p + STRIDE + 1)
    rank = subgoal[0] * 64 + count_blockers(f, s, e, subgoal) + 1
    return (rank * MAX_FREE_CELLS - free_cells) * MAX_SQUARES - min(squares, MAX_SQUARES - 1)


@njit
def cost_after(f, s, e, stand, drop_cell):
    """Returns the cost after the agent, standing at `stand`, has dropped the carried object at `drop_cell`.

    The world is changed for the evaluation and restored afterwards.
    """
    agent = int(s.agent)
    held = int(s.carrying)
    tracks = int(s.carried_tracks)
    cell_before = int(s.cells[drop_cell])
    tracks_before = int(s.tracks[drop_cell - ORIGIN])
    s.agent = stand
    s.carrying = 0
    s.carried_tracks = 0
    s.cells[drop_cell] = held
    s.tracks[drop_cell - ORIGIN] = tracks
    start_teacher_search(f, s)
    cost = cost_of(f, s, e, choose_subgoal(f, s, e))
    s.agent = agent
    s.carrying = held
    s.carried_tracks = tracks
    s.cells[drop_cell] = cell_before
    s.tracks[drop_cell - ORIGIN] = tracks_before
    return cost


@njit
def choose_drop_cell(f, s, e, subgoal):
    """Returns where to stand, the drop cell for the carried object (0, 0 if there is none), and whether it is good.

    The choice, in this order: a safe cell nearby; a cell on which the object costs no more than the cell it takes up;
    the nearest safe cell; the cell with the lowest cost. Both sides of a narrow passage are considered: the agent may
    pass through it and drop the object behind itself.
    """
    # The object takes up one cell wherever it is dropped.
    enough = (cost_of(f, s, e, subgoal) // MAX_SQUARES + 2) * MAX_SQUARES
    safe = find_safe_drop_cell(f, s, e)
    safe_stand = int(f.parent[safe]) if safe else 0
    if safe and f.distance[safe] <= MAX_SAFE_DISTANCE:
        return safe_stand, safe, True
    best = INFINITE_COST
    best_stand = 0
    best_drop_cell = 0
    trials = 0
    k = 0
    while trials < MAX_TRIALS and best > enough:
        # Evaluating a drop cell overwrites the search, so it is repeated for every cell to stand on.
        start_teacher_search(f, s)
        expand_unblocked(f, s, e)
        while k < f.count and not _is_walkable(f, s, e, k):
            k += 1
        if k == f.count:
            break
        stand = int(f.order[k])
        k += 1
        for turn in range(4):
            drop_cell = stand + STEPS[NEIGHBORS[RELATIVE_ORDER, int(s.agent_dir), turn]]
            if s.cells[drop_cell] == EMPTY and is_seen(e, drop_cell) and best > enough:
                trials += 1
                cost = cost_after(f, s, e, stand, drop_cell)
                if cost < best:
                    best = cost
                    best_stand = stand
                    best_drop_cell = drop_cell
    if safe and best > enough:
        return safe_stand, safe, True
    return best_stand, best_drop_cell, best <= enough
