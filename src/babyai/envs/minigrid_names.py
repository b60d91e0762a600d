"""Minigrid's attributes of `env.unwrapped`, such as `agent_pos` and `grid`, read from the world record.

All of them are read-only. To change a world, use `reset(options=...)` or `env.unwrapped.engine`.
"""

from dataclasses import dataclass

import numpy as np

from babyai.engine import Engine
from babyai.levels.catalog import Level
from babyai.render.frame import draw_world, encode_grid
from babyai.world.codes import (
    BOX,
    COLORS,
    DOOR,
    DOOR_LOCKED,
    DOOR_OPEN,
    EMPTY,
    MARKED,
    MINIGRID_TYPES,
    OBJECT_KINDS,
    VECTORS,
    Action,
    triple_of,
)
from babyai.world.state import NOT_RESET, index_of, position_of


@dataclass(frozen=True)
class GridObject:
    """An object in a cell or carried by the agent, as it was when it was looked up."""

    type: str
    """"wall", "door", "key", "ball" or "box"."""
    color: str
    """Color name, as in Minigrid."""
    is_open: bool = False
    """Doors only."""
    is_locked: bool = False
    """Doors only."""
    contains: "GridObject | None" = None
    """Boxes only: the object in the box."""

    def encode(self) -> tuple[int, int, int]:
        """The (type, color, state) triple of images."""
        state = 0 if self.type != "door" or self.is_open else 1 + self.is_locked
        return MINIGRID_TYPES.index(self.type), COLORS.index(self.color), state

    def can_pickup(self) -> bool:
        """Whether the agent can pick it up."""
        return MINIGRID_TYPES.index(self.type) in OBJECT_KINDS

    def can_overlap(self) -> bool:
        """Whether the agent can enter its cell, which is true only of an open door."""
        return self.is_open

    def see_behind(self) -> bool:
        """Whether the agent can see through it."""
        return self.type not in ("wall", "door") or self.is_open


def object_of(cell: int, hidden: int = 0) -> GridObject | None:
    """The object encoded by a cell byte, or None; `hidden` is the cell byte of the contents of a marked box."""
    kind, color, state = triple_of(cell)
    if kind <= EMPTY:
        return None
    contains = object_of(hidden) if kind == BOX and cell & MARKED and hidden else None
    is_door = kind == DOOR
    return GridObject(
        type=MINIGRID_TYPES[kind],
        color=COLORS[color],
        is_open=is_door and state == DOOR_OPEN,
        is_locked=is_door and state == DOOR_LOCKED,
        contains=contains,
    )


class Grid:
    """A read-only live view of a world's grid."""

    def __init__(self, world: np.record) -> None:
        self._world = world

    @property
    def width(self) -> int:
        """Number of columns of cells."""
        return int(self._world.width)

    @property
    def height(self) -> int:
        """Number of rows of cells."""
        return int(self._world.height)

    def get(self, i: int, j: int) -> GridObject | None:
        """The object at column i and row j, or None."""
        if not (0 <= i < self.width and 0 <= j < self.height):
            raise IndexError(f"cell ({i}, {j}) is outside the grid of {self.width} x {self.height} cells")
        return object_of(int(self._world.cells[index_of(i, j)]), int(self._world.hidden))

    def encode(self, vis_mask: np.ndarray | None = None) -> np.ndarray:
        """The grid without the agent, (W, H, 3) uint8; cells where `vis_mask`, (W, H) bool, is false are zero."""
        image = encode_grid(self._world)
        if vis_mask is not None:
            image[~vis_mask] = 0
        return image


class MinigridNames:
    """Mixin with Minigrid's attributes for an environment with one world."""

    engine: Engine
    tile_size: int
    actions = Action

    @property
    def _world(self) -> np.record:
        return self.engine.worlds[0]

    @property
    def _not_reset(self) -> bool:
        return self._world.status == NOT_RESET

    @property
    def level(self) -> Level:
        """The level and its settings."""
        return self.engine.levels[0]

    @property
    def rules(self) -> str:
        """The rule set, "paper" or "minigrid"."""
        return self.engine.rules

    @property
    def agent_view_size(self) -> int:
        """Side length of the agent's view."""
        return self.engine.view_size

    @property
    def room_size(self) -> int:
        """Side length of a room in cells, including both walls."""
        return self.level.room_size

    @property
    def num_rows(self) -> int:
        """Number of rows of rooms."""
        return self.level.rows

    @property
    def num_cols(self) -> int:
        """Number of columns of rooms."""
        return self.level.columns

    @property
    def width(self) -> int:
        """Number of columns of cells."""
        return self.level.width if self._not_reset else int(self._world.width)

    @property
    def height(self) -> int:
        """Number of rows of cells."""
        return self.level.height if self._not_reset else int(self._world.height)

    @property
    def grid(self) -> Grid:
        """The grid, read-only."""
        return Grid(self._world)

    @property
    def max_steps(self) -> int:
        """Time limit of this episode. Before the first reset: of the level, or 0 if it depends on the mission."""
        return self.level.max_steps if self._not_reset else int(self._world.max_steps)

    @property
    def step_count(self) -> int:
        """Number of steps taken in this episode."""
        return int(self._world.step_count)

    @property
    def steps_remaining(self) -> int:
        """Number of steps left in this episode."""
        return self.max_steps - self.step_count

    @property
    def agent_pos(self) -> tuple[int, int] | None:
        """The agent's (x, y); None before the first reset."""
        return None if self._not_reset else position_of(self._world.agent)

    @property
    def agent_dir(self) -> int | None:
        """The agent's heading: 0 right, 1 down, 2 left, 3 up; None before the first reset."""
        return None if self._not_reset else int(self._world.agent_dir)

    @property
    def carrying(self) -> GridObject | None:
        """The carried object, or None."""
        return object_of(int(self._world.carrying), int(self._world.hidden))

    @property
    def dir_vec(self) -> np.ndarray:
        """Unit vector (dx, dy) of the agent's heading."""
        return np.array(VECTORS[self._world.agent_dir])

    @property
    def right_vec(self) -> np.ndarray:
        """Unit vector (dx, dy) to the agent's right."""
        dx, dy = VECTORS[self._world.agent_dir]
        return np.array((-dy, dx))

    @property
    def front_pos(self) -> np.ndarray:
        """The (x, y) of the cell in front of the agent."""
        return np.array(position_of(self._world.agent)) + self.dir_vec

    def get_frame(self, highlight: bool = True, tile_size: int = 32, agent_pov: bool = False) -> np.ndarray:
        """An RGB image of the whole world or of the agent's view, (H, W, 3) uint8.

        Args:
            highlight: Whether to highlight the cells in the agent's view.
            tile_size: Side length of a cell, in pixels.
            agent_pov: Whether to show only the agent's view, which is always highlighted.
        """
        from babyai.render.blit import rgb_views

        if self._not_reset:
            raise RuntimeError("call reset() before rendering")
        self.engine.observe(0)
        if agent_pov:
            return rgb_views(self.engine.images, tile_size)[0]
        return draw_world(self._world, tile_size, self.engine.images[0] if highlight else None)
