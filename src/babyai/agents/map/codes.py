"""Integer codes of the map: contents of cells, places, and classes of things.

Coordinates are relative to where the episode started: `ahead` and `right` of the start, with the agent facing ahead.
Headings count quarter turns to the right, so heading 0 is the start's. `FORWARD_VECTORS[h]` is one step at heading h.
"""

import numpy as np

from babyai.world.codes import BOX, COLORS, DOOR, DOOR_OPEN, EMPTY, KEY, UNSEEN

# Cells are stored at their coordinates modulo MAP_SIZE. No world is larger, so no two cells fall on the same place.
MAP_SIZE = 24
FORWARD_VECTORS = ((1, 0), (0, 1), (-1, 0), (0, -1))

# Contents. Doors have a color and a state, things (keys, balls, boxes) a kind and a color.
UNKNOWN, FREE, BLOCKED = range(3)
FIRST_DOOR = 3
FIRST_THING = FIRST_DOOR + 3 * len(COLORS)
FIRST_BOX = FIRST_THING + (BOX - KEY) * len(COLORS)
NUM_CONTENTS = FIRST_THING + 3 * len(COLORS)
# Minigrid's type of a floor tile, which no level of BabyAI has.
FLOOR = 3
NUM_TYPES = 11
NUM_STATES = 3


def content_of(kind: int, color: int, state: int) -> int:
    """The content of a tile of the view, given as Minigrid's (type, color, state)."""
    if kind == UNSEEN:
        return UNKNOWN
    if kind == DOOR:
        return FIRST_DOOR + color * 3 + state
    if KEY <= kind <= BOX:
        return FIRST_THING + (kind - KEY) * len(COLORS) + color
    return FREE if kind in (EMPTY, FLOOR) else BLOCKED


# By type, color and state.
CONTENTS = np.array(
    [
        [[content_of(kind, color, state) for state in range(NUM_STATES)] for color in range(len(COLORS))]
        for kind in range(NUM_TYPES)
    ],
    dtype=np.uint8,
)
IS_OPEN_DOOR = np.array(
    [FIRST_DOOR <= c < FIRST_THING and (c - FIRST_DOOR) % 3 == DOOR_OPEN for c in range(NUM_CONTENTS)]
)

# Places: where a thing was at the start of the episode. Instructions name four of them ("on your left"), and mean the
# room in which the agent starts. OUTSIDE is any other room; the others are 1 + 3 * (behind, level, ahead) + (left,
# level, right).
OUTSIDE = 0
NUM_PLACES = 10
# The place of a cell's content, as stored: that of the cell itself, 1 + the place it came from, or of no place at all
# because it came out of a box, so that no instruction refers to it.
NATIVE = 0
FOREIGN = 1 + NUM_PLACES
# A class is what instructions can tell apart: content and place, with doors of all states alike. 0 is no class.
NUM_CLASSES = NUM_CONTENTS * NUM_PLACES

# Kinds of events.
FACED, PICKED_UP, OPENED, DROPPED = range(1, 5)
NUM_EVENT_KINDS = 5
