"""The random level generator: locked rooms, distractors and random instructions.

Synth, GoToSeq, PickupLoc, BossLevel and similar levels are this recipe with different settings.
"""

import numpy as np

from babyai._jit import njit
from babyai.levels.blocks import (
    ANY,
    MAX_PLACE_TRIES,
    add_distractors,
    add_door,
    add_object,
    all_reachable,
    connect_all,
    last,
    place_agent_outside,
)
from babyai.levels.instruct import set_descriptor
from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    ANYWHERE,
    BALL,
    BEFORE,
    BOX,
    DOOR,
    GO_TO,
    KEY,
    KIND_MASK,
    LOCKED_DOOR,
    ON_LEFT,
    OPEN,
    PICK_UP,
    PUT_NEXT,
)
from babyai.world.judge import has_descriptor, matches, matches_place
from babyai.world.random import COLOR_ORDER, draw, flip, uniform
from babyai.world.state import MAX_DESCRIPTORS, ORIGIN, STRIDE

# Descriptors draw from a slice of this list: objects, objects and doors, or doors only.
NOUN_ORDER = np.array([BOX, BALL, KEY, DOOR], dtype=np.int64)
MAX_DESCRIBE_TRIES = 101


@njit
def random_level(s, d, level):
    if uniform(s) < level.locked_room and not _add_locked_room(s, d):
        return False
    if not (connect_all(s, d, ANY) and add_distractors(s, d, ANY, ANY, level.objects, False)):
        return False
    if not place_agent_outside(s, d, d.locked_room):
        return False
    if not level.unblocking and not all_reachable(s, d):
        return False
    return _random_instruction(s, d, level) and not (level.unblocking and _names_key_of_locked_door(s, d))


@njit
def _add_locked_room(s, d):
    """Adds a locked door to a random room and puts the key in another room."""
    for _ in range(MAX_PLACE_TRIES):
        column = draw(s, 0, d.columns)
        row = draw(s, 0, d.rows)
        side = draw(s, 0, 4)
        room = row * d.columns + column
        if d.slots[room, side]:
            d.locked_room = room
            break
    if d.locked_room == ANY or not add_door(s, d, column, row, side, ANY, 1):
        return False
    color = (int(s.cells[last(d)]) >> 4) & 7
    for _ in range(MAX_PLACE_TRIES):
        column, row = draw(s, 0, d.columns), draw(s, 0, d.rows)
        if row * d.columns + column != d.locked_room:
            return add_object(s, d, column, row, KEY, color)
    return False


@njit
def _random_instruction(s, d, level):
    """Draws a single clause, two clauses joined by `and`, or two sides in order."""
    join = draw(s, 0, level.joins)
    if join < 2:
        return _random_side(s, d, level, 0, join)
    first = _random_side(s, d, level, 0, draw(s, 0, 2))
    if not (first and _random_side(s, d, level, 2, draw(s, 0, 2))):
        return False
    s.order = BEFORE if draw(s, 0, 2) == 0 else AFTER
    return True


@njit
def _random_side(s, d, level, clause, pair):
    """Draws one clause, or two clauses joined by `and`."""
    if not _random_clause(s, d, level, clause):
        return False
    return not pair or _random_clause(s, d, level, clause + 1)


@njit
def _random_verb(s, level):
    """Draws one of the verbs that the level allows."""
    count = 0
    for verb in range(GO_TO, PUT_NEXT + 1):
        count += (level.verbs >> verb) & 1
    k = draw(s, 0, count)
    for verb in range(GO_TO, PUT_NEXT + 1):
        if (level.verbs >> verb) & 1:
            if k == 0:
                return verb
            k -= 1
    return GO_TO


# The reference draws verbs in this order; `_random_verb` relies on our codes having the same order.
assert (GO_TO, PICK_UP, OPEN, PUT_NEXT) == (1, 2, 3, 4)


@njit
def _random_clause(s, d, level, clause):
    # The reference also draws the kind of the clause from a list of one, which consumes no random bits.
    verb = _random_verb(s, level)
    s.verbs[clause] = verb
    if verb == GO_TO:
        return _random_descriptor(s, d, level, 2 * clause, 0, 4)
    if verb == OPEN:
        return _random_descriptor(s, d, level, 2 * clause, 3, 4)
    if not _random_descriptor(s, d, level, 2 * clause, 0, 3):
        return False
    return verb == PICK_UP or _random_descriptor(s, d, level, 2 * clause + 1, 0, 4)


@njit
def _random_descriptor(s, d, level, k, first_noun, last_noun):
    """Draws color, noun and place until the descriptor matches something in the world."""
    for _ in range(MAX_DESCRIBE_TRIES):
        choice = draw(s, 0, 7)
        color = ANY_COLOR if choice == 0 else COLOR_ORDER[choice - 1]
        noun = NOUN_ORDER[draw(s, first_noun, last_noun)]
        place = ANYWHERE
        if level.locations and flip(s):
            place = ON_LEFT + draw(s, 0, 4)
        if _has_match(s, d, level, noun, color, place):
            set_descriptor(s, k, noun, color, place)
            return True
    return False


@njit
def _has_match(s, d, level, noun, color, place):
    """Returns whether a descriptor matches anything.

    In levels without implicit unlocking, only matches outside the locked room count.
    """
    only_outside = not level.implicit_unlock and d.locked_room != ANY
    for i in range(d.count):
        p = int(d.things[i])
        if matches(int(s.cells[p]), noun, color) and matches_place(s, p, place):
            if not (only_outside and _in_room(d, p, d.locked_room)):
                return True
    return False


@njit
def _in_room(d, p, room):
    """Returns whether a cell is in the room, walls and their doors included."""
    y, x = divmod(p - ORIGIN, STRIDE)
    inner = d.room_size - 1
    left = room % d.columns * inner
    top = room // d.columns * inner
    return left <= x <= left + inner and top <= y <= top + inner


@njit
def _names_key_of_locked_door(s, d):
    """Returns whether the mission names a key of the color of a locked door, as the reference rejects such missions."""
    for i in range(d.count):
        cell = int(s.cells[int(d.things[i])])
        if cell & KIND_MASK == LOCKED_DOOR:
            for k in range(MAX_DESCRIPTORS):
                if has_descriptor(s, k) and s.nouns[k] == KEY and s.colors[k] == (cell >> 4) & 7:
                    return True
    return False
