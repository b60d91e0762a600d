"""The draft: scratch data used only while a level is generated. One draft serves a whole shard of worlds."""

import numpy as np

from babyai.world.state import MAX_SIZE

MAX_THINGS = 576
# Sets of rooms are stored as bits of one int64.
MAX_ROOMS = 60

DRAFT = np.dtype(
    [
        ("room_size", np.int64),
        ("rows", np.int64),
        ("columns", np.int64),
        # Flat indices of the objects and doors placed so far, in the order of placement.
        ("count", np.int64),
        ("things", np.int16, MAX_THINGS),
        # Room number: row * columns + column. Sides: right 0, down 1, left 2, up 3. A slot is the position of a
        # possible door on that side (0: no neighbor); `linked` is set if there is a door or the wall was removed.
        ("slots", np.int16, (MAX_ROOMS, 4)),
        ("linked", np.uint8, (MAX_ROOMS, 4)),
        ("locked", np.uint8, MAX_ROOMS),
        # The room locked by the recipe `random_level`, or -1.
        ("locked_room", np.int64),
        # Bits per row: walkable cells, doors included, and the cells reached by a flood fill.
        ("walkable", np.uint32, MAX_SIZE),
        ("flood", np.uint32, MAX_SIZE),
    ],
    align=True,
)

# The settings of a level, as read by kernels.
LEVEL = np.dtype(
    [
        ("recipe", np.int64),
        ("minigrid", np.int64),
        ("room_size", np.int64),
        ("rows", np.int64),
        ("columns", np.int64),
        ("objects", np.int64),
        ("max_steps", np.int64),
        ("variant", np.int64),
        ("strict", np.int64),
        ("carrying", np.int64),
        ("colors", np.int64, 2),
        ("locked_room", np.float64),
        ("locations", np.int64),
        ("unblocking", np.int64),
        ("implicit_unlock", np.int64),
        ("verbs", np.int64),
        ("joins", np.int64),
    ],
    align=True,
)


def make_draft() -> np.recarray:
    """Returns an array of one draft."""
    return np.zeros(1, dtype=DRAFT).view(np.recarray)
