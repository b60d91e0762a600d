"""Tiles equal Minigrid's in every pixel."""

import numpy as np
import pytest
from minigrid.core.grid import Grid
from minigrid.core.world_object import WorldObj

from babyai.render.tiles import draw_tile
from babyai.world.codes import (
    BALL,
    BOX,
    COLORS,
    DOOR,
    EMPTY,
    KEY,
    LOCKED_DOOR,
    MARKED,
    OPAQUE,
    UNSEEN,
    WALL_CELL,
    cell_of,
    triple_of,
)

CLOSED = [cell_of(kind, color) for kind in (LOCKED_DOOR, DOOR, KEY, BALL, BOX) for color in range(len(COLORS))]
OPEN = [cell_of(DOOR, color) & ~OPAQUE for color in range(len(COLORS))]
CELLS = [UNSEEN, EMPTY, WALL_CELL, *CLOSED, *OPEN]


def minigrid_tile(cell: int, size: int, agent_dir: int | None = None, highlight: bool = False) -> np.ndarray:
    drawn = Grid.render_tile(WorldObj.decode(*triple_of(cell)), agent_dir, highlight, size)
    return np.asarray(drawn).astype(np.uint8)


@pytest.mark.parametrize("highlight", [False, True])
@pytest.mark.parametrize("cell", CELLS)
def test_small_tiles_equal_minigrid(cell: int, highlight: bool) -> None:
    for agent_dir in (None, 0, 1, 2, 3):
        tile = draw_tile(cell, 8, agent_dir, highlight)
        assert tile.shape == (8, 8, 3) and tile.dtype == np.uint8
        np.testing.assert_array_equal(tile, minigrid_tile(cell, 8, agent_dir, highlight))


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 10, 16, 25, 32])
def test_other_sizes_equal_minigrid(size: int) -> None:
    purple = [cell for cell in CELLS if triple_of(cell)[1] == 3]
    for cell in [EMPTY, WALL_CELL, *purple]:
        np.testing.assert_array_equal(draw_tile(cell, size), minigrid_tile(cell, size))
    for agent_dir in range(4):
        np.testing.assert_array_equal(
            draw_tile(EMPTY, size, agent_dir, True), minigrid_tile(EMPTY, size, agent_dir, True)
        )


def test_boxes_look_the_same_with_and_without_contents() -> None:
    box = cell_of(BOX, 2)
    np.testing.assert_array_equal(draw_tile(box | MARKED, 8), draw_tile(box, 8))


def test_tiles_are_cached_and_read_only() -> None:
    tile = draw_tile(EMPTY, 8)
    assert draw_tile(EMPTY, 8) is tile
    with pytest.raises(ValueError, match="read-only"):
        tile[0, 0] = 0


def test_tile_size_zero_is_rejected() -> None:
    with pytest.raises(ValueError, match=r"at least 1 .* 0$"):
        draw_tile(EMPTY, 0)
