"""Worlds in words: a terminal picture of the grid, and sentences that say what the agent sees."""

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

# Terminal colors by color number; walls are filled blocks, empty cells faint, the agent in reverse.
ANSI_COLORS = ("1;31", "1;32", "1;34", "1;35", "1;33", "1;37")
ANSI_WALL, ANSI_EMPTY, ANSI_AGENT = "90;100", "2", "7"

KIND_NAMES = {DOOR: "door", KEY: "key", BALL: "ball", BOX: "box"}
DOOR_STATES = {DOOR_OPEN: "an open", DOOR_CLOSED: "a closed", DOOR_LOCKED: "a locked"}


def draw_text(world: np.record, color: bool = False) -> str:
    """The whole grid as text, one line a row and two characters a cell, in the notation of `levels.layout`.

    Without color the text is a layout that `parse_layout` reads back; what is carried or lies in a box is not shown.

    Args:
        world: one world record.
        color: whether to add the color codes of terminals.
    """
    x, y = position_of(world.agent)
    rows = [[_paint(cell, cell_text(cell), color) for cell in row] for row in grid_cells(world).tolist()]
    here = int(grid_cells(world)[y, x])
    rows[y][x] = _paint(here, cell_text(here, world.agent_dir), color, ANSI_AGENT)
    return "\n".join("".join(row) for row in rows)


def _paint(cell: int, text: str, color: bool, style: str | None = None) -> str:
    if not color:
        return text
    kind = cell & KIND_MASK
    if style is None:
        style = {WALL: ANSI_WALL, EMPTY: ANSI_EMPTY}.get(kind, ANSI_COLORS[cell >> COLOR_SHIFT & 7])
    return f"\x1b[{style}m{text}\x1b[0m"


def describe_view(image: np.ndarray) -> list[str]:
    """What the agent sees, one sentence a thing, the nearest first, and what it carries last.

    Objects and doors are all named; of the walls only those met by looking straight ahead, left and right.

    Args:
        image: (n, n, 3) uint8, the symbolic view, indexed [vx][vy].
    """
    middle, bottom = image.shape[0] // 2, image.shape[1] - 1
    seen = [(bottom - vy, vx - middle) for vx, vy in np.argwhere(image[:, :, 0] > WALL).tolist()]
    things = [(ahead, right) for ahead, right in seen if (ahead, right) != (0, 0)] + _walls_in_line(image)
    things.sort(key=lambda place: (place[0] + abs(place[1]), -place[0], place[1]))
    sentences = [
        f"You see {_name(image[middle + right, bottom - ahead])} {_direction(ahead, right)}" for ahead, right in things
    ]
    carried = image[middle, bottom]
    if carried[0] > WALL:
        sentences.append(f"You carry {_name(carried)}")
    return sentences


def _walls_in_line(image: np.ndarray) -> list[tuple[int, int]]:
    """The (ahead, right) of the first wall ahead, to the left and to the right, where each is in sight."""
    middle, bottom = image.shape[0] // 2, image.shape[1] - 1
    lines = (
        [(distance, 0) for distance in range(1, bottom + 1)],
        [(0, -distance) for distance in range(1, middle + 1)],
        [(0, distance) for distance in range(1, middle + 1)],
    )
    walls = []
    for line in lines:
        for ahead, right in line:
            kind = image[middle + right, bottom - ahead, 0]
            if kind == WALL:
                walls.append((ahead, right))
            if kind in (WALL, UNSEEN):
                break
    return walls


def _name(triple: np.ndarray) -> str:
    """An object with its article: "a red ball", "an open green door"."""
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


def _steps(count: int, way: str) -> str:
    return f"{count} step{'s' if count > 1 else ''} {way}"
