"""The recipes, one per family of levels: what is placed, in which order, and the mission.

A recipe takes the world `s`, the draft `d` (its rooms are already built) and the level's settings. It returns False to
reject the attempt. `catalog.RECIPES` numbers the recipes; `dispatch` calls them.
"""

import numpy as np

from babyai._jit import njit
from babyai.levels.blocks import (
    ANY,
    LEFT_SIDE,
    RIGHT_SIDE,
    UP_SIDE,
    add_distractors,
    add_door,
    add_object,
    all_reachable,
    connect_all,
    draw_and_remove,
    draw_two,
    fill_reachable,
    is_next_to_reachable,
    last,
    open_all_doors,
    place_agent,
    place_agent_outside,
    place_object,
    put,
    random_thing,
    remove_wall,
)
from babyai.levels.instruct import go_to, open_any_door, open_door, pick_up, put_next, set_clause, set_order
from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    ANY_NOUN,
    ANYWHERE,
    BALL,
    BEFORE,
    BLUE,
    BOX,
    DOOR,
    GREY,
    KEY,
    KIND_MASK,
    MARKED,
    ON_LEFT,
    OPEN,
    PICK_UP,
    RED,
)
from babyai.world.judge import matches
from babyai.world.random import COLOR_ORDER, draw, draw_color, flip
from babyai.world.state import ORIGIN, STRIDE

UNLOCKED = 0
LOCKED = 1

# ---------------------------------------------------------------- go to


@njit
def go_to_red_ball(s, d, level):
    """A red ball and distractors; with `variant` 1 the distractors are grey."""
    if not (place_agent(s, d, ANY, ANY) and add_object(s, d, 0, 0, BALL, RED)):
        return False
    if not add_distractors(s, d, ANY, ANY, level.objects, False):
        return False
    if level.variant == 1:
        for k in range(1, d.count):
            p = int(d.things[k])
            s.cells[p] = int(s.cells[p]) & KIND_MASK | GREY << 4
    return all_reachable(s, d) and go_to(s, int(d.things[0]))


@njit
def go_to_object(s, d, level):
    if not (place_agent(s, d, ANY, ANY) and add_distractors(s, d, ANY, ANY, 1, True)):
        return False
    return go_to(s, last(d))


@njit
def go_to_local(s, d, level):
    if not (place_agent(s, d, ANY, ANY) and add_distractors(s, d, ANY, ANY, level.objects, False)):
        return False
    return all_reachable(s, d) and go_to(s, random_thing(s, d, 0))


@njit
def go_to_maze(s, d, level):
    """An object in a maze; with `variant` 1 all doors are open."""
    if not (place_agent(s, d, ANY, ANY) and connect_all(s, d, ANY)):
        return False
    first = d.count
    if not (add_distractors(s, d, ANY, ANY, level.objects, False) and all_reachable(s, d)):
        return False
    go_to(s, random_thing(s, d, first))
    return level.variant == 0 or open_all_doors(s, d)


@njit
def go_to_red_blue_ball(s, d, level):
    if not (place_agent(s, d, ANY, ANY) and add_distractors(s, d, ANY, ANY, level.objects, False)):
        return False
    for k in range(d.count):
        cell = int(s.cells[int(d.things[k])])
        if cell == BALL | RED << 4 or cell == BALL | BLUE << 4:
            return False
    color = RED if draw(s, 0, 2) == 0 else BLUE
    return add_object(s, d, 0, 0, BALL, color) and all_reachable(s, d) and go_to(s, last(d))


@njit
def _add_four_doors(s, d, locked):
    """Adds a door to each side of the middle room."""
    for _ in range(4):
        if not add_door(s, d, 1, 1, ANY, ANY, locked):
            return False
    return True


@njit
def go_to_door(s, d, level):
    if not (_add_four_doors(s, d, ANY) and place_agent(s, d, 1, 1)):
        return False
    return go_to(s, random_thing(s, d, 0))


@njit
def go_to_object_or_door(s, d, level):
    if not (place_agent(s, d, 1, 1) and add_distractors(s, d, 1, 1, 8, False) and _add_four_doors(s, d, ANY)):
        return False
    return all_reachable(s, d) and go_to(s, random_thing(s, d, 0))


# ---------------------------------------------------------------- open


