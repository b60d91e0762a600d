"""Minigrid's attributes and methods of `env.unwrapped`, such as `agent_pos`, `grid` and `place_obj`.

They read and write the world's record. Objects are made only when somebody asks for them, so an environment that is
just stepped pays nothing.
"""

import hashlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from babyai import engine_kernels
from babyai.engine import Engine
from babyai.envs.minigrid_grid import Grid, WorldGrid
from babyai.envs.minigrid_instructions import Instruction
from babyai.envs.minigrid_objects import WALL_OBJECT, GridObject, Position
from babyai.envs.minigrid_refusals import NOT_OFFERED, READ_ONLY, refuse_overrides
from babyai.envs.minigrid_rooms import Room
from babyai.envs.minigrid_tracking import TrackedObjects
from babyai.levels.catalog import Level
from babyai.render.frame import draw_world
from babyai.world.codes import DOOR, EMPTY, KIND_MASK, MAX_WORDS, OPAQUE, UNSEEN, VECTORS, Action
from babyai.world.state import NOT_RESET, index_of, position_of

MAX_STEPS = 2**31 - 1


class MinigridNames:
    """Mixin with Minigrid's names for one world of an engine."""

    engine: Engine
    tile_size: int
    np_random: Any
    mission: Any
    _index = 0
    _tracked: TrackedObjects | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        refuse_overrides(cls)

    # ------------------------------------------------------------ the record

    @property
    def _world(self) -> np.record:
        return self.engine.worlds[self._index]

    @property
    def _not_reset(self) -> bool:
        return self._world.status == NOT_RESET

    @property
    def _objects(self) -> TrackedObjects:
        """The objects of this episode."""
        if self._tracked is None:
            self._require_reset()
            self._tracked = TrackedObjects(self.engine, self._index)
        return self._tracked

    def _forget_objects(self) -> None:
        """The world is about to be replaced by another one."""
        if self._tracked is not None:
            self._tracked.release()
            self._tracked = None

    def _require_reset(self) -> None:
        if self._not_reset:
            raise RuntimeError("call reset() first: before it there is no world")

    # ------------------------------------------------------------ settings

    @property
    def actions(self) -> type[Action]:
        """The enumeration of actions."""
        return Action

    @property
    def level(self) -> Level:
        """The level and its settings."""
        return self.engine.levels[self._world.level]

    @property
    def rules(self) -> str:
        """The rule set, "paper" or "minigrid"."""
        return self.engine.rules

    @property
    def agent_view_size(self) -> int:
        """Side length of the agent's view."""
        return self.engine.view_size

    @property
    def see_through_walls(self) -> bool:
        """False: walls and closed doors block the view."""
        return False

    @property
    def room_size(self) -> int:
        """Side length of a room in cells, including both walls."""
        return self.level.room_size if self._not_reset else int(self._world.room_width)

    @property
    def num_rows(self) -> int:
        """Number of rows of rooms."""
        return self.level.rows if self._not_reset else (self.height - 1) // (int(self._world.room_height) - 1)

    @property
    def num_cols(self) -> int:
        """Number of columns of rooms."""
        return self.level.columns if self._not_reset else (self.width - 1) // (int(self._world.room_width) - 1)

    @property
    def width(self) -> int:
        """Number of columns of cells."""
        return self.level.width if self._not_reset else int(self._world.width)

    @property
    def height(self) -> int:
        """Number of rows of cells."""
        return self.level.height if self._not_reset else int(self._world.height)

    # ------------------------------------------------------------ the episode

    @property
    def max_steps(self) -> int:
        """Time limit of this episode. Before the first reset: of the level, or 0 if it depends on the mission."""
        return self.level.max_steps if self._not_reset else int(self._world.max_steps)

    @max_steps.setter
    def max_steps(self, value: int) -> None:
        self._require_reset()
        if not 1 <= value <= MAX_STEPS:
            raise ValueError(f"max_steps must be at least 1 and below 2**31, not {value}")
        self._world.max_steps = value
        if self.level.max_steps:
            # As in Minigrid, a limit that does not depend on the mission stays for the next episodes.
            self.engine.set_time_limit(self._world.level, int(value))

    @property
    def step_count(self) -> int:
        """Number of steps taken in this episode."""
        return int(self._world.step_count)

    @step_count.setter
    def step_count(self, value: int) -> None:
        self._require_reset()
        if not 0 <= value <= MAX_STEPS - 1:
            raise ValueError(f"step_count must be at least 0 and below 2**31 - 1, not {value}")
        self._world.step_count = value

    @property
    def steps_remaining(self) -> int:
        """Number of steps left in this episode."""
        return self.max_steps - self.step_count

    @property
    def instrs(self) -> Instruction:
        """The mission as an object: its clauses, descriptors and the objects they refer to."""
        return self._objects.instruction

    # ------------------------------------------------------------ the agent

    @property
    def agent_pos(self) -> Position | None:
        """The agent's (x, y); None before the first reset."""
        return None if self._not_reset else position_of(self._world.agent)

    @agent_pos.setter
    def agent_pos(self, value: Sequence[int] | np.ndarray) -> None:
        self._require_reset()
        x, y = (int(part) for part in value)
        if not (0 <= x < self.width and 0 <= y < self.height):
            raise ValueError(f"cell ({x}, {y}) is outside the grid of {self.width} x {self.height} cells")
        cell = int(self._world.cells[index_of(x, y)])
        if cell != EMPTY and cell & (KIND_MASK | OPAQUE) != DOOR:
            raise ValueError(f"the agent cannot stand at ({x}, {y}): the cell is neither empty nor an open door")
        self._world.agent = index_of(x, y)
        self.engine.observe(self._index)

    @property
    def agent_dir(self) -> int | None:
        """The agent's heading: 0 right, 1 down, 2 left, 3 up; None before the first reset."""
        return None if self._not_reset else int(self._world.agent_dir)

    @agent_dir.setter
    def agent_dir(self, value: int) -> None:
        self._require_reset()
        if value not in range(4):
            raise ValueError(f"agent_dir must be 0 right, 1 down, 2 left or 3 up, not {value!r}")
        self._world.agent_dir = value
        self.engine.observe(self._index)

    @property
    def carrying(self) -> GridObject | None:
        """The carried object, or None."""
        if not self._world.carrying:
            return None
        objects = self._objects
        # Building the list of objects also finds the carried one.
        return objects.carried if objects.objects else None

    @carrying.setter
    def carrying(self, value: Any) -> None:
        self._objects.carry(value)

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

    # ------------------------------------------------------------ grid and rooms

    @property
    def grid(self) -> WorldGrid:
        """The grid."""
        return self._objects.grid

    @property
    def room_grid(self) -> list[list[Room]]:
        """The rooms, as rows from the top."""
        return self._objects.rooms

    def get_room(self, i: int, j: int) -> Room:
        """The room in column i and row j."""
        if not (0 <= i < self.num_cols and 0 <= j < self.num_rows):
            raise IndexError(f"there is no room ({i}, {j}) in {self.num_cols} x {self.num_rows} rooms")
        return self.room_grid[j][i]

    def room_from_pos(self, x: int, y: int) -> Room:
        """The room of a cell; the wall between two rooms belongs to the right or lower one, as in Minigrid."""
        return self.get_room(int(x) // (int(self._world.room_width) - 1), int(y) // (int(self._world.room_height) - 1))

    def pprint_grid(self) -> str:
        """The grid and the agent as text, two characters per cell, in Minigrid's letters."""
        if self._not_reset:
            raise ValueError("call reset() before pprint_grid(): before it there is no world")
        cells = [_letters(obj) for obj in self.grid.grid]
        x, y = position_of(self._world.agent)
        cells[y * self.width + x] = 2 * ">V<^"[self._world.agent_dir]
        return "\n".join("".join(cells[k : k + self.width]) for k in range(0, len(cells), self.width))

    def hash(self, size: int = 16) -> str:
        """The first characters of a digest of grid, agent and heading; equal to Minigrid's for the same state."""
        x, y = position_of(self._world.agent)
        digest = hashlib.sha256(str(self.grid.encode().tolist()).encode())
        # The text of a position in Minigrid, where it is a pair of NumPy integers.
        digest.update(str((np.int64(x), np.int64(y))).encode())
        digest.update(str(self.agent_dir).encode())
        return digest.hexdigest()[:size]

    # ------------------------------------------------------------ the agent's view

    def get_view_coords(self, i: int, j: int) -> Position:
        """The coordinates of the cell (i, j) in the agent's view; they may be outside of it."""
        x, y = position_of(self._world.agent)
        dx, dy = VECTORS[self._world.agent_dir]
        size = self.agent_view_size
        ahead = (i - x) * dx + (j - y) * dy
        rightward = (j - y) * dx - (i - x) * dy
        return int(size // 2 + rightward), int(size - 1 - ahead)

    def get_view_exts(self, agent_view_size: int | None = None) -> tuple[int, int, int, int]:
        """The first column and row of the view in the grid, and those after its last ones."""
        size = agent_view_size or self.agent_view_size
        x, y = position_of(self._world.agent)
        dx, dy = VECTORS[self._world.agent_dir]
        left = x - (size // 2 if dx == 0 else 0 if dx > 0 else size - 1)
        upper = y - (size // 2 if dy == 0 else 0 if dy > 0 else size - 1)
        return left, upper, left + size, upper + size

    def relative_coords(self, x: int, y: int) -> Position | None:
        """The coordinates of a cell in the agent's view, or None if it is outside."""
        vx, vy = self.get_view_coords(x, y)
        size = self.agent_view_size
        return (vx, vy) if 0 <= vx < size and 0 <= vy < size else None

    def in_view(self, x: int, y: int) -> bool:
        """Whether a cell is within the agent's view, be it visible or hidden behind a wall."""
        return self.relative_coords(x, y) is not None

    def agent_sees(self, x: int, y: int) -> bool:
        """Whether the agent sees the object in a cell."""
        if self.grid.get(x, y) is None:
            raise ValueError(f"cell ({x}, {y}) is empty; agent_sees asks about an object")
        coordinates = self.relative_coords(x, y)
        return coordinates is not None and bool(self._view(self.agent_view_size)[coordinates][0] != UNSEEN)

    def gen_obs_grid(self, agent_view_size: int | None = None) -> tuple[Grid, np.ndarray]:
        """What the agent sees, as a grid turned in its direction, and which cells are visible: (n, n) bool.

        Args:
            agent_view_size: Side length of the view (default: that of the environment).
        """
        size = agent_view_size or self.agent_view_size
        visible = self._view(size)[:, :, 0] != UNSEEN
        x, y = position_of(self._world.agent)
        dx, dy = VECTORS[self._world.agent_dir]
        seen = Grid(size, size)
        for vx, vy in np.argwhere(visible).tolist():
            ahead = size - 1 - vy
            right = vx - size // 2
            i = x + dx * ahead - dy * right
            j = y + dy * ahead + dx * right
            inside = 0 <= i < self.width and 0 <= j < self.height
            seen.set(vx, vy, self.grid.get(i, j) if inside else WALL_OBJECT)
        seen.set(size // 2, size - 1, self.carrying)
        return seen, visible

    def _view(self, size: int) -> np.ndarray:
        """The symbolic view with any side length, (size, size, 3) uint8, without touching the engine's images."""
        if size < 3 or size % 2 == 0:
            raise ValueError(f"agent_view_size must be odd and at least 3, not {size}")
        view = np.zeros(size * size * 3, dtype=np.uint8)
        world = self.engine.kernel_worlds[self._index : self._index + 1]
        direction = np.zeros(1, dtype=np.int64)
        mission = np.zeros((1, MAX_WORDS), dtype=np.uint8)
        engine_kernels.observe_batch(world, np.ones(1, dtype=bool), size, view, direction, mission, 0, 1)
        return view.reshape(size, size, 3)

    # ------------------------------------------------------------ rendering

    def get_frame(self, highlight: bool = True, tile_size: int = 32, agent_pov: bool = False) -> np.ndarray:
        """An RGB image of the whole world or of the agent's view, (H, W, 3) uint8.

        Args:
            highlight: Whether to highlight the cells in the agent's view.
            tile_size: Side length of a cell, in pixels.
            agent_pov: Whether to show only the agent's view, which is always highlighted.
        """
        from babyai.render.blit import rgb_views

        self._require_reset()
        view = self._view(self.agent_view_size)
        if agent_pov:
            return rgb_views(view[None], tile_size)[0]
        return draw_world(self._world, tile_size, view if highlight else None)

    def get_full_render(self, highlight: bool, tile_size: int) -> np.ndarray:
        """`get_frame` of the whole world."""
        return self.get_frame(highlight, tile_size)

    def get_pov_render(self, tile_size: int) -> np.ndarray:
        """`get_frame` of the agent's view."""
        return self.get_frame(tile_size=tile_size, agent_pov=True)

    # ------------------------------------------------------------ changing the world

    def put_obj(self, obj: Any, i: int, j: int) -> None:
        """Puts an object, of ours or of Minigrid, on the cell (i, j)."""
        self.grid.set(i, j, obj)
        placed = self.grid.get(i, j)
        assert placed is not None
        placed.init_pos = (int(i), int(j))
        _tell_position(obj, (int(i), int(j)))

    def place_obj(
        self,
        obj: Any,
        top: Sequence[int] | None = None,
        size: Sequence[int] | None = None,
        reject_fn: Callable[[Any, Position], bool] | None = None,
        max_tries: float = math.inf,
    ) -> Position:
        """Puts an object on a random empty cell, drawn from `np_random` as in Minigrid; returns its (x, y).

        Args:
            obj: An object of ours or of Minigrid, or None to only draw a cell.
            top: Upper left corner of the rectangle to draw from (default: of the grid).
            size: Width and height of that rectangle (default: of the grid).
            reject_fn: Function of the environment and a position that returns whether to reject it.
            max_tries: Number of rejected draws after which a RecursionError is raised.
        """
        position = self._draw_cell(
            top, size, max_tries, lambda at: at == self.agent_pos or _rejects(self, reject_fn, at)
        )
        if obj is not None:
            self.put_obj(obj, *position)
        return position

    def _draw_cell(
        self,
        top: Sequence[int] | None,
        size: Sequence[int] | None,
        max_tries: float,
        rejects: Callable[[Position], bool] | None = None,
    ) -> Position:
        """Draws an empty cell of a rectangle; see `place_obj`."""
        left, upper = (0, 0) if top is None else (max(int(top[0]), 0), max(int(top[1]), 0))
        width, height = (self.width, self.height) if size is None else size
        tries = 0
        while tries <= max_tries:
            tries += 1
            x = int(self.np_random.integers(left, min(left + width, self.width)))
            y = int(self.np_random.integers(upper, min(upper + height, self.height)))
            if self.grid.get(x, y) is None and not (rejects is not None and rejects((x, y))):
                return x, y
        raise RecursionError(f"no empty cell found in {max_tries} tries")

    def place_agent(self, i: int | None = None, j: int | None = None, rand_dir: bool = True) -> Position:
        """Puts the agent on a random empty cell of the room in column i and row j (default: of a random room).

        As in Minigrid, it does not face an object.
        """
        column = int(self.np_random.integers(0, self.num_cols)) if i is None else i
        row = int(self.np_random.integers(0, self.num_rows)) if j is None else j
        room = self.get_room(column, row)
        while True:
            self.agent_pos = self._draw_cell(room.top, room.size, max_tries=1000)
            if rand_dir:
                self.agent_dir = int(self.np_random.integers(0, 4))
            x, y = self.front_pos.tolist()
            front = self.grid.get(x, y)
            if front is None or front.type == "wall":
                return position_of(self._world.agent)


def _refuse_setting(name: str, reason: str) -> None:
    """Makes setting a property raise an AttributeError that says what to do instead."""

    def refuse(self: Any, value: Any) -> None:
        raise AttributeError(f"{name!r} cannot be set: {reason}", name=name, obj=self)

    setattr(MinigridNames, name, getattr(MinigridNames, name).setter(refuse))


def _explain_absence(name: str, reason: str) -> None:
    """Makes a name that is not offered raise an AttributeError; `__getattr__` would slow down every other attribute."""

    def refuse(self: Any, value: Any = None) -> Any:
        raise AttributeError(f"{name!r} is Minigrid's and not offered here: {reason}", name=name, obj=self)

    setattr(MinigridNames, name, property(refuse, refuse))


for _name, _reason in READ_ONLY.items():
    _refuse_setting(_name, _reason)
for _name, _reason in NOT_OFFERED.items():
    _explain_absence(_name, _reason)


def _rejects(env: Any, reject_fn: Callable[[Any, Position], bool] | None, position: Position) -> bool:
    return reject_fn is not None and reject_fn(env, position)


def _tell_position(obj: Any, position: Position) -> None:
    """Sets the position of an object of Minigrid's own class, as Minigrid does."""
    if type(obj) is not GridObject:
        obj.init_pos = position
        obj.cur_pos = position


def _letters(obj: GridObject | None) -> str:
    """Minigrid's two letters for a cell."""
    if obj is None:
        return "  "
    color = obj.color[0].upper()
    if obj.type == "door":
        return "__" if obj.is_open else ("L" if obj.is_locked else "D") + color
    return {"wall": "W", "key": "K", "ball": "A", "box": "B"}[obj.type] + color
