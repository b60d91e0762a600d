"""The agent's partial view: the square of cells in front of it, with Minigrid's visibility rule.

View cell (vx, vy) is `6 - vy` steps ahead and `vx - 3` steps to the right. Visibility spreads from the agent row by
row; within a row, a transparent visible cell makes its two neighbors and the three cells ahead of it visible. A row is
7 bits, and the result depends only on those bits and the row's opaque cells, so a 128 x 128 lookup table gives it.
"""

import numpy as np

from babyai._jit import COMPILED, load_byte, load_eight, njit, store_four
from babyai.world.codes import EMPTY, PACKED_TRIPLES, VECTORS, WALL_CELL
from babyai.world.state import ORIGIN, STRIDE

VIEW_SIZE = 7
AGENT_TILE = 3 * VIEW_SIZE + 6
LAST_TILE = VIEW_SIZE * VIEW_SIZE - 1

# Offset of one step in the flat grid, by heading: right, down, left, up.
STEPS = np.array([1, STRIDE, -1, -STRIDE], dtype=np.int64)

VECTOR_X, VECTOR_Y = np.array(VECTORS, dtype=np.int64).T.copy()

TOP_BITS = np.uint64(0x8080808080808080)
# Multiplying by this gathers the top bits of eight bytes in the most significant byte.
GATHER = np.uint64(0x0002040810204081)
TO_LOW_BYTE = np.uint64(56)


def _visibility_table() -> np.ndarray:
    """Returns table[visible << 7 | opaque]: the cells that a row makes visible in itself and in the next row.

    `visible` are the cells made visible by the previous row. Light spreads along the row through transparent cells.
    Every lit cell makes its two neighbors and the three cells ahead of it visible, so in both rows the result is the
    lit cells, extended by one cell on each side.
    """
    index = np.arange(1 << 14)
    opaque = index & 127
    lit = index >> 7 & ~opaque
    for _ in range(VIEW_SIZE):
        lit |= (lit << 1 | lit >> 1) & ~opaque & 127
    return ((lit | lit << 1 | lit >> 1) & 127).astype(np.uint8)


VISIBILITY = _visibility_table()


def _rotation_table() -> np.ndarray:
    """Returns table[heading, bits]: seven adjacent cells of a world row, as bits of the rotated view.

    Facing up or down they are one row of the view; facing right or left one column, that is, one bit of each row.
    """
    view_bit = (
        lambda k: 7 * k,
        lambda k: 6 - k,
        lambda k: 7 * (6 - k),
        lambda k: k,
    )
    return np.array([[sum((bits >> k & 1) << to(k) for k in range(7)) for bits in range(128)] for to in view_bit])


# In the view as 49 bits, a cell has bit 7 * (steps ahead) + vx. World row j of the seven rows in view starts at bit
# FIRST_ROW_BIT + j * ROW_BIT_STEP; the first of these rows begins WINDOW_CORNER cells from the agent.
ROTATED = _rotation_table()
FIRST_ROW_BIT = np.array([0, 0, 6, 42], dtype=np.int64)
ROW_BIT_STEP = np.array([1, 7, -1, -7], dtype=np.int64)
WINDOW_CORNER = np.array([-3 * STRIDE, -3, -3 * STRIDE - 6, -6 * STRIDE - 3], dtype=np.int64)


if COMPILED:

    @njit
    def _opaque_bits(cells, p):
        """Returns the seven cells starting at `p` as bits: 1 for opaque cells."""
        return np.int64(((load_eight(cells, p) & TOP_BITS) * GATHER) >> TO_LOW_BYTE) & 127

else:

    def _opaque_bits(cells, p):
        return sum((int(cells[p + k]) >> 7) << k for k in range(VIEW_SIZE))


@njit
def visible_window(s):
    """Returns the 49 bits of the view, set for visible cells."""
    heading = int(s.agent_dir)
    p = int(s.agent) + WINDOW_CORNER[heading]
    first = FIRST_ROW_BIT[heading]
    step = ROW_BIT_STEP[heading]
    opaque = 0
    for row in range(VIEW_SIZE):
        opaque |= int(ROTATED[heading, _opaque_bits(s.cells, p + row * STRIDE)]) << (first + row * step)
    window = 0
    # The agent is in the middle of the first row.
    visible = 1 << 3
    for row in range(VIEW_SIZE):
        spread = int(VISIBILITY[visible << 7 | ((opaque >> (7 * row)) & 127)])
        window |= (visible | spread) << (7 * row)
        visible = spread
    return window


@njit
def write_view(s, views, offset):
    """Writes the symbolic view, (7, 7, 3) uint8, into the flat buffer `views`, starting at `offset`.

    Tiles are written in order, four bytes at a time; the next tile overwrites the fourth byte. The last tile is written
    as three bytes, so that no other world's view is touched.
    """
    heading = int(s.agent_dir)
    ahead = STEPS[heading]
    right = STEPS[(heading + 1) & 3]
    window = visible_window(s)
    corner = int(s.agent) + 6 * ahead - 3 * right
    tile = 0
    for vx in range(VIEW_SIZE):
        for vy in range(VIEW_SIZE):
            visible = (window >> (7 * (6 - vy) + vx)) & 1
            tile = PACKED_TRIPLES[load_byte(s.cells, corner + vx * right - vy * ahead) & -visible]
            k = vx * VIEW_SIZE + vy
            if k < LAST_TILE:
                store_four(views, offset + 3 * k, tile)
    _write_tile(views, offset + 3 * LAST_TILE, tile)
    _write_agent_tile(s, views, offset + 3 * AGENT_TILE)


@njit
def _write_tile(views, offset, tile):
    for channel in range(3):
        views[offset + channel] = (int(tile) >> (8 * channel)) & 255


@njit
def _write_agent_tile(s, views, offset):
    """Writes the agent's tile: the object it carries, or an empty cell."""
    _write_tile(views, offset, int(PACKED_TRIPLES[int(s.carrying)]) if s.carrying else EMPTY)


@njit
def write_view_of_size(s, size, views, offset):
    """Like `write_view` for any odd size, with bounds checks and row sweeps instead of lookup tables."""
    heading = int(s.agent_dir)
    half = size // 2
    dx = VECTOR_X[heading]
    dy = VECTOR_Y[heading]
    agent_y, agent_x = divmod(int(s.agent) - ORIGIN, STRIDE)
    visible = 1 << half
    for step in range(size):
        opaque = 0
        for vx in range(size):
            x = agent_x + dx * step - dy * (vx - half)
            y = agent_y + dy * step + dx * (vx - half)
            inside = 0 <= x < s.width and 0 <= y < s.height
            cell = int(s.cells[ORIGIN + y * STRIDE + x]) if inside else WALL_CELL
            opaque |= (cell >> 7) << vx
        previous = -1
        while previous != visible:
            previous = visible
            lit = visible & ~opaque
            visible = (visible | lit << 1 | lit >> 1) & ((1 << size) - 1)
        for vx in range(size):
            x = agent_x + dx * step - dy * (vx - half)
            y = agent_y + dy * step + dx * (vx - half)
            tile = 0
            if (visible >> vx) & 1:
                inside = 0 <= x < s.width and 0 <= y < s.height
                tile = int(PACKED_TRIPLES[int(s.cells[ORIGIN + y * STRIDE + x]) if inside else WALL_CELL])
            _write_tile(views, offset + 3 * (vx * size + size - 1 - step), tile)
        lit = visible & ~opaque
        visible = (lit | lit << 1 | lit >> 1) & ((1 << size) - 1)
    _write_agent_tile(s, views, offset + 3 * (half * size + size - 1))