@njit
def open_maze(s, d, level):
    if not (place_agent(s, d, ANY, ANY) and connect_all(s, d, ANY)):
        return False
    doors = d.count
    if not (add_distractors(s, d, ANY, ANY, level.objects, False) and all_reachable(s, d)):
        return False
    # As in the reference, every door is listed twice, once for each of its rooms.
    k = draw(s, 0, 2 * doors)
    for column in range(d.columns):
        for row in range(d.rows):
            room = row * d.columns + column
            for side in range(4):
                if d.linked[room, side]:
                    if k == 0:
                        return open_door(s, int(d.slots[room, side]))
                    k -= 1
    return False


@njit
def open_red_door(s, d, level):
    if not (add_door(s, d, 0, 0, RIGHT_SIDE, RED, UNLOCKED) and place_agent(s, d, 0, 0)):
        return False
    return open_door(s, int(d.things[0]))


BY_EITHER, BY_COLOR, BY_PLACE = range(3)


@njit
def open_one_door(s, d, level):
    """Four doors around the agent; `variant` decides whether the mission names one by color or by place."""
    colors = COLOR_ORDER.copy()
    for side in range(4):
        if not add_door(s, d, 1, 1, side, draw_and_remove(s, colors, 6 - side), UNLOCKED):
            return False
    by = level.variant
    if by == BY_EITHER:
        by = BY_COLOR if draw(s, 0, 2) == 0 else BY_PLACE
    if by == BY_COLOR:
        open_door(s, int(d.things[0]))
    else:
        set_clause(s, 0, OPEN, DOOR, ANY_COLOR, ON_LEFT + draw(s, 0, 4))
    s.strict = level.strict
    return place_agent(s, d, 1, 1)


@njit
def open_two_doors(s, d, level):
    """First the left door, then the right door; the level may fix their colors."""
    first, second = draw_two(s, 0, 6)
    first_color = COLOR_ORDER[first] if level.colors[0] == ANY else level.colors[0]
    second_color = COLOR_ORDER[second] if level.colors[1] == ANY else level.colors[1]
    if not (
        add_door(s, d, 1, 1, LEFT_SIDE, first_color, UNLOCKED)
        and add_door(s, d, 1, 1, RIGHT_SIDE, second_color, UNLOCKED)
        and place_agent(s, d, 1, 1)
    ):
        return False
    set_clause(s, 0, OPEN, DOOR, first_color, ANYWHERE)
    set_clause(s, 2, OPEN, DOOR, second_color, ANYWHERE)
    return set_order(s, BEFORE, level.strict)


@njit
def open_doors_in_order(s, d, level):
    colors = COLOR_ORDER.copy()
    count = level.objects
    chosen = np.empty(6, dtype=np.int64)
    for k in range(count):
        chosen[k] = draw_and_remove(s, colors, 6 - k)
    for k in range(count):
        if not add_door(s, d, 1, 1, ANY, chosen[k], UNLOCKED):
            return False
    if not place_agent(s, d, 1, 1):
        return False
    first, second = draw_two(s, 0, count)
    mode = draw(s, 0, 3)
    set_clause(s, 0, OPEN, DOOR, chosen[first], ANYWHERE)
    if mode == 0:
        s.strict = level.strict
        return True
    set_clause(s, 2, OPEN, DOOR, chosen[second], ANYWHERE)
    # Bits 0 and 2: both clauses are strict.
    return set_order(s, BEFORE if mode == 1 else AFTER, 5 * level.strict)


# ---------------------------------------------------------------- pick up


@njit
def pick_up_maze(s, d, level):
    """An object in a maze; with `variant` 1 something must be unreachable, otherwise everything must be reachable."""
    if not (place_agent(s, d, ANY, ANY) and connect_all(s, d, ANY)):
        return False
    first = d.count
    if not add_distractors(s, d, ANY, ANY, level.objects, False):
        return False
    return all_reachable(s, d) == (level.variant == 0) and pick_up(s, random_thing(s, d, first))


@njit
def pick_up_distinct(s, d, level):
    """One of five different objects, named by kind, color, or both."""
    if not (add_distractors(s, d, ANY, ANY, 5, True) and place_agent(s, d, 0, 0)):
        return False
    pick_up(s, random_thing(s, d, 0))
    by = draw(s, 0, 3)
    if by == 0:
        s.colors[0] = ANY_COLOR
    elif by == 1:
        s.nouns[0] = ANY_NOUN
    s.strict = level.strict
    # Minigrid keeps missions that nobody can win: the target is walled in by objects that may not be picked up.
    return level.minigrid == 1 or not level.strict or _can_reach_target(s, d)


