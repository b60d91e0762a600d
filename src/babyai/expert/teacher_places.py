"""Where to put down what is in the way: where it does no harm, or else where it leaves the fewest objects to clear."""

import numpy as np

from babyai._jit import njit
from babyai.expert.search import NEIGHBORS, RELATIVE_ORDER, is_seen
from babyai.expert.teacher_subgoals import choose_errand, count_blockers
from babyai.expert.teacher_ways import (
    FREE,
    active_side,
    beside_tracked,
    can_enter,
    find_from,
    spread_freely,
    start_ways,
)
from babyai.world.codes import DOOR, EMPTY, KIND_MASK, OPAQUE, PUT_NEXT, WALL
from babyai.world.state import ORIGIN, STRIDE
from babyai.world.view import STEPS

RING = np.array([-STRIDE - 1, -STRIDE, -STRIDE + 1, 1, STRIDE + 1, STRIDE, STRIDE - 1, -1], dtype=np.int64)
SOLID, OPEN_GROUND, DELICATE = range(3)
# How many places are weighed up at most when none is harmless.
MAX_TRIALS = 256
# More than any errand costs: no place was found.
NO_PLACE = 1 << 30
# More than there are cells to walk on, and as many squares of them as are counted.
ROOM, SQUARES = 1024, 16
# How far one goes to put something down where it does no harm at all.
NEAR = 5


@njit
def _ground(s, e, p):
    """What a cell is to one who must not block it: wall, walkable, or something that must stay in reach."""
    if not is_seen(e, p):
        return DELICATE
    cell = int(s.cells[p])
    if cell & KIND_MASK == WALL:
        return SOLID
    if cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR:
        return OPEN_GROUND
    return DELICATE


@njit
def is_harmless(s, e, p):
    """Whether an object at `p` would cut nothing off: the ground around it stays in one piece, all else in reach."""
    last = _ground(s, e, p + RING[7])
    before = _ground(s, e, p + RING[6])
    changes = 0
    for k in range(8):
        ground = _ground(s, e, p + RING[k])
        changes += (ground == OPEN_GROUND) != (last == OPEN_GROUND)
        if last == DELICATE and before != OPEN_GROUND and ground != OPEN_GROUND:
            return False
        before, last = last, ground
    return changes <= 2 and not _is_wanted(s, e, p)


@njit
def _is_wanted(s, e, p):
    """Whether something has yet to be put at `p`, or may be: next to the object that a clause names."""
    first = active_side(s)
    for k in range(first, first + 2):
        if s.verbs[k] == PUT_NEXT and not (int(s.clauses_done) >> k) & 1 and beside_tracked(s, e, p, 2 << (2 * k)):
            return True
    return False


@njit
def harmless_place(f, s, e):
    """The nearest free cell where what is in hand does no harm; 0 if there is none."""
    k = 1
    while True:
        p = find_from(f, s, e, FREE, 0, k, False)
        if p == 0 or is_harmless(s, e, p):
            return p
        while int(f.order[k]) != p:
            k += 1
        k += 1


@njit
def _is_ground(f, s, e, k):
    """Whether one can freely walk to the cell at place k of the order, and stand there."""
    p = int(f.order[k])
    return f.place[p] == 0 and (k == 0 or can_enter(s, e, p))


@njit
def cost_of(f, s, e, errand):
    """What is left to do, as one number: the rank of the errand, the objects in its way, and how little room there is.

    Room is the number of cells to walk on, and among equals the number of squares of four such cells, where one can
    get around. Every object that is moved makes the cost smaller; so none is moved to and fro.
    """
    spread_freely(f, s, e)
    room, squares = 0, 0
    for k in range(int(f.count)):
        if _is_ground(f, s, e, k):
            room += 1
            p = int(f.order[k])
            squares += can_enter(s, e, p + 1) and can_enter(s, e, p + STRIDE) and can_enter(s, e, p + STRIDE + 1)
    return ((errand[0] * 64 + count_blockers(f, s, e, errand) + 1) * ROOM - room) * SQUARES - min(squares, SQUARES - 1)


@njit
def cost_after(f, s, e, stand, place):
    """The cost of what is left to do once the agent stands at `stand` and has put its load at `place`."""
    agent, held, tracks = int(s.agent), int(s.carrying), int(s.carried_tracks)
    cell_before, tracks_before = int(s.cells[place]), int(s.tracks[place - ORIGIN])
    s.agent, s.carrying, s.carried_tracks = stand, 0, 0
    s.cells[place], s.tracks[place - ORIGIN] = held, tracks
    start_ways(f, s)
    cost = cost_of(f, s, e, choose_errand(f, s, e))
    s.agent, s.carrying, s.carried_tracks = agent, held, tracks
    s.cells[place], s.tracks[place - ORIGIN] = cell_before, tracks_before
    return cost


@njit
def choose_place(f, s, e, errand):
    """Where to stand and where to put what is in hand (0, 0 if there is no room), and whether that is good enough.

    It is the nearest place where it does no harm; if that is far, the nearest that cuts nothing off and that this
    errand does not mind; if there is neither, where it leaves the least to do. Both sides of a narrow place count: the
    agent may go through it and leave its load behind.
    """
    # It takes up one cell, wherever it is put.
    enough = (cost_of(f, s, e, errand) // SQUARES + 2) * SQUARES
    harmless = harmless_place(f, s, e)
    beside = int(f.parent[harmless]) if harmless else 0
    if harmless and f.distance[harmless] <= NEAR:
        return beside, harmless, True
    best, best_stand, best_place = NO_PLACE, 0, 0
    trials, k = 0, 0
    while trials < MAX_TRIALS and best > enough:
        # Weighing up a place uses the search, which is therefore made anew for each place to stand.
        start_ways(f, s)
        spread_freely(f, s, e)
        while k < f.count and not _is_ground(f, s, e, k):
            k += 1
        if k == f.count:
            break
        stand = int(f.order[k])
        k += 1
        for turn in range(4):
            place = stand + STEPS[NEIGHBORS[RELATIVE_ORDER, int(s.agent_dir), turn]]
            if s.cells[place] == EMPTY and is_seen(e, place) and best > enough:
                trials += 1
                cost = cost_after(f, s, e, stand, place)
                if cost < best:
                    best, best_stand, best_place = cost, stand, place
    if harmless and best > enough:
        return beside, harmless, True
    return best_stand, best_place, best <= enough
