"""Text rendering: the grid as characters for a terminal, and the agent's view as English sentences."""

import numpy as np

from babyai.levels.layout import cell_text, grid_cells
from babyai.world.codes import (
    BALL,
    BOX,
    COLOR_SHIFT,
    COLORS,
    DOOR,
    DOOR_CLOSED,
    DOOR_LOCKED,
    DOOR_OPEN,
    EMPTY,
    KEY,
    KIND_MASK,
    UNSEEN,
    WALL,
)
from babyai.world.state import position_of

# ANSI styles of objects, by color number.
ANSI_COLORS = ("1;31", "1;32", "1;34", "1;35", "1;33", "1;37")
ANSI_WALL = "90;100"  # gray on gray: a filled block
ANSI_EMPTY = "2"  # faint
ANSI_AGENT = "7"  # reverse video

KIND_NAMES = {DOOR: "door", KEY: "key", BALL: "ball", BOX: "box"}
DOOR_STATES = {DOOR_OPEN: "an open", DOOR_CLOSED: "a closed", DOOR_LOCKED: "a locked"}


def draw_text(world: np.record, color: bool = False) -> str:
    """The whole grid as text: one line per row, two characters per cell, in the notation of `babyai.levels.layout`.

    Without color, `parse_layout` can read the text back. Carried objects and objects in boxes are not shown.

    Args:
        world: World record.
        color: Whether to add ANSI color codes.
    """
    x, y = position_of(world.agent)
    rows = [[_style(cell, cell_text(cell), color) for cell in row] for row in grid_cells(world).tolist()]
    here = int(grid_cells(world)[y, x])
    rows[y][x] = _style(here, cell_text(here, world.agent_dir), color, ANSI_AGENT)
    return "\n".join("".join(row) for row in rows)


def _style(cell: int, text: str, color: bool, style: str | None = None) -> str:
    """The text in a cell's ANSI style if `color` is true, else the text itself."""
    if not color:
        return text
    kind = cell & KIND_MASK
    if style is None:
        style = {WALL: ANSI_WALL, EMPTY: ANSI_EMPTY}.get(kind, ANSI_COLORS[cell >> COLOR_SHIFT & 7])
    return f"\x1b[{style}m{text}\x1b[0m"


def describe_view(image: np.ndarray) -> list[str]:
    """English sentences that describe the agent's view: one per object, nearest first, and the carried object last.

    All visible objects and doors are described, but only the first wall straight ahead, to the left and to the right.

    Args:
        image: (n, n, 3) uint8, the symbolic view, indexed [vx][vy].
    """
    middle = image.shape[0] // 2
    bottom = image.shape[1] - 1
    visible = [(bottom - vy, vx - middle) for vx, vy in np.argwhere(image[:, :, 0] > WALL).tolist()]
    places = [(ahead, right) for ahead, right in visible if (ahead, right) != (0, 0)] + _nearest_walls(image)
    places.sort(key=lambda place: (place[0] + abs(place[1]), -place[0], place[1]))
    sentences = [
        f"You see {name_object(image[middle + right, bottom - ahead])} {_direction(ahead, right)}"
        for ahead, right in places
    ]
    carried = image[middle, bottom]
    if carried[0] > WALL:
        sentences.append(f"You carry {name_object(carried)}")
    return sentences


def _nearest_walls(image: np.ndarray) -> list[tuple[int, int]]:
    """The (ahead, right) of the first wall ahead, to the left and to the right, if visible."""
    middle = image.shape[0] // 2
    bottom = image.shape[1] - 1
    rays = (
        [(distance, 0) for distance in range(1, bottom + 1)],
        [(0, -distance) for distance in range(1, middle + 1)],
        [(0, distance) for distance in range(1, middle + 1)],
    )
    walls = []
    for ray in rays:
        for ahead, right in ray:
            kind = image[middle + right, bottom - ahead, 0]
            if kind == WALL:
                walls.append((ahead, right))
            if kind in (WALL, UNSEEN):
                break
    return walls


def name_object(triple: np.ndarray) -> str:
    """The name of a (type, color, state) triple with its article: "a red ball", "an open green door"."""
    kind, color, state = triple.tolist()
    if kind == WALL:
        return "a wall"
    article = DOOR_STATES[state] if kind == DOOR else "a"
    return f"{article} {COLORS[color]} {KIND_NAMES[kind]}"


def _direction(ahead: int, right: int) -> str:
    parts = [_steps(ahead, "forward")] if ahead else []
    if right:
        parts.append(_steps(abs(right), "right" if right > 0 else "left"))
    return " and ".join(parts)


def _steps(count: int, direction: str) -> str:
    return f"{count} step{'s' if count > 1 else ''} {direction}"
