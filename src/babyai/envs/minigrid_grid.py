"""Grids with the methods of Minigrid's `Grid`: the grid of a world, and grids cut out of it or decoded from images."""

from collections.abc import Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from babyai.envs.minigrid_classes import minigrid_class
from babyai.envs.minigrid_objects import KINDS, WALL_OBJECT, GridObject, adopt
from babyai.render.frame import encode_grid
from babyai.render.tiles import draw_tile
from babyai.world.codes import COLORS, DOOR_LOCKED, DOOR_OPEN, EMPTY, MINIGRID_TYPES, UNSEEN

if TYPE_CHECKING:
    from babyai.envs.minigrid_tracking import TrackedObjects

_NOT_OFFERED = {
    "process_vis": "env.unwrapped.gen_obs_grid() returns the visible part of the grid and its mask",
    "render_tile": "use babyai.render.tiles.draw_tile",
    "tile_cache": "use babyai.render.tiles.draw_tile, which caches",
    **dict.fromkeys(
        ("horz_wall", "vert_wall", "wall_rect"),
        "call grid.set(i, j, GridObject('wall')) for each cell, or draw the world with reset(options={'layout': ...})",
    ),
}


class Grid:
    """A grid of objects that belongs to no world, such as a part of one.

    Args:
        width: Number of columns of cells.
        height: Number of rows of cells.
        objects: The objects row by row, None for empty cells (default: all empty).
    """

    # As in Minigrid, grids with equal contents are equal, and cannot be keys.
    __hash__ = None  # pyright: ignore[reportAssignmentType]

    def __init__(self, width: int, height: int, objects: Sequence[GridObject | None] | None = None) -> None:
        self.width = width
        self.height = height
        self.grid: Sequence[GridObject | None] = [None] * (width * height) if objects is None else objects

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The class that `isinstance` sees: Minigrid's, if Minigrid has been imported."""
        return minigrid_class("minigrid.core.grid", "Grid", type(self))

    def get(self, i: int, j: int) -> GridObject | None:
        """The object at column i and row j, or None."""
        self._check_cell(i, j)
        return self.grid[j * self.width + i]

    def set(self, i: int, j: int, v: Any) -> None:
        """Puts an object at column i and row j, or nothing."""
        self._check_cell(i, j)
        assert isinstance(self.grid, list)
        self.grid[j * self.width + i] = None if v is None else adopt(v)

    def _check_cell(self, i: int, j: int) -> None:
        if not (0 <= i < self.width and 0 <= j < self.height):
            raise IndexError(f"cell ({i}, {j}) is outside the grid of {self.width} x {self.height} cells")

    def __contains__(self, key: Any) -> bool:
        """Whether an object, or any object of a (color, type), is in the grid; a color of None matches all."""
        if isinstance(key, tuple):
            color, kind = key
            return any(obj is not None and obj.type == kind and color in (None, obj.color) for obj in self.grid)
        return any(obj is key for obj in self.grid if obj is not None)

    def __eq__(self, other: object) -> bool:
        encode = getattr(other, "encode", None)
        return encode is not None and np.array_equal(self.encode(), encode())

    def copy(self) -> "Grid":
        """A copy that belongs to no world."""
        return Grid(self.width, self.height, deepcopy(list(self.grid)))

    def slice(self, topX: int, topY: int, width: int, height: int) -> "Grid":
        """The part of the grid from (topX, topY) on; cells outside the grid are walls."""
        cut = Grid(width, height)
        for j in range(height):
            for i in range(width):
                x = topX + i
                y = topY + j
                inside = 0 <= x < self.width and 0 <= y < self.height
                cut.set(i, j, self.get(x, y) if inside else WALL_OBJECT)
        return cut

    def rotate_left(self) -> "Grid":
        """The grid turned counterclockwise by a quarter turn."""
        turned = Grid(self.height, self.width)
        for i in range(self.width):
            for j in range(self.height):
                turned.set(j, self.width - 1 - i, self.get(i, j))
        return turned

    def encode(self, vis_mask: np.ndarray | None = None) -> np.ndarray:
        """The grid without the agent, (W, H, 3) uint8; cells where `vis_mask`, (W, H) bool, is false are zero."""
        triples = [(EMPTY, 0, 0) if obj is None else obj.encode() for obj in self.grid]
        image = np.array(triples, dtype=np.uint8).reshape(self.height, self.width, 3).swapaxes(0, 1)
        return _masked(np.ascontiguousarray(image), vis_mask)

    @staticmethod
    def decode(array: np.ndarray) -> tuple["Grid", np.ndarray]:
        """The grid of an image, (W, H, 3), and where the image shows anything, (W, H) bool."""
        width, height, _ = array.shape
        rows = array.swapaxes(0, 1).reshape(-1, 3).tolist()
        return Grid(width, height, [_decode(*triple) for triple in rows]), array[:, :, 0] != UNSEEN

    def render(
        self,
        tile_size: int,
        agent_pos: Sequence[int] | np.ndarray | None = None,
        agent_dir: int | None = None,
        highlight_mask: np.ndarray | None = None,
    ) -> np.ndarray:
        """An RGB image of the grid, (H * tile_size, W * tile_size, 3) uint8.

        Args:
            tile_size: Side length of a cell, in pixels.
            agent_pos: The agent's (x, y), if it is to be drawn.
            agent_dir: The agent's heading.
            highlight_mask: (W, H) bool, the cells to highlight.
        """
        where = None if agent_pos is None else tuple(agent_pos)
        frame = np.empty((self.height, tile_size, self.width, tile_size, 3), dtype=np.uint8)
        for j in range(self.height):
            for i in range(self.width):
                obj = self.get(i, j)
                heading = agent_dir if where == (i, j) else None
                bright = highlight_mask is not None and bool(highlight_mask[i, j])
                frame[j, :, i] = draw_tile(EMPTY if obj is None else obj._cell, tile_size, heading, bright)
        return frame.reshape(self.height * tile_size, self.width * tile_size, 3)

    def __getattr__(self, name: str) -> NoReturn:
        reason = _NOT_OFFERED.get(name, "")
        raise AttributeError(f"a grid has no attribute {name!r}" + (f": {reason}" if reason else ""))


