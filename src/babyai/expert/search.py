"""Paths through what has been seen: one breadth-first search, spread no further than it is asked about.

Cells enter the search in a fixed order that does not depend on what is looked for, so one search answers every
question about a world as it stands: the way to a cell, the nearest cell of some kind. It runs in two phases: first
around objects, then, from all that was reached, through them.
"""

import numpy as np

from babyai._jit import njit
from babyai.world.codes import DOOR, EMPTY, KEY, KIND_MASK, LOCKED_DOOR, OPAQUE
from babyai.world.view import STEPS, visible_window

# In which order the neighbors of a cell are tried, by the heading in which it was entered. The reference's order
# depends on the compass; the teacher's is straight on, right, left, back.
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
    return e.seen[p] != 0


@njit
def look(s, e):
    """Adds what the agent sees now to what has been seen."""
    heading = int(s.agent_dir)
    ahead, right = STEPS[heading], STEPS[(heading + 1) & 3]
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
def begin_search(f, s):
    """Starts anew from where the agent stands."""
    f.epoch += 1
    f.count = 0
    f.next = 0
    f.blockers = 0
    f.unblocked = -1
    _reach(f, int(s.agent), int(s.agent), 0, int(s.agent_dir))


@njit
def _reach(f, p, parent, distance, heading):
    f.stamp[p] = f.epoch
    f.parent[p] = parent
    f.distance[p] = distance
    f.place[p] = f.count
    f.order[f.count] = p
    f.entered[f.count] = heading
    f.count += 1


@njit
def can_pass(s, e, p, blockers):
    """Whether a search goes on through cell `p`: seen, and free, an open door, or (with blockers) an object."""
    cell = int(s.cells[p])
    if not is_seen(e, p):
        return False
    return cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR or (blockers and cell & KIND_MASK >= KEY)


@njit
def _spread(f, s, e):
    """Goes on from the next cell; False when there is none left, in either phase."""
    while f.next == f.count:
        if f.blockers:
            return False
        f.blockers = 1
        f.unblocked = f.count
        f.next = 0
    p = int(f.order[f.next])
    # In the second phase the cells of the first count as entered heading right, as in the reference.
    heading = int(f.entered[f.next])
    if f.blockers and f.next < f.unblocked:
        heading = 0
    f.next += 1
    if p == int(s.agent) or can_pass(s, e, p, f.blockers):
        for k in range(4):
            way = NEIGHBORS[REFERENCE_ORDER, heading, k]
            q = p + STEPS[way]
            if f.stamp[q] != f.epoch:
                _reach(f, q, p, int(f.distance[p]) + 1, way)
    return True


@njit
def reaches(f, s, e, p, with_blockers):
    """Whether there is a way to cell `p` (into it, whatever lies there)."""
    while f.stamp[p] != f.epoch:
        if not with_blockers and (f.blockers or (f.next == f.count)):
            return False
        if not _spread(f, s, e):
            return False
    return with_blockers or not is_blocked(f, p)


@njit
def reach_all(f, s, e):
    """Runs both phases to their end."""
    while _spread(f, s, e):
        pass


@njit
def is_blocked(f, p):
    """Whether the way to `p`, which has been reached, leads through objects."""
    return f.blockers == 1 and int(f.place[p]) >= f.unblocked


@njit
def first_step(f, s, p):
    """The first cell on the way to `p`, which has been reached and is not where the agent stands."""
    while int(f.parent[p]) != int(s.agent):
        p = int(f.parent[p])
    return p


UNSEEN_CELL, CLOSED_DOOR, CLOSED_OR_LOCKED_DOOR = range(3)


@njit
def _is(s, e, p, what):
    if what == UNSEEN_CELL:
        return not is_seen(e, p)
    cell = int(s.cells[p])
    kind = cell & KIND_MASK
    if kind == DOOR and cell & OPAQUE:
        return True
    return what == CLOSED_OR_LOCKED_DOOR and kind == LOCKED_DOOR


@njit
def nearest(f, s, e, what):
    """The first cell of a kind that the search reaches, through objects if it must; or 0."""
    k = 0
    while True:
        while k < f.count:
            p = int(f.order[k])
            if _is(s, e, p, what):
                return p
            k += 1
        if not _spread(f, s, e):
            return 0
