"""RGB observations: renders batches of symbolic views as Minigrid's `RGBImgPartialObsWrapper` does.

The symbolic view determines every pixel: unseen cells are drawn empty, all others are highlighted, and the agent,
pointing up, is drawn over the object it carries. A frame is therefore copied together from pre-rendered tiles.
"""

from functools import lru_cache

import numpy as np

from babyai._jit import entry, njit
from babyai.render.tiles import draw_tile
from babyai.world.codes import COLORS, EMPTY, TRIPLES, UNSEEN, UP_HEADING, WALL

# A tile's index in the table has three bits of type, three of color and two of state.
NUM_TILES = 256
# The tile size of RGB observations, in pixels. A row of such a tile is three 8-byte words.
SMALL = 8


@njit
def tile_index(triple):
    """The index of a (type, color, state) triple in a tile table; in range for any input."""
    return (int(triple[0]) & 7) << 5 | (int(triple[1]) & 7) << 2 | int(triple[2]) & 3


@njit
def copy_tiles(views, tiles, agent_tiles, frames, first, last):
    """Copies tiles of any size, (256, t, 3t) uint8, into frames, (N, n, t, n, 3t) uint8."""
    size = views.shape[1]
    side = tiles.shape[1]
    length = tiles.shape[2]
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
    """Copies tiles of 8 pixels, (256, 8, 3) uint64, into frames, (N, n, 8, n, 3) uint64.

    RGB observations have tiles of this size. Because the compiler knows all lengths, this runs at about memory
    bandwidth, three times as fast as `copy_tiles`.
    """
    size = views.shape[1]
    for i in range(first, last):
        for vy in range(size):
            for vx in range(size):
                at = tile_index(views[i, vx, vy])
                table = agent_tiles if vx == size // 2 and vy == size - 1 else tiles
                for row in range(SMALL):
                    # All reads come before the writes; otherwise the compiler must assume that they alias.
                    left = table[at, row, 0]
                    middle = table[at, row, 1]
                    right = table[at, row, 2]
                    frames[i, vy, row, vx, 0] = left
                    frames[i, vy, row, vx, 1] = middle
                    frames[i, vy, row, vx, 2] = right


@entry
def blit_views(views, tiles, agent_tiles, frames, first, last):
    """Renders views [first, last) of a batch into `frames`. Several threads can share a batch.

    All arrays must be C-contiguous.

    Args:
        views: (N, n, n, 3) uint8, symbolic views indexed [vx][vy].
        tiles: (256, t, t, 3) uint8, from `view_tiles`.
        agent_tiles: (256, t, t, 3) uint8, the same tiles with the agent on them.
        frames: (N, n * t, n * t, 3) uint8, the output, indexed [row][column].
        first: First view to render.
        last: One past the last view to render.
    """
    count = views.shape[0]
    size = views.shape[1]
    side = tiles.shape[1]
    flat = tiles.reshape(NUM_TILES, side, 3 * side)
    agent_flat = agent_tiles.reshape(NUM_TILES, side, 3 * side)
    mosaic = frames.reshape(count, size, side, size, 3 * side)
    if side == SMALL:
        words = flat.view(np.uint64)
        agent_words = agent_flat.view(np.uint64)
        mosaic_words = mosaic.view(np.uint64)
        copy_small_tiles(views, words, agent_words, mosaic_words, first, last)
    else:
        copy_tiles(views, flat, agent_flat, mosaic, first, last)


@lru_cache(maxsize=16)
def view_tiles(size: int) -> tuple[np.ndarray, np.ndarray]:
    """The tile tables for `blit_views`, without and with the agent, (256, size, size, 3) uint8 each.

    Both are cached and therefore read-only.
    """
    tiles = np.empty((NUM_TILES, size, size, 3), dtype=np.uint8)
    agent_tiles = np.empty_like(tiles)
    # Triples that never occur are drawn as unseen cells.
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
    """A batch of symbolic views rendered as RGB frames.

    Args:
        images: (N, n, n, 3) uint8, indexed [vx][vy].
        tile_size: Side length of a cell, in pixels.

    Returns:
        (N, n * tile_size, n * tile_size, 3) uint8, indexed [row][column].
    """
    if images.ndim != 4 or images.shape[1] != images.shape[2] or images.shape[3] != 3 or images.dtype != np.uint8:
        raise ValueError(f"expected symbolic views of shape (N, n, n, 3) uint8, got {images.shape} {images.dtype}")
    count = images.shape[0]
    side = images.shape[1] * tile_size
    frames = np.empty((count, side, side, 3), dtype=np.uint8)
    blit_views(np.ascontiguousarray(images), *view_tiles(tile_size), frames, 0, count)
    return frames
