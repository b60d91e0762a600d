"""The building blocks of recipes: rooms, doors, objects, the agent, and reachability checks.

A block that runs out of tries returns False, which rejects the attempt; the next attempt continues with the same
random stream. So a recipe is a chain of `and`. Random numbers are drawn in the same order as in Minigrid, so that the
same seed gives the same world. Blocks also return False for a room, side or cell that does not exist, so that no recipe
can write outside the grid with them.
"""

import numpy as np

from babyai._jit import load_eight, njit, store_eight
from babyai.levels.draft import MAX_THINGS
from babyai.world.codes import (
    DOOR,
    EMPTY,
    KIND_MASK,
    LOCKED_DOOR,
    MARKED,
    OBJECT_KINDS,
    OPAQUE,
    WALL,
    WALL_CELL,
)
from babyai.world.random import COLOR_ORDER, draw, draw_color, flip
from babyai.world.state import ORIGIN, STRIDE
from babyai.world.view import STEPS

ANY = -1
RIGHT_SIDE, DOWN_SIDE, LEFT_SIDE, UP_SIDE = range(4)
MAX_PLACE_TRIES = 1001
MAX_CONNECT_TRIES = 5001
KIND_ORDER = np.array(OBJECT_KINDS, dtype=np.int64)
NOWHERE = 0
ALL_WALL = np.uint64(WALL_CELL * 0x0101010101010101)


@njit
def at(x, y):
    """Returns the flat index of the cell at (x, y)."""
    return ORIGIN + y * STRIDE + x


@njit
def is_inside(s, x, y):
    """Returns whether the cell at (x, y) is inside the grid, and not on its border."""
    return 1 <= x < int(s.width) - 1 and 1 <= y < int(s.height) - 1


@njit
def has_room(d, column, row):
    """Returns whether there is a room in this column and row."""
    return 0 <= column < d.columns and 0 <= row < d.rows


@njit
def has_slot(d, column, row, side):
    """Returns whether there is a room in this column and row with a neighbor on that side."""
    return has_room(d, column, row) and 0 <= side < 4 and d.slots[row * d.columns + column, side] != NOWHERE


# ---------------------------------------------------------------- rooms


