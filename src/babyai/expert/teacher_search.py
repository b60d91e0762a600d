"""The teacher's search: cells in the order of the number of blockers on the path, then of the distance.

Cells are visited nearest first, so the first match of any query is the best one. Closed doors count as open, because
opening one takes a single step. The search proceeds in levels: level b contains the cells whose paths have b blockers,
and it is expanded only after all lower levels. Ties are broken relative to the agent's heading (forward, right, left,
back), so the absolute heading does not matter.

The scratch memory is the same as for `search`: `place` holds the level, and bit CROSSED of `entered` marks paths
through closed doors.
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

# Kinds of cells for `find`.
UNSEEN, UNSEEN_HERE, TRACKED, TRACKED_OBJECT, CLOSED_DOOR, OPEN_DOOR, LOCKED, KEY_OF_COLOR = range(8)
FREE, FREE_NEXT_TO, OCCUPIED_NEXT_TO, UNWANTED_BOX, WANTED_BOX = range(8, 13)


@njit
def active_side(s):
    """Returns the first clause of the side that the judge is checking."""
    if s.order == SINGLE:
        return 0
    return 2 if (s.order == AFTER) != (s.first_side_done != 0) else 0


@njit
def is_strict(s, verb):
    """Returns whether a wrong action for this verb would currently fail the mission."""
    if not s.strict:
        return False
    k = active_side(s)
    return s.verbs[k + 1] == NO_CLAUSE and s.verbs[k] == verb and (int(s.strict) >> k) & 1 == 1


@njit
def holds_tracked(s, p, bit):
    """Returns whether an object or door of the descriptor is at `p`, not only its last known position."""
    cell = int(s.cells[p])
    kind = cell & KIND_MASK
    if not int(s.tracks[p - ORIGIN]) & bit or kind < LOCKED_DOOR:
        return False
    return kind == BOX or cell & MARKED == 0


@njit
def start_teacher_search(f, s):
    """Starts a new search at the agent's position."""
    f.epoch += 1
    f.count = 0
    f.next = 0
    f.blockers = 0
    f.unblocked = 0
    _visit(f, int(s.agent), int(s.agent), 0, int(s.agent_dir))


@njit
def _visit(f, p, parent, distance, entered):
    """Appends cell `p` to the visited cells."""
    f.stamp[p] = f.epoch
    f.parent[p] = parent
    f.distance[p] = distance
    f.place[p] = f.blockers
    f.order[f.count] = p
    f.entered[f.count] = entered
    f.count += 1


@njit
def can_enter(s, e, p):
    """Returns whether the agent can enter cell `p`, opening it if it is a closed door."""
    if not is_seen(e, p):
        return False
    cell = int(s.cells[p])
    if cell & KIND_MASK == DOOR:
        return cell & OPAQUE == 0 or not is_strict(s, OPEN)
    return cell == EMPTY


@njit
def _visit_neighbors(f, s, e, k):
    """Visits the neighbors of the k-th visited cell."""
    p = int(f.order[k])
    entered = int(f.entered[k])
    crossed = entered & CROSSED
    cell = int(s.cells[p])
    if cell & KIND_MASK == DOOR and cell & OPAQUE:
        crossed = CROSSED
    for turn in range(4):
        direction = NEIGHBORS[RELATIVE_ORDER, entered & 3, turn]
        q = p + STEPS[direction]
        if f.stamp[q] != f.epoch and (int(s.cells[q]) & KIND_MASK != WALL or not is_seen(e, q)):
            _visit(f, q, p, int(f.distance[p]) + 1, direction | crossed)


@njit
def is_object(s, e, p):
    """Returns whether a portable object has been seen at `p`."""
    return int(s.cells[p]) & KIND_MASK >= KEY and is_seen(e, p)


@njit
def _can_be_cleared(s, e, p):
    """Returns whether an object has been seen at `p` that can be removed; in strict missions only boxes, by opening."""
    kind = int(s.cells[p]) & KIND_MASK
    return kind >= KEY and is_seen(e, p) and (kind == BOX or not is_strict(s, PICK_UP))


@njit
def expand(f, s, e, through_objects):
    """Expands one cell of level 0 or a whole higher level; returns False if nothing is left."""
    if f.blockers == 0:
        while f.next < f.count:
            k = f.next
            f.next += 1
            p = int(f.order[k])
            if k == 0 or can_enter(s, e, p):
                _visit_neighbors(f, s, e, k)
                return True
    if not through_objects:
        return False
    return _expand_level(f, s, e)


