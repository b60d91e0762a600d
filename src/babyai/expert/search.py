"""Paths through the cells seen so far: a lazy breadth-first search.

Cells are visited in a fixed order that does not depend on the query, so one search answers all queries about the
current state: the path to a cell, or the nearest cell of some kind. It has two phases: first around objects, then,
starting from all visited cells, through objects.
"""

import numpy as np

from babyai._jit import njit
from babyai.world.codes import DOOR, EMPTY, KEY, KIND_MASK, LOCKED_DOOR, OPAQUE
from babyai.world.view import STEPS, visible_window

# The order in which the neighbors of a cell are visited, by the heading in which it was entered. The reference's order
# depends on the absolute heading; the teacher's order is forward, right, left, back.
REFERENCE_ORDER, RELATIVE_ORDER = range(2)
NEIGHBORS = np.array(
    [
        [[0, 1, 3, 2], [1, 0, 2, 3], [2, 3, 1, 0], [3, 2, 0, 1]],
        [[0, 1, 3, 2], [1, 2, 0, 3], [2, 3, 1, 0], [3, 0, 2, 1]],
    ],
    dtype=np.int64,
)


@njit
def is_seen(e, p):
    """Returns whether cell `p` has been seen."""
    return e.seen[p] != 0


@njit
def update_seen(s, e):
    """Marks the cells in the agent's view as seen."""
    heading = int(s.agent_dir)
    ahead = STEPS[heading]
    right = STEPS[(heading + 1) & 3]
    window = visible_window(s)
    row_start = int(s.agent) - 3 * right
    while window:
        bits = window & 127
        p = row_start
        while bits:
            if bits & 1:
                e.seen[p] = 1
            bits >>= 1
            p += right
        window >>= 7
        row_start += ahead


@njit
def start_search(f, s):
    """Starts a new search at the agent's position."""
    f.epoch += 1
    f.count = 0
    f.next = 0
    f.blockers = 0
    f.unblocked = -1
    _visit(f, int(s.agent), int(s.agent), 0, int(s.agent_dir))


@njit
def _visit(f, p, parent, distance, heading):
    """Appends cell `p` to the visited cells."""
    f.stamp[p] = f.epoch
    f.parent[p] = parent
    f.distance[p] = distance
    f.place[p] = f.count
    f.order[f.count] = p
    f.entered[f.count] = heading
    f.count += 1


@njit
def can_pass(s, e, p, blockers):
    """Returns whether paths may go through cell `p`: seen, and empty, an open door or (with `blockers`) an object."""
    cell = int(s.cells[p])
    if not is_seen(e, p):
        return False
    return cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR or (blockers and cell & KIND_MASK >= KEY)


@njit
def _expand_next(f, s, e):
    """Expands the next cell; returns False if both phases are finished."""
    while f.next == f.count:
        if f.blockers:
            return False
        f.blockers = 1
        f.unblocked = f.count
        f.next = 0
    p = int(f.order[f.next])
    # As in the reference, the second phase treats the cells of the first as entered heading right.
    heading = int(f.entered[f.next])
    if f.blockers and f.next < f.unblocked:
        heading = 0
    f.next += 1
    if p == int(s.agent) or can_pass(s, e, p, f.blockers):
        for k in range(4):
            direction = NEIGHBORS[REFERENCE_ORDER, heading, k]
            q = p + STEPS[direction]
            if f.stamp[q] != f.epoch:
                _visit(f, q, p, int(f.distance[p]) + 1, direction)
    return True


@njit
def has_path(f, s, e, p, with_blockers):
    """Returns whether there is a path to cell `p`, regardless of what is on the cell itself."""
    while f.stamp[p] != f.epoch:
        if not with_blockers and (f.blockers or (f.next == f.count)):
            return False
        if not _expand_next(f, s, e):
            return False
    return with_blockers or not is_path_blocked(f, p)


@njit
def search_all(f, s, e):
    """Runs both phases to completion."""
    while _expand_next(f, s, e):
        pass


@njit
def is_path_blocked(f, p):
    """Returns whether the path to the visited cell `p` goes through objects."""
    return f.blockers == 1 and int(f.place[p]) >= f.unblocked


@njit
def first_step(f, s, p):
    """Returns the first cell on the path to `p`, a visited cell other than the agent's."""
    while int(f.parent[p]) != int(s.agent):
        p = int(f.parent[p])
    return p


UNSEEN_CELL, CLOSED_DOOR, CLOSED_OR_LOCKED_DOOR = range(3)


@njit
def _matches(s, e, p, what):
    """Returns whether cell `p` is of the given kind."""
    if what == UNSEEN_CELL:
        return not is_seen(e, p)
    cell = int(s.cells[p])
    kind = cell & KIND_MASK
    if kind == DOOR and cell & OPAQUE:
        return True
    return what == CLOSED_OR_LOCKED_DOOR and kind == LOCKED_DOOR


@njit
def find_nearest(f, s, e, what):
    """Returns the first cell of a kind that the search visits, if necessary through objects; 0 if there is none."""
    k = 0
    while True:
        while k < f.count:
            p = int(f.order[k])
            if _matches(s, e, p, what):
                return p
            k += 1
        if not _expand_next(f, s, e):
            return 0