@njit
def build_rooms(s, d, room_size, rows, columns):
    """Builds rows x columns of empty rooms that share walls, draws the door slots, and puts the agent in the middle."""
    inner = room_size - 1
    width = inner * columns + 1
    height = inner * rows + 1
    if s.width != width or s.height != height:
        # Cells outside the grid are never used, but equal worlds should be equal in every byte.
        s.cells[:] = WALL_CELL
        s.tracks[:] = 0
    s.width = width
    s.height = height
    s.room_width = room_size
    s.room_height = room_size
    d.room_size = room_size
    d.rows = rows
    d.columns = columns
    d.count = 0
    d.locked_room = ANY
    _build_walls(s, d, inner)
    for row in range(rows):
        for column in range(columns):
            _draw_slots(s, d, column, row)
    s.agent = at(columns // 2 * inner + room_size // 2, rows // 2 * inner + room_size // 2)
    s.agent_dir = 0
    s.carrying = 0
    s.carried_tracks = 0
    s.hidden = 0


@njit
def _build_walls(s, d, inner):
    """Fills the grid with walls and empty rooms, one row of cells at a time."""
    row_bits = 0
    for x in range(STRIDE):
        is_inside = x % inner != 0 and x < s.width
        row_bits |= int(is_inside) << x
        s.cells[at(x, 1)] = EMPTY if is_inside else WALL_CELL
    # All rows inside rooms are copies of this row; the rows between rooms are wall.
    left = load_eight(s.cells, at(0, 1))
    middle = load_eight(s.cells, at(8, 1))
    right = load_eight(s.cells, at(16, 1))
    until_wall = 0
    for y in range(int(s.height)):
        is_wall = until_wall == 0
        until_wall = inner - 1 if is_wall else until_wall - 1
        d.walkable[y] = 0 if is_wall else row_bits
        store_eight(s.cells, at(0, y), ALL_WALL if is_wall else left)
        store_eight(s.cells, at(8, y), ALL_WALL if is_wall else middle)
        store_eight(s.cells, at(16, y), ALL_WALL if is_wall else right)


@njit
def _draw_slots(s, d, column, row):
    """Draws the positions of possible doors on the right and lower wall of a room; neighbors share them."""
    inner = d.room_size - 1
    left = column * inner
    top = row * inner
    room = row * d.columns + column
    d.locked[room] = 0
    for side in range(4):
        d.linked[room, side] = 0
    if column == 0:
        d.slots[room, LEFT_SIDE] = NOWHERE
    if row == 0:
        d.slots[room, UP_SIDE] = NOWHERE
    d.slots[room, RIGHT_SIDE] = NOWHERE
    d.slots[room, DOWN_SIDE] = NOWHERE
    if column < d.columns - 1:
        slot = at(left + inner, draw(s, top + 1, top + inner))
        d.slots[room, RIGHT_SIDE] = slot
        d.slots[room + 1, LEFT_SIDE] = slot
    if row < d.rows - 1:
        slot = at(draw(s, left + 1, left + inner), top + inner)
        d.slots[room, DOWN_SIDE] = slot
        d.slots[room + d.columns, UP_SIDE] = slot


@njit
def neighbor(d, room, side):
    """Returns the number of the room on that side, which must have a slot."""
    if side == RIGHT_SIDE:
        return room + 1
    if side == DOWN_SIDE:
        return room + d.columns
    if side == LEFT_SIDE:
        return room - 1
    return room - d.columns


@njit
def room_at(d, p):
    """Returns the number of the room that contains a cell."""
    y, x = divmod(p - ORIGIN, STRIDE)
    inner = d.room_size - 1
    return y // inner * d.columns + x // inner


@njit
def _link(d, room, side):
    """Marks two rooms as connected."""
    d.linked[room, side] = 1
    d.linked[neighbor(d, room, side), (side + 2) & 3] = 1


@njit
def remove_wall(s, d, column, row, side):
    """Removes the wall between two rooms, except for its ends; returns False if there is no room on that side."""
    if not has_slot(d, column, row, side):
        return False
    inner = d.room_size - 1
    left = column * inner
    top = row * inner
    for k in range(1, inner):
        x = left + (inner if side == RIGHT_SIDE else 0 if side == LEFT_SIDE else k)
        y = top + (inner if side == DOWN_SIDE else 0 if side == UP_SIDE else k)
        s.cells[at(x, y)] = EMPTY
        d.walkable[y] |= 1 << x
    _link(d, row * d.columns + column, side)
    return True


@njit
def put(s, d, p, cell):
    """Puts an object or door on a cell and registers it; returns False on the border, or if the draft is full."""
    y, x = divmod(p - ORIGIN, STRIDE)
    return put_at(s, d, x, y, cell)


@njit
def put_at(s, d, x, y, cell):
    """Like `put`, for a cell given by its position."""
    if d.count == MAX_THINGS or not is_inside(s, x, y):
        return False
    p = at(x, y)
    s.cells[p] = cell
    kind = cell & KIND_MASK
    if kind == DOOR or kind == LOCKED_DOOR:
        d.walkable[y] |= 1 << x
    else:
        d.walkable[y] &= 0xFFFFFFFF ^ (1 << x)
    d.things[d.count] = p
    d.count += 1
    return True


@njit
def last(d):
    """Returns the flat index of the object or door placed last; NOWHERE if there is none."""
    return int(d.things[d.count - 1]) if d.count > 0 else NOWHERE


# ---------------------------------------------------------------- doors


@njit
def add_door(s, d, column, row, side, color, locked):
    """Adds a door to the room. Side, color and `locked` are drawn if they are ANY, in this order."""
    if not has_room(d, column, row):
        return False
    room = row * d.columns + column
    if side == ANY:
        for _ in range(MAX_PLACE_TRIES):
            side = draw(s, 0, 4)
            if d.slots[room, side] and not d.linked[room, side]:
                break
            side = ANY
        if side == ANY:
            return False
    if not has_slot(d, column, row, side):
        return False
    if color == ANY:
        color = draw_color(s)
    if locked == ANY:
        locked = 1 if flip(s) else 0
    d.locked[room] = locked
    _link(d, room, side)
    return put(s, d, int(d.slots[room, side]), (LOCKED_DOOR if locked else DOOR) | color << 4 | OPAQUE)


@njit
def connected_rooms(d, start):
    """Returns the rooms connected to room `start` by doors of any kind, as bits."""
    reached = frontier = 1 << start
    for _ in range(d.rows * d.columns):
        spread = 0
        for room in range(d.rows * d.columns):
            if (frontier >> room) & 1:
                for side in range(4):
                    if d.linked[room, side]:
                        spread |= 1 << neighbor(d, room, side)
        frontier = spread & ~reached
        reached |= frontier
        if frontier == 0:
            break
    return reached


@njit
def connect_all(s, d, without_color):
    """Adds unlocked doors at random until all rooms are connected.

    Doors have any color except `without_color` (ANY: no exception).
    """
    everywhere = (1 << (d.rows * d.columns)) - 1
    start = room_at(d, int(s.agent))
    reached = connected_rooms(d, start)
    for _ in range(MAX_CONNECT_TRIES):
        if reached == everywhere:
            return True
        column = draw(s, 0, d.columns)
        row = draw(s, 0, d.rows)
        side = draw(s, 0, 4)
        room = row * d.columns + column
        if not d.slots[room, side] or d.linked[room, side]:
            continue
        if d.locked[room] or d.locked[neighbor(d, room, side)]:
            continue
        if not add_door(s, d, column, row, side, _door_color(s, without_color), 0):
            return False
        reached = connected_rooms(d, start)
    return False


@njit
def _door_color(s, without):
    """Draws a color other than `without` (ANY: any color)."""
    if without == ANY:
        return draw_color(s)
    k = draw(s, 0, 5)
    for color in COLOR_ORDER:
        if color != without:
            if k == 0:
                return color
            k -= 1
    return without


@njit
def open_all_doors(s, d):
    """Opens every unlocked door."""
    for k in range(d.count):
        p = int(d.things[k])
        if s.cells[p] & KIND_MASK == DOOR:
            s.cells[p] = s.cells[p] & (255 - OPAQUE)
    return True


# ---------------------------------------------------------------- objects and the agent


@njit
def _draw_cell(s, d, column, row):
    """Draws the position of a random cell of the room, walls included."""
    left = column * (d.room_size - 1)
    top = row * (d.room_size - 1)
    x = left + draw(s, 0, d.room_size)
    return x, top + draw(s, 0, d.room_size)


@njit
def place_object(s, d, column, row, cell):
    """Puts an object on a random empty cell of the room, at least two steps away from the agent."""
    if not has_room(d, column, row):
        return False
    agent_y, agent_x = divmod(int(s.agent) - ORIGIN, STRIDE)
    for _ in range(MAX_PLACE_TRIES):
        x, y = _draw_cell(s, d, column, row)
        # One branch instead of two, because neither is predictable.
        if (s.cells[at(x, y)] == EMPTY) & (abs(x - agent_x) + abs(y - agent_y) >= 2):
            return put_at(s, d, x, y, cell)
    return False


@njit
def add_object(s, d, column, row, kind, color):
    """Adds an object to the room. Kind and color are drawn if they are ANY, in this order."""
    if kind == ANY:
        kind = KIND_ORDER[draw(s, 0, 3)]
    if color == ANY:
        color = draw_color(s)
    return place_object(s, d, column, row, kind | color << 4)


@njit
def _is_placed(s, d, cell):
    """Returns whether an object of the same kind and color has been placed."""
    for k in range(d.count):
        if int(s.cells[int(d.things[k])]) & (255 - MARKED) == cell:
            return True
    return False


@njit
def add_distractors(s, d, column, row, count, unique):
    """Adds random objects to a room, or each to a random room where column or row is ANY.

    With `unique`, all placed objects differ in kind or color.
    """
    for _ in range(count):
        for _ in range(MAX_PLACE_TRIES):
            color = draw_color(s)
            cell = KIND_ORDER[draw(s, 0, 3)] | color << 4
            if not (unique and _is_placed(s, d, cell)):
                break
        else:
            return False
        column_ = draw(s, 0, d.columns) if column == ANY else column
        row_ = draw(s, 0, d.rows) if row == ANY else row
        if not place_object(s, d, column_, row_, cell):
            return False
    return True


@njit
def place_agent(s, d, column, row):
    """Puts the agent on a random empty cell of the room (drawn if ANY), facing an empty cell or a wall."""
    if column == ANY:
        column = draw(s, 0, d.columns)
    if row == ANY:
        row = draw(s, 0, d.rows)
    if not has_room(d, column, row):
        return False
    # The reference loops forever if every empty cell is surrounded by objects; we reject the attempt.
    for _ in range(MAX_PLACE_TRIES):
        p = NOWHERE
        for _ in range(MAX_PLACE_TRIES):
            x, y = _draw_cell(s, d, column, row)
            if s.cells[at(x, y)] == EMPTY:
                p = at(x, y)
                break
        if p == NOWHERE:
            s.agent = NOWHERE
            return False
        s.agent = p
        s.agent_dir = draw(s, 0, 4)
        facing = int(s.cells[p + STEPS[int(s.agent_dir)]])
        if facing == EMPTY or facing & KIND_MASK == WALL:
            return True
    return False


@njit
def place_agent_outside(s, d, room):
    """Puts the agent into random rooms until it is not in the given one."""
    for _ in range(MAX_PLACE_TRIES):
        if not place_agent(s, d, ANY, ANY):
            return False
        if room_at(d, int(s.agent)) != room:
            return True
    return False


# ---------------------------------------------------------------- checks


@njit
def _flood_row(d, y, height):
    """Extends the flood fill in row y; returns whether anything changed."""
    above = int(d.flood[y - 1]) if y > 0 else 0
    below = int(d.flood[y + 1]) if y < height - 1 else 0
    walkable = int(d.walkable[y])
    before = int(d.flood[y])
    flooded = (before | above | below) & walkable
    while True:
        wider = (flooded | flooded << 1 | flooded >> 1) & walkable
        if wider == flooded:
            break
        flooded = wider
    d.flood[y] = flooded
    return flooded != before


@njit
def all_reachable(s, d):
    """Returns whether the agent can reach every object and door without moving objects; locked doors count as open."""
    height = int(s.height)
    for y in range(height):
        d.flood[y] = 0
    agent_y, agent_x = divmod(int(s.agent) - ORIGIN, STRIDE)
    if not is_inside(s, agent_x, agent_y):
        return False
    d.flood[agent_y] = 1 << agent_x
    while True:
        changed = False
        for y in range(1, height - 1):
            changed |= _flood_row(d, y, height)
        for y in range(height - 2, 0, -1):
            changed |= _flood_row(d, y, height)
        if _flood_touches_all(d, height):
            return True
        if not changed:
            return False


@njit
def _flood_touches(d, height, p):
    """Returns whether cell `p` is in the flooded cells or next to them."""
    y, x = divmod(p - ORIGIN, STRIDE)
    flooded = int(d.flood[y])
    around = flooded | flooded << 1 | flooded >> 1
    if y > 0:
        around |= int(d.flood[y - 1])
    if y < height - 1:
        around |= int(d.flood[y + 1])
    return (around >> x) & 1 == 1


@njit
def _flood_touches_all(d, height):
    """Returns whether every object and door is in the flooded cells or next to them."""
    for k in range(d.count):
        if not _flood_touches(d, height, int(d.things[k])):
            return False
    return True


@njit
def fill_reachable(s, d):
    """Finds all cells that the agent can reach, for `is_next_to_reachable`."""
    for y in range(int(s.height)):
        d.flood[y] = 0
    y, x = divmod(int(s.agent) - ORIGIN, STRIDE)
    if not is_inside(s, x, y):
        return
    d.flood[y] = 1 << x
    changed = True
    while changed:
        changed = False
        for y in range(1, int(s.height) - 1):
            changed |= _flood_row(d, y, int(s.height))


@njit
def is_next_to_reachable(s, d, p):
    """Returns whether the agent can face cell `p`."""
    return _flood_touches(d, int(s.height), p)


# ---------------------------------------------------------------- random choices


@njit
def random_thing(s, d, first):
    """Draws one of the objects and doors placed, starting at number `first`; returns its flat index, or NOWHERE."""
    if not 0 <= first < d.count:
        return NOWHERE
    return int(d.things[first + draw(s, 0, d.count - first)])


@njit
def draw_and_remove(s, numbers, count):
    """Draws one of the first `count` numbers and removes it, keeping the order of the others; 0 if there are none."""
    count = min(count, len(numbers))
    if count < 1:
        return 0
    k = draw(s, 0, count)
    drawn = int(numbers[k])
    for i in range(k, count - 1):
        numbers[i] = numbers[i + 1]
    return drawn


@njit
def draw_two(s, first, count):
    """Draws two different numbers from [first, first + count), as Minigrid draws a subset."""
    a = draw(s, 0, count)
    b = draw(s, 0, count - 1)
    return first + a, first + (b + 1 if b >= a else b)
