"""The world record. An array of N records is a batch; `worlds[a] = worlds[b]` copies a world.

All grids share one fixed stride, so the same kernels work for every level. Cells are addressed by a flat index `p`;
`index_of(x, y)` and `position_of(p)` convert. A margin of wall surrounds the grid, so the 7x7 view can read cells
without bounds checks: the outer wall hides everything beyond it.
"""

import numpy as np

STRIDE = 24
MAX_SIZE = STRIDE
MIN_SIZE = 3
ORIGIN = 5 * STRIDE + 2
NUM_CELLS = STRIDE * MAX_SIZE + 2 * ORIGIN

MAX_CLAUSES = 4
MAX_DESCRIPTORS = 2 * MAX_CLAUSES

# Values of a world's `status`.
NOT_RESET, RUNNING, ENDED = range(3)
# Bits of a world's `options`.
LENIENT = 1
DONE_ACTIONS = 2

WORLD = np.dtype(
    [
        # The random number generator: NumPy's PCG64 and its buffered 32-bit half.
        ("rng_high", np.uint64),
        ("rng_low", np.uint64),
        ("rng_inc_high", np.uint64),
        ("rng_inc_low", np.uint64),
        ("seed", np.int64),
        ("rng_spare", np.uint32),
        ("step_count", np.int32),
        ("max_steps", np.int32),
        ("level", np.int16),
        ("rng_has_spare", np.uint8),
        ("status", np.uint8),
        ("options", np.uint8),
        # The agent.
        ("agent_dir", np.uint8),
        ("agent", np.int16),
        ("carrying", np.uint8),
        ("carried_tracks", np.uint8),
        # The grid.
        ("width", np.uint8),
        ("height", np.uint8),
        ("room_width", np.uint8),
        ("room_height", np.uint8),
        ("hidden", np.uint8),
        # The judge's progress: whether tracks are out of date, and one bit per clause.
        ("stale", np.uint8),
        ("first_side_done", np.uint8),
        ("clauses_done", np.uint8),
        ("clauses_checked", np.uint8),
        ("clauses_matched", np.uint8),
        # The mission: clauses 0 and 1 are the first side, 2 and 3 the second; clause k has descriptors 2k and 2k+1.
        ("order", np.uint8),
        ("strict", np.uint8),
        ("definite", np.uint8),
        ("verbs", np.uint8, MAX_CLAUSES),
        ("nouns", np.uint8, MAX_DESCRIPTORS),
        ("colors", np.uint8, MAX_DESCRIPTORS),
        ("places", np.uint8, MAX_DESCRIPTORS),
        # Bit k of tracks[p - ORIGIN] is set where descriptor k last saw one of its objects.
        ("tracks", np.uint8, STRIDE * MAX_SIZE),
        ("cells", np.uint8, NUM_CELLS),
        # Explicit padding to whole words, so that copies of a world are equal in every byte.
        ("unused", np.uint8, 5),
    ],
    align=True,
)


def make_worlds(count: int) -> np.recarray:
    """Returns `count` blank worlds, none of them reset yet."""
    return np.zeros(count, dtype=WORLD).view(np.recarray)


def index_of(x: int, y: int) -> int:
    """Returns the flat index of the cell at (x, y)."""
    return ORIGIN + y * STRIDE + x


def position_of(p: int) -> tuple[int, int]:
    """Returns the (x, y) position of a flat index."""
    y, x = divmod(int(p) - ORIGIN, STRIDE)
    return x, y
