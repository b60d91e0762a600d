"""The teacher's ways: one search from the agent, in the order of how many objects are in the way, then of steps.

Cells enter the search nearest first, so whatever is looked for, the first cell found is the best. Doors that are only
closed count as open, since opening one takes a single step. An object that blocks the way is gone through only after
everything was reached that can be reached without: the search goes level by level, and level b holds the cells whose
ways have b objects to be cleared from them. The order among equals is told in the agent's own terms (straight on,
right, left, back), so that the compass does not matter.

It uses the same scratch as `search`, with `place` as the level and bit CROSSED of `entered` for closed doors passed.
"""

from babyai._jit import njit
from babyai.expert.search import NEIGHBORS, RELATIVE_ORDER, is_seen
from babyai.world.codes import (
    AFTER,
    BOX,
    DOOR,
    EMPTY,
    KEY,
    KIND_MASK,
    LOCKED_DOOR,
    MARKED,
    NO_CLAUSE,
    OPAQUE,
    OPEN,
    PICK_UP,
    SINGLE,
    WALL,
)
from babyai.world.state import ORIGIN
from babyai.world.view import STEPS

CROSSED = 4

# What `find` can look for.
UNSEEN, UNSEEN_HERE, TRACKED, TRACKED_THING, SHUT_DOOR, OPEN_DOOR, LOCKED, KEY_LIKE = range(8)
FREE, FREE_BESIDE, TAKEN_BESIDE, UNWANTED_BOX, WANTED_BOX = range(8, 13)


@njit
def active_side(s):
    """The first clause of the side that the judge looks at now."""
    if s.order == SINGLE:
        return 0
    return 2 if (s.order == AFTER) != (s.first_side_done != 0) else 0


@njit
def is_strict(s, verb):
    """Whether a wrong deed of this verb would fail the mission now."""
    if not s.strict:
        return False
    k = active_side(s)
    return s.verbs[k + 1] == NO_CLAUSE and s.verbs[k] == verb and (int(s.strict) >> k) & 1 == 1


@njit
def holds_tracked(s, p, bit):
    """Whether an object or door of that descriptor really is at `p`, not just its last known place."""
    cell = int(s.cells[p])
    kind = cell & KIND_MASK
    if not int(s.tracks[p - ORIGIN]) & bit or kind < LOCKED_DOOR:
        return False
    return kind == BOX or cell & MARKED == 0


@njit
def start_ways(f, s):
    """Begins the search where the agent stands."""
    f.epoch += 1
    f.count = 0
    f.next = 0
    f.blockers = 0
    f.unblocked = 0
    _reach(f, int(s.agent), int(s.agent), 0, int(s.agent_dir))


@njit
def _reach(f, p, parent, distance, entered):
    f.stamp[p] = f.epoch
    f.parent[p] = parent
    f.distance[p] = distance
    f.place[p] = f.blockers
    f.order[f.count] = p
    f.entered[f.count] = entered
    f.count += 1


@njit
def can_enter(s, e, p):
    """Whether one can walk into cell `p`, opening it if it is a closed door."""
    if not is_seen(e, p):
        return False
    cell = int(s.cells[p])
    if cell & KIND_MASK == DOOR:
        return cell & OPAQUE == 0 or not is_strict(s, OPEN)
    return cell == EMPTY


@njit
def _expand(f, s, e, k):
    """Reaches the neighbors of the cell at place k of the order."""
    p = int(f.order[k])
    entered = int(f.entered[k])
    crossed = entered & CROSSED
    cell = int(s.cells[p])
    if cell & KIND_MASK == DOOR and cell & OPAQUE:
        crossed = CROSSED
    for turn in range(4):
        way = NEIGHBORS[RELATIVE_ORDER, entered & 3, turn]
        q = p + STEPS[way]
        if f.stamp[q] != f.epoch and (int(s.cells[q]) & KIND_MASK != WALL or not is_seen(e, q)):
            _reach(f, q, p, int(f.distance[p]) + 1, way | crossed)


@njit
def is_object(s, e, p):
    """Whether an object that can be carried is seen at `p`."""
    return int(s.cells[p]) & KIND_MASK >= KEY and is_seen(e, p)


@njit
def _can_be_cleared(s, e, p):
    """Whether an object is seen at `p` that can be taken out of the way; if need be, a box by opening it."""
    kind = int(s.cells[p]) & KIND_MASK
    return kind >= KEY and is_seen(e, p) and (kind == BOX or not is_strict(s, PICK_UP))


