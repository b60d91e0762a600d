"""The random generator of levels: locked rooms, distractors and any instruction the level allows.

Synth, GoToSeq, PickupLoc, BossLevel and their kin are this one recipe with other settings.
"""

import numpy as np

from babyai._jit import njit
from babyai.levels.blocks import (
    ANY,
    PLACING_TRIES,
    add_distractors,
    add_door,
    add_object,
    all_reachable,
    connect_all,
    last,
    place_agent_outside,
)
from babyai.levels.instruct import describe
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
from babyai.world.judge import fits, has_descriptor, lies_in
from babyai.world.random import COLOR_ORDER, draw, flip, uniform
from babyai.world.state import MAX_DESCRIPTORS, ORIGIN, STRIDE

# What a descriptor may name: box, ball and key; the door as well; or the door alone.
NOUN_ORDER = np.array([BOX, BALL, KEY, DOOR], dtype=np.int64)
DESCRIBING_TRIES = 101


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
    return _random_instruction(s, d, level) and not (level.unblocking and _asks_for_a_needed_key(s, d))


@njit
def _add_locked_room(s, d):
    """Locks a room behind a door and puts the key elsewhere."""
    for _ in range(PLACING_TRIES):
        column, row, side = draw(s, 0, d.columns), draw(s, 0, d.rows), draw(s, 0, 4)
        room = row * d.columns + column
        if d.slots[room, side]:
            d.locked_room = room
            break
    if d.locked_room == ANY or not add_door(s, d, column, row, side, ANY, 1):
        return False
    color = (int(s.cells[last(d)]) >> 4) & 7
    for _ in range(PLACING_TRIES):
        column, row = draw(s, 0, d.columns), draw(s, 0, d.rows)
        if row * d.columns + column != d.locked_room:
            return add_object(s, d, column, row, KEY, color)
    return False


@njit
def _random_instruction(s, d, level):
    """Draws a single clause, two joined by `and`, or two sides in order, each a clause or a pair."""
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
    if not _random_clause(s, d, level, clause):
        return False
    return not pair or _random_clause(s, d, level, clause + 1)


@njit
def _random_verb(s, level):
    """One of the verbs whose bit is set in the level's row."""
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


# The reference draws clauses in this order of verbs: go to, pick up, open, put next; ours are numbered alike.
assert (GO_TO, PICK_UP, OPEN, PUT_NEXT) == (1, 2, 3, 4)


@njit
def _random_clause(s, d, level, clause):
    # A single clause is drawn with kinds [action], which costs no draw.
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
    """Draws color, noun and place until something in the world is so described."""
    for _ in range(DESCRIBING_TRIES):
        pick = draw(s, 0, 7)
        color = ANY_COLOR if pick == 0 else COLOR_ORDER[pick - 1]
        noun = NOUN_ORDER[draw(s, first_noun, last_noun)]
        place = ANYWHERE
        if level.locations and flip(s):
            place = ON_LEFT + draw(s, 0, 4)
        if _is_named(s, d, level, noun, color, place):
            describe(s, k, noun, color, place)
            return True
    return False


@njit
def _is_named(s, d, level, noun, color, place):
    """Whether a descriptor matches anything; in levels without implicit unlocking, anything outside the locked room."""
    only_outside = not level.implicit_unlock and d.locked_room != ANY
    for i in range(d.count):
        p = int(d.things[i])
        if fits(int(s.cells[p]), noun, color) and lies_in(s, p, place):
            if not (only_outside and _in_room(d, p, d.locked_room)):
                return True
    return False


@njit
def _in_room(d, p, room):
    """Whether a cell lies in the room's square, walls and their doors included."""
    y, x = divmod(p - ORIGIN, STRIDE)
    inner = d.room_size - 1
    left, top = room % d.columns * inner, room // d.columns * inner
    return left <= x <= left + inner and top <= y <= top + inner


@njit
def _asks_for_a_needed_key(s, d):
    """Whether the mission names a key of the color of a locked door, which the agent may have to use up."""
    for i in range(d.count):
        cell = int(s.cells[int(d.things[i])])
        if cell & KIND_MASK == LOCKED_DOOR:
            for k in range(MAX_DESCRIPTORS):
                if has_descriptor(s, k) and s.nouns[k] == KEY and s.colors[k] == (cell >> 4) & 7:
                    return True
    return False
