"""Integer codes for kinds, colors, actions and missions, and the encoding of a cell as one byte.

A cell of the grid is one byte:

    bit 7      6 5 4      3        2 1 0
    opaque     color     marked   kind

*Opaque* is set for cells that block the view: walls, closed doors and locked doors. Opening a door clears that bit.
*Marked* on a box means that it contains something (see `hidden` in the world record); on anything else, it means that
the object came out of a box, so no instruction refers to it. This module does not import the compiler, so importing it
is cheap.
"""

from enum import IntEnum

import numpy as np

UNSEEN, EMPTY, WALL, LOCKED_DOOR, DOOR, KEY, BALL, BOX = range(8)
KIND_MASK = 7
MARKED = 8
COLOR_SHIFT = 4
OPAQUE = 128

COLORS = ("red", "green", "blue", "purple", "yellow", "grey")
RED, GREEN, BLUE, PURPLE, YELLOW, GREY = range(6)
# Levels draw colors from this alphabetical list, as Minigrid does, not in the order of the codes.
ALPHABETICAL_COLORS = (BLUE, GREEN, GREY, PURPLE, RED, YELLOW)
OBJECT_KINDS = (KEY, BALL, BOX)

WALL_CELL = WALL | GREY << COLOR_SHIFT | OPAQUE

# Minigrid's encoding, used in observations and by `grid.encode()`.
MINIGRID_TYPES = ("unseen", "empty", "wall", "floor", "door", "key", "ball", "box", "goal", "lava", "agent")
DOOR_OPEN, DOOR_CLOSED, DOOR_LOCKED = range(3)
AGENT_TYPE = 10

RIGHT_HEADING, DOWN_HEADING, LEFT_HEADING, UP_HEADING = range(4)
VECTORS = ((1, 0), (0, 1), (-1, 0), (0, -1))


class Action(IntEnum):
    """The actions of an agent, with Minigrid's numbering."""

    left = 0
    right = 1
    forward = 2
    pickup = 3
    drop = 4
    toggle = 5
    done = 6


LEFT, RIGHT, FORWARD, PICKUP, DROP, TOGGLE, DONE = (int(action) for action in Action)
NUM_ACTIONS = len(Action)


def cell_of(kind: int, color: int) -> int:
    """Returns the cell byte for this kind and color; a DOOR is closed."""
    opaque = OPAQUE if kind in (WALL, LOCKED_DOOR, DOOR) else 0
    return kind | color << COLOR_SHIFT | opaque


def triple_of(cell: int) -> tuple[int, int, int]:
    """Returns Minigrid's (type, color, state) for a cell."""
    kind = cell & KIND_MASK
    color = cell >> COLOR_SHIFT & 7
    if kind == LOCKED_DOOR:
        return DOOR, color, DOOR_LOCKED
    if kind == DOOR:
        return DOOR, color, DOOR_CLOSED if cell & OPAQUE else DOOR_OPEN
    if kind in (UNSEEN, EMPTY):
        return kind, 0, 0
    return kind, color, 0


# TRIPLES: (256, 3) uint8 decodes a cell byte; PACKED_TRIPLES holds the same three bytes in one integer.
TRIPLES = np.array([triple_of(cell) for cell in range(256)], dtype=np.uint8)
PACKED_TRIPLES = TRIPLES.astype(np.int32) @ np.array([1, 1 << 8, 1 << 16], dtype=np.int32)

# Missions: a clause is a verb with one or two descriptors; clauses are joined by `and`, `then` or `after you`.
NO_CLAUSE, GO_TO, PICK_UP, OPEN, PUT_NEXT = range(5)
SINGLE, BEFORE, AFTER = range(3)
ANYWHERE, ON_LEFT, ON_RIGHT, IN_FRONT, BEHIND = range(5)
ANY_NOUN = 0
ANY_COLOR = 6
NOUNS = {ANY_NOUN: "object", DOOR: "door", KEY: "key", BALL: "ball", BOX: "box"}

# All words of the Baby Language; a word's token id is its index in this tuple, and 0 is padding.
VOCABULARY = (
    *("", "go", "to", "pick", "up", "open", "put", "next", "the", "a", "and", "then", "after", "you"),
    *("in", "front", "of", "behind", "on", "your", "left", "right"),
    *("red", "green", "blue", "purple", "yellow", "grey", "box", "ball", "key", "door", "object"),
)
MAX_WORDS = 72