@njit
def expand_unblocked(f, s, e):
    """Visits all cells that can be reached without moving an object."""
    while f.blockers == 0 and expand(f, s, e, False):
        pass


@njit
def _expand_level(f, s, e):
    """Expands the next level, starting from the objects of the last one, nearest first."""
    source = int(f.unblocked)
    end = int(f.count)
    f.blockers += 1
    f.unblocked = end
    free = end
    while True:
        while source < end and not _can_be_cleared(s, e, int(f.order[source])):
            source += 1
        while free < f.count and not can_enter(s, e, int(f.order[free])):
            free += 1
        if source < end and (free == f.count or f.distance[int(f.order[source])] <= f.distance[int(f.order[free])]):
            _visit_neighbors(f, s, e, source)
            source += 1
        elif free < f.count:
            _visit_neighbors(f, s, e, free)
            free += 1
        else:
            return f.count > end


@njit
def is_next_to_tracked(s, e, p, bit):
    """Returns whether a seen neighbor of `p` is an object or door of the descriptor."""
    for direction in range(4):
        q = p + STEPS[direction]
        if holds_tracked(s, q, bit) and is_seen(e, q):
            return True
    return False


@njit
def _matches(s, e, p, entered, what, detail):
    """Returns whether cell `p` is of the given kind; `detail` is a bit of the tracks or a color."""
    if what <= UNSEEN_HERE:
        return not is_seen(e, p) and (what == UNSEEN or entered & CROSSED == 0)
    if not is_seen(e, p):
        return False
    cell = int(s.cells[p])
    kind = cell & KIND_MASK
    if what == TRACKED:
        return int(s.tracks[p - ORIGIN]) & detail != 0
    if what == TRACKED_OBJECT:
        return kind >= KEY and holds_tracked(s, p, detail)
    if what == CLOSED_DOOR:
        return kind == DOOR and cell & OPAQUE != 0 and int(s.tracks[p - ORIGIN]) & detail != 0
    if what == OPEN_DOOR:
        return kind == DOOR and cell & OPAQUE == 0 and int(s.tracks[p - ORIGIN]) & detail != 0
    if what == LOCKED:
        return kind == LOCKED_DOOR and (detail == 0 or int(s.tracks[p - ORIGIN]) & detail != 0)
    if what == KEY_OF_COLOR:
        return kind == KEY and (cell >> 4) & 7 == detail
    if what == FREE:
        return cell == EMPTY
    if what == FREE_NEXT_TO:
        return cell == EMPTY and is_next_to_tracked(s, e, p, detail)
    if what == OCCUPIED_NEXT_TO:
        return kind >= KEY and is_next_to_tracked(s, e, p, detail)
    return kind == BOX and (what == UNWANTED_BOX) == (s.tracks[p - ORIGIN] == 0)


@njit
def find(f, s, e, what, detail):
    """Returns the best reachable cell of a kind, other than the agent's; 0 if there is none."""
    return find_from(f, s, e, what, detail, 1, True)


@njit
def find_from(f, s, e, what, detail, k, through_objects):
    """Like `find`, starting at the k-th visited cell, and only on level 0 unless `through_objects`."""
    while True:
        while k < f.count:
            p = int(f.order[k])
            if f.place[p] and not through_objects:
                return 0
            if _matches(s, e, p, int(f.entered[k]), what, detail):
                return p
            k += 1
        if not expand(f, s, e, through_objects):
            return 0


@njit
def is_key_for(held, door):
    """Returns whether the held object is a key for the door."""
    return held & KIND_MASK == KEY and (held ^ door) & (7 << 4) == 0


@njit
def first_step_toward(f, s, p):
    """Returns the first cell on the path to `p`, a visited cell other than the agent's."""
    while int(f.parent[p]) != int(s.agent):
        p = int(f.parent[p])
    return p


@njit
def first_blocker(f, s, e, p):
    """Returns the first object on the path to `p`, excluding `p`; 0 if the path is free."""
    blocker = 0
    p = int(f.parent[p])
    while p != int(s.agent):
        if is_object(s, e, p):
            blocker = p
        p = int(f.parent[p])
    return blocker
