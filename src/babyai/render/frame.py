"""Whole worlds: the picture of one grid, and the grid as the numbers Minigrid would give for it."""

import numpy as np

from babyai.levels.layout import grid_cells
from babyai.render.tiles import draw_tile
from babyai.world.codes import AGENT_TYPE, RED, TRIPLES, UNSEEN, VECTORS
from babyai.world.state import position_of

# Added to a cell byte to tell lit tiles from unlit ones of the same cell.
LIT = 256


def draw_world(world: np.record, tile_size: int = 32, view: np.ndarray | None = None) -> np.ndarray:
    """The picture of the whole grid, the agent drawn over whatever it stands on.

    Args:
        world: one world record.
        tile_size: pixels a side of one cell.
        view: (n, n, 3) uint8, the agent's present symbolic view; the cells it shows are highlighted. None highlights
            nothing.

    Returns:
        (H * tile_size, W * tile_size, 3) uint8.
    """
    cells = grid_cells(world)
    height, width = cells.shape
    lit = np.zeros(cells.shape, dtype=bool) if view is None else seen_cells(world, view)
    # Few tiles differ, so each is drawn once and then laid wherever it belongs.
    codes, places = np.unique(cells + lit * np.int16(LIT), return_inverse=True)
    tiles = np.stack([draw_tile(int(code) % LIT, tile_size, None, bool(code >= LIT)) for code in codes])
    frame = tiles[places.reshape(height, width)]  # (H, W, t, t, 3)
    x, y = position_of(world.agent)
    frame[y, x] = draw_tile(int(cells[y, x]), tile_size, int(world.agent_dir), bool(lit[y, x]))
    return frame.swapaxes(1, 2).reshape(height * tile_size, width * tile_size, 3)


def seen_cells(world: np.record, view: np.ndarray) -> np.ndarray:
    """Which cells of the grid the agent's symbolic view shows, (H, W) bool."""
    size = len(view)
    vx, vy = np.nonzero(view[:, :, 0] != UNSEEN)
    ahead, right = size - 1 - vy, vx - size // 2
    (dx, dy), (x, y) = VECTORS[world.agent_dir], position_of(world.agent)
    columns, rows = x + dx * ahead - dy * right, y + dy * ahead + dx * right
    inside = (columns >= 0) & (columns < world.width) & (rows >= 0) & (rows < world.height)
    seen = np.zeros((world.height, world.width), dtype=bool)
    seen[rows[inside], columns[inside]] = True
    return seen


def encode_grid(world: np.record) -> np.ndarray:
    """The grid without the agent, (W, H, 3) uint8 of (type, color, state), indexed [x][y]."""
    return np.ascontiguousarray(TRIPLES[grid_cells(world).T])


def full_view(world: np.record) -> np.ndarray:
    """The grid with the agent's cell as (10, 0, heading), (W, H, 3) uint8, indexed [x][y]."""
    image = encode_grid(world)
    image[position_of(world.agent)] = AGENT_TYPE, RED, world.agent_dir
    return image
