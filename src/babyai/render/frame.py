"""Whole worlds: an image of the grid, and the grid in Minigrid's symbolic encoding."""

import numpy as np

from babyai.levels.layout import grid_cells
from babyai.render.tiles import draw_tile
from babyai.world.codes import AGENT_TYPE, RED, TRIPLES, UNSEEN, VECTORS
from babyai.world.state import position_of

# Added to a cell byte if the cell is highlighted.
HIGHLIGHTED = 256


def draw_world(world: np.record, tile_size: int = 32, view: np.ndarray | None = None) -> np.ndarray:
    """An RGB image of the whole grid, including the agent.

    Args:
        world: World record.
        tile_size: Side length of a cell, in pixels.
        view: (n, n, 3) uint8, the agent's current symbolic view; cells visible in it are highlighted (default: no
            highlighting).

    Returns:
        (H * tile_size, W * tile_size, 3) uint8.
    """
    cells = grid_cells(world)
    height, width = cells.shape
    visible = np.zeros(cells.shape, dtype=bool) if view is None else visible_cells(world, view)
    # There are few different tiles, so each is drawn once and then copied to all of its cells.
    codes, places = np.unique(cells + visible * np.int16(HIGHLIGHTED), return_inverse=True)
    tiles = np.stack([draw_tile(int(code) % HIGHLIGHTED, tile_size, None, bool(code >= HIGHLIGHTED)) for code in codes])
    frame = tiles[places.reshape(height, width)]  # (H, W, t, t, 3)
    x, y = position_of(world.agent)
    frame[y, x] = draw_tile(int(cells[y, x]), tile_size, int(world.agent_dir), bool(visible[y, x]))
    return frame.swapaxes(1, 2).reshape(height * tile_size, width * tile_size, 3)


def visible_cells(world: np.record, view: np.ndarray) -> np.ndarray:
    """The cells of the grid that are visible in the agent's symbolic view, (H, W) bool."""
    size = len(view)
    vx, vy = np.nonzero(view[:, :, 0] != UNSEEN)
    ahead = size - 1 - vy
    right = vx - size // 2
    x, y = position_of(world.agent)
    dx, dy = VECTORS[world.agent_dir]
    columns = x + dx * ahead - dy * right
    rows = y + dy * ahead + dx * right
    inside = (columns >= 0) & (columns < world.width) & (rows >= 0) & (rows < world.height)
    visible = np.zeros((world.height, world.width), dtype=bool)
    visible[rows[inside], columns[inside]] = True
    return visible


def encode_grid(world: np.record) -> np.ndarray:
    """The grid without the agent as (type, color, state) triples: (W, H, 3) uint8, indexed [x][y]."""
    return np.ascontiguousarray(TRIPLES[grid_cells(world).T])


def full_view(world: np.record) -> np.ndarray:
    """The grid with the agent's cell encoded as (10, 0, heading): (W, H, 3) uint8, indexed [x][y]."""
    image = encode_grid(world)
    image[position_of(world.agent)] = AGENT_TYPE, RED, world.agent_dir
    return image
