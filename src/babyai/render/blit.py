"""RGB observations: batches of symbolic views become the pixels Minigrid's partial RGB wrapper shows.

The symbolic view says everything: tiles not seen are drawn empty, all others highlighted, and the agent, pointing up,
lies over what it carries. So a frame is a mosaic of ready-made tiles, and drawing one is copying.
"""

from functools import lru_cache

import numpy as np

from babyai._jit import entry, njit
from babyai.render.tiles import draw_tile
from babyai.world.codes import COLORS, EMPTY, TRIPLES, UNSEEN, UP_HEADING, WALL

# A tile's place in the table: three bits of type, three of color, two of state.
NUM_TILES = 256
# The size of the tiles agents see; a row of such a tile is three words of eight bytes.
SMALL = 8


@njit
def tile_index(triple):
    """Where the tile of a (type, color, state) stands in a tile table; never outside it, whatever is given."""
    return (int(triple[0]) & 7) << 5 | (int(triple[1]) & 7) << 2 | int(triple[2]) & 3


@njit
def copy_tiles(views, tiles, agent_tiles, frames, first, last):
    """Lays tiles of any size, (256, t, 3t) bytes, into frames of shape (N, n, t, n, 3t)."""
    size, side, length = views.shape[1], tiles.shape[1], tiles.shape[2]
    for i in range(first, last):
        for vy in range(size):
            for vx in range(size):
                at = tile_index(views[i, vx, vy])
                table = agent_tiles if vx == size // 2 and vy == size - 1 else tiles
                for row in range(side):
                    for k in range(length):
                        frames[i, vy, row, vx, k] = table[at, row, k]


@njit
def copy_small_tiles(views, tiles, agent_tiles, frames, first, last):
    """Lays tiles of 8 pixels, (256, 8, 3) words, into frames of shape (N, n, 8, n, 3): about memory's own speed.

    Agents see tiles of this size. With all its lengths known to the compiler, this is three times faster than
    `copy_tiles`.
    """
    size = views.shape[1]
    for i in range(first, last):
        for vy in range(size):
            for vx in range(size):
                at = tile_index(views[i, vx, vy])
                table = agent_tiles if vx == size // 2 and vy == size - 1 else tiles
                for row in range(SMALL):
                    # Read before writing, or the compiler must assume that each write changes the next read.
                    left, middle, right = table[at, row, 0], table[at, row, 1], table[at, row, 2]
                    frames[i, vy, row, vx, 0] = left
                    frames[i, vy, row, vx, 1] = middle
                    frames[i, vy, row, vx, 2] = right


@entry
def blit_views(views, tiles, agent_tiles, frames, first, last):
    """Draws views first..last-1 of a batch into their frames, so that threads can share a batch.

    All arrays are C-contiguous.

    Args:
        views: (N, n, n, 3) uint8, symbolic views indexed [vx][vy].
        tiles: (256, t, t, 3) uint8 from `view_tiles`.
        agent_tiles: (256, t, t, 3) uint8, the same with the agent on them.
        frames: (N, n * t, n * t, 3) uint8, written, indexed [row][column].
        first: the first view to draw.
        last: one past the last.
    """
    count, size, side = views.shape[0], views.shape[1], tiles.shape[1]
    flat = tiles.reshape(NUM_TILES, side, 3 * side)
    agent_flat = agent_tiles.reshape(NUM_TILES, side, 3 * side)
    mosaic = frames.reshape(count, size, side, size, 3 * side)
    if side == SMALL:
        words, agent_words, mosaic_words = flat.view(np.uint64), agent_flat.view(np.uint64), mosaic.view(np.uint64)
        copy_small_tiles(views, words, agent_words, mosaic_words, first, last)
    else:
        copy_tiles(views, flat, agent_flat, mosaic, first, last)


@lru_cache(maxsize=16)
def view_tiles(size: int) -> tuple[np.ndarray, np.ndarray]:
    """The tile tables `blit_views` copies from: without and with the agent, each (256, size, size, 3) uint8.

    Both are read-only, since all who ask share them.
    """
    tiles = np.empty((NUM_TILES, size, size, 3), dtype=np.uint8)
    agent_tiles = np.empty_like(tiles)
    # What never occurs looks unseen.
    tiles[:] = draw_tile(UNSEEN, size)
    agent_tiles[:] = draw_tile(EMPTY, size, UP_HEADING, highlight=True)
    for cell, (kind, color, state) in enumerate(TRIPLES.tolist()):
        if kind == EMPTY or (kind >= WALL and color < len(COLORS)):
            at = kind << 5 | color << 2 | state
            tiles[at] = draw_tile(cell, size, highlight=True)
            agent_tiles[at] = draw_tile(cell, size, UP_HEADING, highlight=True)
    tiles.setflags(write=False)
    agent_tiles.setflags(write=False)
    return tiles, agent_tiles


def rgb_views(images: np.ndarray, tile_size: int = 8) -> np.ndarray:
    """The RGB frames of a batch of symbolic views.

    Args:
        images: (N, n, n, 3) uint8, indexed [vx][vy].
        tile_size: pixels a side of one cell.

    Returns:
        (N, n * tile_size, n * tile_size, 3) uint8, indexed [row][column].
    """
    if images.ndim != 4 or images.shape[1] != images.shape[2] or images.shape[3] != 3 or images.dtype != np.uint8:
        raise ValueError(f"expected symbolic views of shape (N, n, n, 3) uint8, got {images.shape} {images.dtype}")
    count, side = images.shape[0], images.shape[1] * tile_size
    frames = np.empty((count, side, side, 3), dtype=np.uint8)
    blit_views(np.ascontiguousarray(images), *view_tiles(tile_size), frames, 0, count)
    return frames
