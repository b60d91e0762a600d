"""A picture of a map agent's memory: what it believes the world looks like."""

import numpy as np

from babyai.agents.map import codes
from babyai.agents.map.memory import Memory
from babyai.render.tiles import draw_tile
from babyai.world.codes import (
    COLORS,
    DOOR,
    DOOR_LOCKED,
    DOOR_OPEN,
    EMPTY,
    KEY,
    LOCKED_DOOR,
    OPAQUE,
    UNSEEN,
    WALL_CELL,
    cell_of,
)

UNKNOWN_SHADE = 40
# What `draw_tile` calls facing up.
UP = 3


def cell_of_content(content: int) -> int:
    """The cell byte that looks like a content."""
    if content < codes.FIRST_DOOR:
        return WALL_CELL if content == codes.BLOCKED else EMPTY
    if content < codes.FIRST_THING:
        color, state = divmod(content - codes.FIRST_DOOR, 3)
        cell = cell_of(LOCKED_DOOR if state == DOOR_LOCKED else DOOR, color)
        return cell & ~OPAQUE if state == DOOR_OPEN else cell
    kind, color = divmod(content - codes.FIRST_THING, len(COLORS))
    return cell_of(KEY + kind, color)


def map_cells(memory: Memory, lane: int = 0) -> tuple[np.ndarray, tuple[int, int, int]]:
    """What has been seen, in the frame of the start, which faced up.

    Args:
        memory: The state of a `MapPolicy`.
        lane: Which episode.

    Returns:
        (H, W) uint8 cell bytes, UNSEEN where nothing is known; and the agent's column, row and direction.
    """
    ahead, right, behind, left = memory.extent[lane].tolist()
    rows = np.arange(ahead, -behind - 1, -1)
    columns = np.arange(-left, right + 1)
    shown = memory.contents[lane].cpu().numpy()[np.ix_(rows % codes.MAP_SIZE, columns % codes.MAP_SIZE)]
    cells = np.array([cell_of_content(content) for content in range(int(shown.max()) + 1)], dtype=np.uint8)[shown]
    cells[shown == codes.UNKNOWN] = UNSEEN
    row, column = memory.position[lane].tolist()
    return cells, (column + left, ahead - row, (UP + int(memory.heading[lane])) % 4)


def draw_map(memory: Memory, lane: int = 0, tile_size: int = 32) -> np.ndarray:
    """An RGB image of one map: what has been seen, in the frame of the start, which faced up; unknown cells are dark.

    Args:
        memory: The state of a `MapPolicy`.
        lane: Which episode.
        tile_size: Side length of a cell, in pixels.

    Returns:
        (H * tile_size, W * tile_size, 3) uint8.
    """
    cells, (x, y, heading) = map_cells(memory, lane)
    tiles = {int(cell): draw_tile(int(cell), tile_size) for cell in np.unique(cells) if cell != UNSEEN}
    tiles[UNSEEN] = np.full((tile_size, tile_size, 3), UNKNOWN_SHADE, dtype=np.uint8)
    frame = np.stack([np.stack([tiles[int(cell)] for cell in row]) for row in cells])
    frame[y, x] = draw_tile(max(EMPTY, int(cells[y, x])), tile_size, heading)
    height, width = cells.shape
    return frame.swapaxes(1, 2).reshape(height * tile_size, width * tile_size, 3)