@njit
def _can_reach_target(s, d):
    """Returns whether the agent can reach an object of clause 0 without moving others; boxes can be opened."""
    noun = int(s.nouns[0])
    color = int(s.colors[0])
    for k in range(d.count):
        p = int(d.things[k])
        cell = int(s.cells[p])
        if cell & KIND_MASK == BOX and not matches(cell, noun, color):
            y, x = divmod(p - ORIGIN, STRIDE)
            d.walkable[y] |= 1 << x
    fill_reachable(s, d)
    for k in range(d.count):
        p = int(d.things[k])
        if matches(int(s.cells[p]), noun, color) and is_next_to_reachable(s, d, p):
            return True
    return False


@njit
def pick_up_above(s, d, level):
    return (
        add_object(s, d, 1, 0, ANY, ANY)
        and add_door(s, d, 1, 1, UP_SIDE, ANY, UNLOCKED)
        and place_agent(s, d, 1, 1)
        and connect_all(s, d, ANY)
        and pick_up(s, int(d.things[0]))
    )


@njit
def one_room(s, d, level):
    if not (add_object(s, d, 0, 0, BALL, ANY) and place_agent(s, d, ANY, ANY)):
        return False
    return set_clause(s, 0, PICK_UP, BALL, ANY_COLOR, ANYWHERE)


@njit
def find_object(s, d, level):
    column = draw(s, 0, d.rows)
    row = draw(s, 0, d.columns)
    if not (add_object(s, d, column, row, ANY, ANY) and place_agent(s, d, 1, 1) and connect_all(s, d, ANY)):
        return False
    return set_clause(s, 0, PICK_UP, int(s.cells[int(d.things[0])]) & KIND_MASK, ANY_COLOR, ANYWHERE)


@njit
def act_on_object_or_door(s, d, level):
    if not (add_distractors(s, d, 1, 1, 5, True) and _add_four_doors(s, d, UNLOCKED) and place_agent(s, d, 1, 1)):
        return False
    p = random_thing(s, d, 0)
    if flip(s):
        return go_to(s, p)
    return open_door(s, p) if s.cells[p] & KIND_MASK == DOOR else pick_up(s, p)


# ---------------------------------------------------------------- put next


@njit
def put_next_local(s, d, level):
    if not (place_agent(s, d, ANY, ANY) and add_distractors(s, d, ANY, ANY, level.objects, True)):
        return False
    if not all_reachable(s, d):
        return False
    a, b = draw_two(s, 0, d.count)
    return put_next(s, 0, int(d.things[a]), int(d.things[b]))


@njit
def put_next_maze(s, d, level):
    """The paper's PutNext, which is not in Minigrid."""
    if not (place_agent(s, d, ANY, ANY) and connect_all(s, d, ANY)):
        return False
    first = d.count
    if not (add_distractors(s, d, ANY, ANY, level.objects, False) and all_reachable(s, d)):
        return False
    a, b = draw_two(s, first, d.count - first)
    return put_next(s, 0, int(d.things[a]), int(d.things[b]))


@njit
def _build_double_room(s, d, level):
    """Fills two rooms with distractors and removes the wall between them."""
    return (
        place_agent(s, d, 0, 0)
        and add_distractors(s, d, 0, 0, level.objects, True)
        and add_distractors(s, d, 1, 0, level.objects, True)
        and remove_wall(s, d, 0, 0, RIGHT_SIDE)
    )


@njit
def put_next_across(s, d, level):
    if not _build_double_room(s, d, level):
        return False
    a = int(d.things[draw(s, 0, level.objects)])
    b = random_thing(s, d, level.objects)
    return put_next(s, 0, b, a) if flip(s) else put_next(s, 0, a, b)


@njit
def move_two_across(s, d, level):
    if not _build_double_room(s, d, level):
        return False
    left, other_left = draw_two(s, 0, level.objects)
    right, other_right = draw_two(s, level.objects, level.objects)
    put_next(s, 0, int(d.things[left]), int(d.things[right]))
    put_next(s, 2, int(d.things[other_right]), int(d.things[other_left]))
    return set_order(s, BEFORE, 0)


# ---------------------------------------------------------------- locked doors


@njit
def _lock_random_room(s, d, level):
    """Adds a locked door to a random room and its key to another; returns the room's number, or ANY if rejected.

    Minigrid compares room numbers with `is`, which is never true for its NumPy integers, so the key may end up in the
    locked room. This is reproduced under Minigrid's rules only.
    """
    column, row = draw(s, 0, d.columns), draw(s, 0, d.rows)
    if not add_door(s, d, column, row, ANY, ANY, LOCKED):
        return ANY
    color = (int(s.cells[last(d)]) >> 4) & 7
    key_column, key_row = draw(s, 0, d.columns), draw(s, 0, d.rows)
    while not level.minigrid and key_column == column and key_row == row:
        key_column, key_row = draw(s, 0, d.columns), draw(s, 0, d.rows)
    if not add_object(s, d, key_column, key_row, KEY, color):
        return ANY
    return row * d.columns + column


