"""Giving instructions: the last step of a recipe. All return True, so that they can end a chain of `and`."""

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
)
from babyai.world.state import MAX_CLAUSES, MAX_DESCRIPTORS


@njit
def describe(s, k, noun, color, place):
    """Sets descriptor k."""
    s.nouns[k] = noun
    s.colors[k] = color
    s.places[k] = place


@njit
def clear_mission(s):
    s.order = SINGLE
    s.strict = 0
    for k in range(MAX_CLAUSES):
        s.verbs[k] = NO_CLAUSE
    for k in range(MAX_DESCRIPTORS):
        describe(s, k, 0, 0, 0)


@njit
def describe_thing(s, k, p):
    """Sets descriptor k to the kind and color of what lies at `p`."""
    cell = int(s.cells[p])
    kind = cell & KIND_MASK
    describe(s, k, DOOR if kind == LOCKED_DOOR else kind, (cell >> 4) & 7, ANYWHERE)


@njit
def say(s, clause, verb, noun, color, place):
    """Sets a clause with one descriptor."""
    s.verbs[clause] = verb
    describe(s, 2 * clause, noun, color, place)
    return True


@njit
def _say_thing(s, clause, verb, p):
    s.verbs[clause] = verb
    describe_thing(s, 2 * clause, p)
    return True


@njit
def go_to(s, p):
    return _say_thing(s, 0, GO_TO, p)


@njit
def pick_up(s, p):
    return _say_thing(s, 0, PICK_UP, p)


@njit
def open_door(s, p):
    return _say_thing(s, 0, OPEN, p)


@njit
def open_any_door(s):
    return say(s, 0, OPEN, DOOR, ANY_COLOR, ANYWHERE)


@njit
def put_next(s, clause, p, q):
    """Sets a clause: put what lies at `p` next to what lies at `q`."""
    s.verbs[clause] = PUT_NEXT
    describe_thing(s, 2 * clause, p)
    describe_thing(s, 2 * clause + 1, q)
    return True


@njit
def in_order(s, order, strict):
    """Puts the clauses 0 and 2 in order; `strict` has a bit for each clause that a wrong toggle or pickup fails."""
    s.order = order
    s.strict = strict
    return True