@njit
def spread(f, s, e, through_objects):
    """Goes on: on level 0 by one cell, later by a whole level; False when nothing is left to reach."""
    if f.blockers == 0:
        while f.next < f.count:
            k = f.next
            f.next += 1
            p = int(f.order[k])
            if k == 0 or can_enter(s, e, p):
                _expand(f, s, e, k)
                return True
    if not through_objects:
        return False
    return _spread_level(f, s, e)


@njit
def spread_freely(f, s, e):
    """Reaches all that can be reached without moving an object."""
    while f.blockers == 0 and spread(f, s, e, False):
        pass


@njit
def _spread_level(f, s, e):
    """Goes through the objects of the last level, nearest first, and on from there."""
    source, end = int(f.unblocked), int(f.count)
    f.blockers += 1
    f.unblocked = end
    free = end
    while True:
        while source < end and not _can_be_cleared(s, e, int(f.order[source])):
            source += 1
        while free < f.count and not can_enter(s, e, int(f.order[free])):
            free += 1
        if source < end and (free == f.count or f.distance[int(f.order[source])] <= f.distance[int(f.order[free])]):
            _expand(f, s, e, source)
            source += 1
        elif free < f.count:
            _expand(f, s, e, free)
            free += 1
        else:
            return f.count > end


@njit
def beside_tracked(s, e, p, bit):
    """Whether a seen neighbor of `p` is an object or door of that descriptor."""
    for way in range(4):
        q = p + STEPS[way]
        if holds_tracked(s, q, bit) and is_seen(e, q):
            return True
    return False


@njit
def _is(s, e, p, entered, what, detail):
    """Whether cell `p` is of the kind that is looked for; `detail` is a bit of the tracks, or a color."""
    if what <= UNSEEN_HERE:
        return not is_seen(e, p) and (what == UNSEEN or entered & CROSSED == 0)
    if not is_seen(e, p):
        return False
    cell = int(s.cells[p])
    kind = cell & KIND_MASK
    if what == TRACKED:
        return int(s.tracks[p - ORIGIN]) & detail != 0
    if what == TRACKED_THING:
        return kind >= KEY and holds_tracked(s, p, detail)
    if what == SHUT_DOOR:
        return kind == DOOR and cell & OPAQUE != 0 and int(s.tracks[p - ORIGIN]) & detail != 0
    if what == OPEN_DOOR:
        return kind == DOOR and cell & OPAQUE == 0 and int(s.tracks[p - ORIGIN]) & detail != 0
    if what == LOCKED:
        return kind == LOCKED_DOOR and (detail == 0 or int(s.tracks[p - ORIGIN]) & detail != 0)
    if what == KEY_LIKE:
        return kind == KEY and (cell >> 4) & 7 == detail
    if what == FREE:
        return cell == EMPTY
    if what == FREE_BESIDE:
        return cell == EMPTY and beside_tracked(s, e, p, detail)
    if what == TAKEN_BESIDE:
        return kind >= KEY and beside_tracked(s, e, p, detail)
    return kind == BOX and (what == UNWANTED_BOX) == (s.tracks[p - ORIGIN] == 0)


@njit
def find(f, s, e, what, detail):
    """The best cell of a kind, other than the agent's own; 0 if there is none in reach."""
    return find_from(f, s, e, what, detail, 1, True)


@njit
def find_from(f, s, e, what, detail, k, through_objects):
    """Like `find`, among the cells from place k of the order on, and only on level 0 unless through objects."""
    while True:
        while k < f.count:
            p = int(f.order[k])
            if f.place[p] and not through_objects:
                return 0
            if _is(s, e, p, int(f.entered[k]), what, detail):
                return p
            k += 1
        if not spread(f, s, e, through_objects):
            return 0


@njit
def is_key_for(held, door):
    """Whether what is held unlocks that door."""
    return held & KIND_MASK == KEY and (held ^ door) & (7 << 4) == 0


@njit
def step_toward(f, s, p):
    """The first cell on the way to `p`, which has been reached and is not the agent's own."""
    while int(f.parent[p]) != int(s.agent):
        p = int(f.parent[p])
    return p


@njit
def first_blocker(f, s, e, p):
    """The first object on the way to `p`, before it; 0 if the way is free."""
    blocker = 0
    p = int(f.parent[p])
    while p != int(s.agent):
        if is_object(s, e, p):
            blocker = p
        p = int(f.parent[p])
    return blocker
