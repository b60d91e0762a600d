"""A picture of a map agent's memory: what it believes the world looks like."""

import numpy as np

from babyai.agents.map import codes
from babyai.agents.map.memory import Memory
from babyai.render.tiles import draw_tile
from babyai.world.codes import COLORS, DOOR, DOOR_LOCKED, DOOR_OPEN, EMPTY, KEY, LOCKED_DOOR, OPAQUE, WALL_CELL, cell_of

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


def draw_map(memory: Memory, lane: int = 0, tile_size: int = 32) -> np.ndarray:
    """An RGB image of one map: what has been seen, in the frame of the start, which faced up; unknown cells are dark.

    Args:
        memory: The state of a `MapPolicy`.
        lane: Which episode.
        tile_size: Side length of a cell, in pixels.

    Returns:
        (H * tile_size, W * tile_size, 3) uint8.
    """
    ahead, right, behind, left = memory.extent[lane].tolist()
    contents = memory.contents[lane].cpu().numpy()
    rows = np.arange(ahead, -behind - 1, -1)
    columns = np.arange(-left, right + 1)
    shown = contents[np.ix_(rows % codes.MAP_SIZE, columns % codes.MAP_SIZE)]
    tiles = {int(content): draw_tile(cell_of_content(int(content)), tile_size) for content in np.unique(shown)}
    tiles[codes.UNKNOWN] = np.full((tile_size, tile_size, 3), UNKNOWN_SHADE, dtype=np.uint8)
    frame = np.stack([np.stack([tiles[int(content)] for content in row]) for row in shown])
    row, column = memory.position[lane].tolist()
    here = cell_of_content(int(contents[row % codes.MAP_SIZE, column % codes.MAP_SIZE]))
    frame[ahead - row, column + left] = draw_tile(here, tile_size, (UP + int(memory.heading[lane])) % 4)
    return frame.swapaxes(1, 2).reshape(len(rows) * tile_size, len(columns) * tile_size, 3)
