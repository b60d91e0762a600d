"""What the agent sees: the square of tiles before it, with Minigrid's rule of sight.

View cell (vx, vy) lies `6 - vy` steps ahead and `vx - 3` steps to the right. Sight spreads from the agent row by row;
within a row a transparent visible cell shows its two neighbors and the three cells ahead of it. A row is 7 bits, and
what it shows depends on nothing but those bits and the row's opaque cells, so a table of 128 x 128 answers it.
"""

import numpy as np

from babyai._jit import COMPILED, load_byte, load_eight, njit, store_four
from babyai.world.codes import EMPTY, PACKED_TRIPLES, VECTORS, WALL_CELL
from babyai.world.state import ORIGIN, STRIDE

VIEW_SIZE = 7
AGENT_TILE = 3 * VIEW_SIZE + 6
LAST_TILE = VIEW_SIZE * VIEW_SIZE - 1

# How far one step goes in the flat grid, by heading: right, down, left, up.
STEPS = np.array([1, STRIDE, -1, -STRIDE], dtype=np.int64)

VECTOR_X, VECTOR_Y = np.array(VECTORS, dtype=np.int64).T.copy()

TOP_BITS = np.uint64(0x8080808080808080)
# Multiplying by this gathers the top bits of eight bytes into the uppermost byte.
GATHER = np.uint64(0x0002040810204081)
TO_LOW_BYTE = np.uint64(56)


def _sight_table() -> np.ndarray:
    """table[seen << 7 | opaque]: what a row of which `seen` was shown by the row before shows of its neighbors.

    Light spreads along the row through transparent cells; every cell it reaches shows the cells beside it and the
    three ahead of it. So the row itself is seen where it was shown or lies beside light, and the next row is shown
    where it lies ahead of light: both are the lit cells grown by one.
    """
    index = np.arange(1 << 14)
    opaque = index & 127
    lit = index >> 7 & ~opaque
    for _ in range(VIEW_SIZE):
        lit |= (lit << 1 | lit >> 1) & ~opaque & 127
    return ((lit | lit << 1 | lit >> 1) & 127).astype(np.uint8)


SIGHT = _sight_table()


def _turning_table() -> np.ndarray:
    """table[heading, bits]: seven neighboring cells of one world row, laid out as rows and columns of the view.

    Facing up or down they are one row of the view, facing right or left one column, that is a bit of each row.
    """
    lay = (
        lambda k: 7 * k,
        lambda k: 6 - k,
        lambda k: 7 * (6 - k),
        lambda k: k,
    )
    return np.array([[sum((bits >> k & 1) << to(k) for k in range(7)) for bits in range(128)] for to in lay])


# The view as 49 bits has bit 7 * steps ahead + vx. World row j of the seven that the view covers lies at
# bit LAID_FIRST + j * LAID_STEP; the first of these rows begins WINDOW_CORNER cells from the agent.
TURNED = _turning_table()
LAID_FIRST = np.array([0, 0, 6, 42], dtype=np.int64)
LAID_STEP = np.array([1, 7, -1, -7], dtype=np.int64)
WINDOW_CORNER = np.array([-3 * STRIDE, -3, -3 * STRIDE - 6, -6 * STRIDE - 3], dtype=np.int64)


if COMPILED:

    @njit
    def _opaque_bits(cells, p):
        """The seven cells from `p` on as bits: 1 where sight stops."""
        return np.int64(((load_eight(cells, p) & TOP_BITS) * GATHER) >> TO_LOW_BYTE) & 127

else:

    def _opaque_bits(cells, p):
        return sum((int(cells[p + k]) >> 7) << k for k in range(VIEW_SIZE))


@njit
def visible_window(s):
    """The 49 bits of the view, set where the agent sees the cell."""
    heading = int(s.agent_dir)
    p = int(s.agent) + WINDOW_CORNER[heading]
    first, step = LAID_FIRST[heading], LAID_STEP[heading]
    opaque = 0
    for row in range(VIEW_SIZE):
        opaque |= int(TURNED[heading, _opaque_bits(s.cells, p + row * STRIDE)]) << (first + row * step)
    window, seen = 0, 8
    for row in range(VIEW_SIZE):
        shown = int(SIGHT[seen << 7 | ((opaque >> (7 * row)) & 127)])
        window |= (seen | shown) << (7 * row)
        seen = shown
    return window


@njit
def write_view(s, views, offset):
    """Writes the (7, 7, 3) symbolic view of a world into the flat buffer `views`, from `offset` on.

    Tiles go out in order, as four bytes of which the next tile overwrites the last. The last tile is kept to its
    three, so that no other world's view is touched.
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
    _write_own_tile(s, views, offset + 3 * AGENT_TILE)


@njit
def _write_tile(views, offset, tile):
    for channel in range(3):
        views[offset + channel] = (int(tile) >> (8 * channel)) & 255


@njit
def _write_own_tile(s, views, offset):
    """Shows, where the agent stands, what it carries."""
    _write_tile(views, offset, int(PACKED_TRIPLES[int(s.carrying)]) if s.carrying else EMPTY)


@njit
def write_view_of_size(s, size, views, offset):
    """Like `write_view` for any odd size: asks of every cell whether it exists, and sweeps instead of looking up."""
    heading = int(s.agent_dir)
    half = size // 2
    dx, dy = VECTOR_X[heading], VECTOR_Y[heading]
    agent_y, agent_x = divmod(int(s.agent) - ORIGIN, STRIDE)
    seen = 1 << half
    for step in range(size):
        opaque = 0
        for vx in range(size):
            x, y = agent_x + dx * step - dy * (vx - half), agent_y + dy * step + dx * (vx - half)
            inside = 0 <= x < s.width and 0 <= y < s.height
            cell = int(s.cells[ORIGIN + y * STRIDE + x]) if inside else WALL_CELL
            opaque |= (cell >> 7) << vx
        lit = -1
        while lit != seen:
            lit = seen
            shining = seen & ~opaque
            seen = (seen | shining << 1 | shining >> 1) & ((1 << size) - 1)
        for vx in range(size):
            x, y = agent_x + dx * step - dy * (vx - half), agent_y + dy * step + dx * (vx - half)
            tile = 0
            if (seen >> vx) & 1:
                inside = 0 <= x < s.width and 0 <= y < s.height
                tile = int(PACKED_TRIPLES[int(s.cells[ORIGIN + y * STRIDE + x]) if inside else WALL_CELL])
            _write_tile(views, offset + 3 * (vx * size + size - 1 - step), tile)
        shining = seen & ~opaque
        seen = (shining | shining << 1 | shining >> 1) & ((1 << size) - 1)
    _write_own_tile(s, views, offset + 3 * (half * size + size - 1))
