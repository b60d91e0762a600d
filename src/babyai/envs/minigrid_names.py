"""The names under which Minigrid's users look things up on `env.unwrapped`, answered from the world record.

They are all for reading. To change a world, use `reset(options=...)`, or `env.unwrapped.engine`.
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
    """A thing in a cell or in the agent's hands, as it was when it was looked up."""

    type: str
    """"wall", "door", "key", "ball" or "box"."""
    color: str
    """Its color, spelt as in Minigrid."""
    is_open: bool = False
    """Of a door."""
    is_locked: bool = False
    """Of a door."""
    contains: "GridObject | None" = None
    """Of a box: what lies in it."""

    def encode(self) -> tuple[int, int, int]:
        """The (type, color, state) that images show."""
        state = 0 if self.type != "door" or self.is_open else 1 + self.is_locked
        return MINIGRID_TYPES.index(self.type), COLORS.index(self.color), state

    def can_pickup(self) -> bool:
        """Whether the agent can take it."""
        return MINIGRID_TYPES.index(self.type) in OBJECT_KINDS

    def can_overlap(self) -> bool:
        """Whether the agent can stand on it: only on an open door."""
        return self.is_open

    def see_behind(self) -> bool:
        """Whether sight passes it."""
        return self.type not in ("wall", "door") or self.is_open


def object_of(cell: int, hidden: int = 0) -> GridObject | None:
    """The thing that a cell byte stands for, or None; `hidden` is what a marked box holds."""
    kind, color, state = triple_of(cell)
    if kind <= EMPTY:
        return None
    contains = object_of(hidden) if kind == BOX and cell & MARKED and hidden else None
    is_door = kind == DOOR
    return GridObject(
        *(MINIGRID_TYPES[kind], COLORS[color]),
        *(is_door and state == DOOR_OPEN, is_door and state == DOOR_LOCKED, contains),
    )


class Grid:
    """The grid of a world, for reading; it changes with the world."""

    def __init__(self, world: np.record) -> None:
        self._world = world

    @property
    def width(self) -> int:
        """Cells from left to right."""
        return int(self._world.width)

    @property
    def height(self) -> int:
        """Cells from top to bottom."""
        return int(self._world.height)

    def get(self, i: int, j: int) -> GridObject | None:
        """What lies at column i and row j, or None."""
        if not (0 <= i < self.width and 0 <= j < self.height):
            raise IndexError(f"there is no cell ({i}, {j}) in a grid of {self.width} x {self.height} cells")
        return object_of(int(self._world.cells[index_of(i, j)]), int(self._world.hidden))

    def encode(self, vis_mask: np.ndarray | None = None) -> np.ndarray:
        """The grid without the agent, (W, H, 3) uint8; where `vis_mask`, (W, H) bool, is false it is all zero."""
        image = encode_grid(self._world)
        if vis_mask is not None:
            image[~vis_mask] = 0
        return image


class MinigridNames:
    """Attributes of an environment of one world that carry Minigrid's names."""

    engine: Engine
    tile_size: int
    actions = Action

    @property
    def _world(self) -> np.record:
        return self.engine.worlds[0]

    @property
    def _is_unborn(self) -> bool:
        return self._world.status == NOT_RESET

    @property
    def level(self) -> Level:
        """The level, with its settings."""
        return self.engine.levels[0]

    @property
    def rules(self) -> str:
        """The rule set, "paper" or "minigrid"."""
        return self.engine.rules

    @property
    def agent_view_size(self) -> int:
        """The side of the agent's view."""
        return self.engine.view_size

    @property
    def room_size(self) -> int:
        """Cells of a room from wall to wall, both walls included."""
        return self.level.room_size

    @property
    def num_rows(self) -> int:
        """Rows of rooms."""
        return self.level.rows

    @property
    def num_cols(self) -> int:
        """Columns of rooms."""
        return self.level.columns

    @property
    def width(self) -> int:
        """Cells from left to right."""
        return self.level.width if self._is_unborn else int(self._world.width)

    @property
    def height(self) -> int:
        """Cells from top to bottom."""
        return self.level.height if self._is_unborn else int(self._world.height)

    @property
    def grid(self) -> Grid:
        """The grid, for reading."""
        return Grid(self._world)

    @property
    def max_steps(self) -> int:
        """The time limit of this episode; before the first reset, that of the level, or 0 if missions decide it."""
        return self.level.max_steps if self._is_unborn else int(self._world.max_steps)

    @property
    def step_count(self) -> int:
        """Steps taken in this episode."""
        return int(self._world.step_count)

    @property
    def steps_remaining(self) -> int:
        """Steps left in this episode."""
        return self.max_steps - self.step_count

    @property
    def agent_pos(self) -> tuple[int, int] | None:
        """The agent's (x, y); None before the first reset."""
        return None if self._is_unborn else position_of(self._world.agent)

    @property
    def agent_dir(self) -> int | None:
        """The agent's heading: 0 right, 1 down, 2 left, 3 up; None before the first reset."""
        return None if self._is_unborn else int(self._world.agent_dir)

    @property
    def carrying(self) -> GridObject | None:
        """What the agent carries."""
        return object_of(int(self._world.carrying), int(self._world.hidden))

    @property
    def dir_vec(self) -> np.ndarray:
        """One step ahead, as (dx, dy)."""
        return np.array(VECTORS[self._world.agent_dir])

    @property
    def right_vec(self) -> np.ndarray:
        """One step to the right, as (dx, dy)."""
        dx, dy = VECTORS[self._world.agent_dir]
        return np.array((-dy, dx))

    @property
    def front_pos(self) -> np.ndarray:
        """The (x, y) of the cell before the agent."""
        return np.array(position_of(self._world.agent)) + self.dir_vec

    def get_frame(self, highlight: bool = True, tile_size: int = 32, agent_pov: bool = False) -> np.ndarray:
        """The picture of the whole world, or of what the agent sees, (H, W, 3) uint8.

        Args:
            highlight: Whether the cells that the agent sees are lit.
            tile_size: Pixels a side of one cell.
            agent_pov: Whether to show the agent's view instead, which is always lit.
        """
        from babyai.render.blit import rgb_views

        if self._is_unborn:
            raise RuntimeError("there is nothing to draw yet: call reset() first")
        self.engine.observe(0)
        if agent_pov:
            return rgb_views(self.engine.images, tile_size)[0]
        return draw_world(self._world, tile_size, self.engine.images[0] if highlight else None)