@njit
def _add_distractors_to_rooms(s, d, level, locked_room, count):
    """Adds `count` distractors to every room except the locked one (under Minigrid's rules, to that one too)."""
    for column in range(d.columns):
        for row in range(d.rows):
            if row * d.columns + column != locked_room or level.minigrid:
                if not add_distractors(s, d, column, row, count, False):
                    return False
    return True


@njit
def go_to_behind_locked_door(s, d, level):
    room = _lock_random_room(s, d, level)
    return (
        room != ANY
        and connect_all(s, d, ANY)
        and _add_distractors_to_rooms(s, d, level, room, 2)
        and place_agent_outside(s, d, room)
        and all_reachable(s, d)
        and add_distractors(s, d, room % d.columns, room // d.columns, 1, False)
        and go_to(s, last(d))
    )


@njit
def unlock(s, d, level):
    room = _lock_random_room(s, d, level)
    if room == ANY:
        return False
    door = int(d.things[0])
    without = (int(s.cells[door]) >> 4) & 7 if flip(s) else ANY
    return (
        connect_all(s, d, without)
        and _add_distractors_to_rooms(s, d, level, room, 3)
        and place_agent_outside(s, d, room)
        and all_reachable(s, d)
        and open_door(s, door)
    )


@njit
def unlock_local(s, d, level):
    if not add_door(s, d, 1, 1, ANY, ANY, LOCKED):
        return False
    color = (int(s.cells[last(d)]) >> 4) & 7
    if not (add_object(s, d, 1, 1, KEY, color) and add_distractors(s, d, 1, 1, level.objects, True)):
        return False
    return place_agent(s, d, 1, 1) and open_any_door(s)


@njit
def key_in_box(s, d, level):
    if not add_door(s, d, 1, 1, ANY, ANY, LOCKED):
        return False
    s.hidden = KEY | int(s.cells[last(d)]) & 7 << 4
    return place_object(s, d, 1, 1, BOX | MARKED | draw_color(s) << 4) and place_agent(s, d, 1, 1) and open_any_door(s)


@njit
def unlock_pickup(s, d, level):
    """A box behind a locked door; with `variant` 1 a ball is in front of the door."""
    if not (add_object(s, d, 1, 0, BOX, ANY) and add_door(s, d, 0, 0, RIGHT_SIDE, ANY, LOCKED)):
        return False
    color = (int(s.cells[last(d)]) >> 4) & 7
    if level.variant == 1 and not put(s, d, last(d) - 1, BALL | draw_color(s) << 4):
        return False
    if not (add_object(s, d, 0, 0, KEY, color) and add_distractors(s, d, ANY, ANY, level.objects, True)):
        return False
    if not place_agent(s, d, 0, 0):
        return False
    if level.variant == 1:
        return set_clause(s, 0, PICK_UP, BOX, ANY_COLOR, ANYWHERE)
    return pick_up(s, int(d.things[0]))


@njit
def unlock_to_unlock(s, d, level):
    first, second = draw_two(s, 0, 6)
    return (
        add_door(s, d, 0, 0, RIGHT_SIDE, COLOR_ORDER[first], LOCKED)
        and add_object(s, d, 2, 0, KEY, COLOR_ORDER[first])
        and add_door(s, d, 1, 0, RIGHT_SIDE, COLOR_ORDER[second], LOCKED)
        and add_object(s, d, 1, 0, KEY, COLOR_ORDER[second])
        and add_object(s, d, 0, 0, BALL, ANY)
        and place_agent(s, d, 1, 0)
        and set_clause(s, 0, PICK_UP, BALL, ANY_COLOR, ANYWHERE)
    )


@njit
def key_corridor(s, d, level):
    for row in range(1, d.rows):
        remove_wall(s, d, 1, row, UP_SIDE)
    row = draw(s, 0, d.rows)
    if not add_door(s, d, 2, row, LEFT_SIDE, ANY, LOCKED):
        return False
    color = (int(s.cells[last(d)]) >> 4) & 7
    return (
        add_object(s, d, 2, row, BALL, ANY)
        and add_object(s, d, 0, draw(s, 0, d.rows), KEY, color)
        and place_agent(s, d, 1, d.rows // 2)
        and connect_all(s, d, ANY)
        and set_clause(s, 0, PICK_UP, BALL, ANY_COLOR, ANYWHERE)
    )
