"""Setting the mission, the last step of a recipe.

All return True, so that they can end a chain of `and`, unless there is no such clause, or nothing to refer to.
"""

from babyai._jit import njit
from babyai.world.codes import (
    ANY_COLOR,
    ANYWHERE,
    DOOR,
    GO_TO,
    KIND_MASK,
    LOCKED_DOOR,
    NO_CLAUSE,
    OPEN,
    PICK_UP,
    PUT_NEXT,
    SINGLE,
    WALL,
    WALL_CELL,
)
from babyai.world.state import MAX_CLAUSES, MAX_DESCRIPTORS, NUM_CELLS


@njit
def set_descriptor(s, k, noun, color, place):
    """Sets descriptor k."""
    if 0 <= k < MAX_DESCRIPTORS:
        s.nouns[k] = noun
        s.colors[k] = color
        s.places[k] = place


@njit
def clear_mission(s):
    """Removes all clauses and descriptors."""
    s.order = SINGLE
    s.strict = 0
    for k in range(MAX_CLAUSES):
        s.verbs[k] = NO_CLAUSE
    for k in range(MAX_DESCRIPTORS):
        set_descriptor(s, k, 0, 0, 0)


@njit
def describe_thing(s, k, p):
    """Sets descriptor k to the kind and color of the object or door at `p`; returns False if there is none."""
    cell = int(s.cells[p]) if 0 <= p < NUM_CELLS else WALL_CELL
    kind = cell & KIND_MASK
    set_descriptor(s, k, DOOR if kind == LOCKED_DOOR else kind, (cell >> 4) & 7, ANYWHERE)
    return kind > WALL


@njit
def set_clause(s, clause, verb, noun, color, place):
    """Sets a clause with one descriptor."""
    if not 0 <= clause < MAX_CLAUSES:
        return False
    s.verbs[clause] = verb
    set_descriptor(s, 2 * clause, noun, color, place)
    return True


@njit
def _set_clause_to_thing(s, clause, verb, p):
    """Sets a clause about the object or door at `p`."""
    s.verbs[clause] = verb
    return describe_thing(s, 2 * clause, p)


@njit
def go_to(s, p):
    """Sets the mission to go to the object or door at `p`."""
    return _set_clause_to_thing(s, 0, GO_TO, p)


@njit
def pick_up(s, p):
    """Sets the mission to pick up the object at `p`."""
    return _set_clause_to_thing(s, 0, PICK_UP, p)


@njit
def open_door(s, p):
    """Sets the mission to open the door at `p`."""
    return _set_clause_to_thing(s, 0, OPEN, p)


@njit
def open_any_door(s):
    """Sets the mission to open any door."""
    return set_clause(s, 0, OPEN, DOOR, ANY_COLOR, ANYWHERE)


@njit
def put_next(s, clause, p, q):
    """Sets a clause: put the object at `p` next to the object or door at `q`."""
    if not 0 <= clause < MAX_CLAUSES:
        return False
    s.verbs[clause] = PUT_NEXT
    moved = describe_thing(s, 2 * clause, p)
    return describe_thing(s, 2 * clause + 1, q) and moved


@njit
def set_order(s, order, strict):
    """Sets the order (BEFORE or AFTER) of clauses 0 and 2; bit k of `strict` makes clause k strict."""
    s.order = order
    s.strict = strict
    return True