class WorldGrid(Grid):
    """The grid of a world: reads it live, and `set` changes it."""

    def __init__(self, objects: "TrackedObjects") -> None:
        self._objects = objects
        self.width = objects.width
        self.height = objects.height

    @property
    def grid(self) -> tuple[GridObject | None, ...]:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The objects row by row, None for empty cells. A tuple: `set` is the way to change the world."""
        return tuple(self._objects.objects)

    def get(self, i: int, j: int) -> GridObject | None:
        """The object at column i and row j, or None."""
        self._check_cell(i, j)
        return self._objects.objects[j * self.width + i]

    def set(self, i: int, j: int, v: Any) -> None:
        """Puts an object at column i and row j of the world, or empties that cell."""
        self._check_cell(i, j)
        self._objects.put(int(i), int(j), v)

    def encode(self, vis_mask: np.ndarray | None = None) -> np.ndarray:
        """The grid without the agent, (W, H, 3) uint8; cells where `vis_mask`, (W, H) bool, is false are zero."""
        world = self._objects.world
        return Grid.encode(self, vis_mask) if world is None else _masked(encode_grid(world), vis_mask)


def _masked(image: np.ndarray, vis_mask: np.ndarray | None) -> np.ndarray:
    if vis_mask is not None:
        image[~vis_mask] = 0
    return image


def _decode(kind: int, color: int, state: int) -> GridObject | None:
    """The object of a triple in an image, or None for empty and unseen cells and for the agent."""
    name = MINIGRID_TYPES[kind]
    if name not in KINDS:
        return None
    return GridObject(name, COLORS[color], name == "door" and state == DOOR_OPEN, state == DOOR_LOCKED)
