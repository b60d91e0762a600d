"""A draft: what is known of a world only while its level is being built. One serves a whole shard of worlds."""

import numpy as np

from babyai.world.state import MAX_SIZE

MAX_THINGS = 576
# Sets of rooms are kept as bits of one integer.
MAX_ROOMS = 60

DRAFT = np.dtype(
    [
        ("room_size", np.int64),
        ("rows", np.int64),
        ("columns", np.int64),
        # Flat indices of the objects and doors placed so far, in that order.
        ("count", np.int64),
        ("things", np.int16, MAX_THINGS),
        # Rooms are numbered row * columns + column, sides right 0, down 1, left 2, up 3. A slot is where a door on
        # that side would be (0: no neighbor), `linked` tells that there is a door or no wall.
        ("slots", np.int16, (MAX_ROOMS, 4)),
        ("linked", np.uint8, (MAX_ROOMS, 4)),
        ("locked", np.uint8, MAX_ROOMS),
        # The room locked by the random generator of levels, or -1.
        ("locked_room", np.int64),
        # Which cells one can walk on, doors included, as bits of each row; and a flood over them.
        ("walkable", np.uint32, MAX_SIZE),
        ("flood", np.uint32, MAX_SIZE),
    ],
    align=True,
)

# What a level is to compiled code: its row of the catalog.
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
    """An array of one draft."""
    return np.zeros(1, dtype=DRAFT).view(np.recarray)
