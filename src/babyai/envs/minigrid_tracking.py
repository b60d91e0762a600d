"""The objects of one world, each the same Python object for a whole episode, and changes to the world through them.

A world is bytes, without object identities. Bots and reward shaping for Minigrid keep references to objects, so once
somebody has looked at an object, `follow` is called after every step and moves the references along with the bytes.
"""

from functools import cached_property
from typing import Any

import numpy as np

from babyai.engine import Engine
from babyai.envs.minigrid_grid import WorldGrid
from babyai.envs.minigrid_objects import NO_POSITION, WALL_OBJECT, GridObject, Position, adopt, object_of
from babyai.levels.layout import grid_cells
from babyai.world.codes import BOX, DOOR, EMPTY, KIND_MASK, LOCKED_DOOR, MARKED, VECTORS, WALL, WALL_CELL
from babyai.world.state import MAX_SIZE, ORIGIN, STRIDE, index_of, position_of


class TrackedObjects:
    """The objects of one world in one episode.

    Args:
        engine: The engine that steps the world.
        index: The number of the world.
    """

    def __init__(self, engine: Engine, index: int) -> None:
        self._engine = engine
        self._index = index
        world = engine.worlds[index]
        self.world: np.record | None = world
        """The world's record; None once another episode has begun."""
        self.width = int(world.width)
        self.height = int(world.height)
        self.grid = WorldGrid(self)
        self.carried: GridObject | None = None
        self.is_built = False

    @cached_property
    def objects(self) -> list[GridObject | None]:
        """The objects row by row; None for empty cells."""
        world = self.live_world
        found = [self._make(cell, k) for k, cell in enumerate(grid_cells(world).ravel().tolist())]
        self._carry(object_of(int(world.carrying), int(world.hidden)))
        if self.carried is not None:
            self.carried._tracks = int(world.carried_tracks)
            self.carried.init_pos = self._left_cell()
        self.is_built = True
        return found

    @property
    def live_world(self) -> np.record:
        """The world's record; raises a RuntimeError if another episode has begun."""
        if self.world is None:
            raise RuntimeError("this grid or object is of an earlier episode; take it from env.unwrapped again")
        return self.world

    def release(self) -> None:
        """Cuts the objects off from the world, because another episode begins."""
        if self.is_built:
            for obj in (*self.objects, self.carried):
                if obj is not None and obj is not WALL_OBJECT:
                    obj._tracked_by = None
        self.world = None

    def _make(self, cell: int, k: int) -> GridObject | None:
        """A new object for cell number k, counted row by row."""
        if cell == WALL_CELL:
            return WALL_OBJECT
        obj = object_of(cell, int(self.live_world.hidden))
        if obj is not None:
            self._settle(obj, k)
            if obj.type != "door":
                obj.init_pos = obj._cur_pos
        return obj

    def _settle(self, obj: GridObject, k: int) -> None:
        """Records that an object is in cell number k."""
        if obj is not WALL_OBJECT:
            obj._tracked_by = self
            y, x = divmod(k, self.width)
            obj._cur_pos = (x, y)

    def _carry(self, obj: GridObject | None) -> None:
        """Records what the agent carries."""
        self.carried = obj
        if obj is not None:
            obj._tracked_by = self
            obj._cur_pos = NO_POSITION

    def _left_cell(self) -> Position | None:
        """Where the carried object was, if the judge still tracks it there; None otherwise."""
        world = self.live_world
        rows = world.tracks.reshape(MAX_SIZE, STRIDE)[: self.height, : self.width]
        ys, xs = np.nonzero(((rows & world.carried_tracks) != 0) & (grid_cells(world) == EMPTY))
        return (int(xs[0]), int(ys[0])) if len(xs) == 1 else None

    def _number(self, x: int, y: int) -> int:
        return y * self.width + x

    # ------------------------------------------------------------ following the world

    def follow(self) -> None:
        """Updates the objects after one step, which changes at most the agent's hand and the cell in front of it."""
        if not self.is_built:
            return
        world = self.live_world
        x, y = position_of(world.agent)
        dx, dy = VECTORS[world.agent_dir]
        k = self._number(x + dx, y + dy)
        cell = int(world.cells[index_of(x + dx, y + dy)])
        in_front = self.objects[k]
        if world.carrying and self.carried is None:
            self._carry(in_front)
            self.objects[k] = None
        elif self.carried is not None and not world.carrying:
            self._settle(self.carried, k)
            self.objects[k] = self.carried
            self._carry(None)
        elif in_front is not None and in_front._cell != cell:
            self._follow_toggle(in_front, k, cell)

    def _follow_toggle(self, obj: GridObject, k: int, cell: int) -> None:
        """A door has changed its state, or a box has been replaced by its contents."""
        if cell & KIND_MASK in (DOOR, LOCKED_DOOR):
            obj._cell = cell
            return
        obj._tracked_by = None
        content = obj._contains
        self.objects[k] = content
        if content is not None:
            content._cell = cell
            self._settle(content, k)

    # ------------------------------------------------------------ changing the world

    def rewrite(self, obj: GridObject) -> None:
        """Writes the byte of an object that has changed its color or state into the world."""
        world = self.live_world
        if obj is self.carried:
            world.carrying = obj._cell
        else:
            assert obj._cur_pos is not None
            world.cells[index_of(*obj._cur_pos)] = obj._cell
        self._engine.observe(self._index)

    def put(self, x: int, y: int, given: Any) -> None:
        """Puts an object on a cell, or nothing; what was there leaves the world.

        An object that the mission refers to still counts for it, wherever it is put.
        """
        world = self.live_world
        obj = None if given is None else adopt(given)
        self._check_put(x, y, obj)
        k = self._number(x, y)
        p = index_of(x, y)
        before = self.objects[k]
        if before is not None and before is not WALL_OBJECT:
            before._tracks = int(world.tracks[p - ORIGIN])
            before._tracked_by = None
        self.objects[k] = obj
        world.tracks[p - ORIGIN] = 0 if obj is None else obj._tracks
        if obj is not None:
            self._settle(obj, k)
            self._fill_box(obj)
        world.cells[p] = EMPTY if obj is None else obj._cell
        self._forget_rooms()
        self._engine.observe(self._index)

    def carry(self, given: Any) -> None:
        """Puts an object into the agent's hand, taking it out of the grid, or nothing."""
        world = self.live_world
        obj = None if given is None else adopt(given)
        if obj is not None and not obj.can_pickup():
            raise ValueError(f"the agent can carry a key, a ball or a box, not a {obj.type}")
        if obj is self.carried and obj is not None:
            return
        if obj is not None and obj._tracked_by is self and obj._cur_pos is not None:
            self.put(*obj._cur_pos, None)
        if self.carried is not None:
            self.carried._tracks = int(world.carried_tracks)
            self.carried._tracked_by = None
        self._carry(obj)
        if obj is not None:
            self._fill_box(obj)
        world.carrying = 0 if obj is None else obj._cell
        world.carried_tracks = 0 if obj is None else obj._tracks
        self._engine.observe(self._index)

    def _check_put(self, x: int, y: int, obj: GridObject | None) -> None:
        on_border = x in (0, self.width - 1) or y in (0, self.height - 1)
        if on_border and (obj is None or obj._cell & KIND_MASK != WALL):
            raise ValueError(f"cell ({x}, {y}) is on the border of the grid, which must stay wall")
        if obj is None:
            return
        if (x, y) == position_of(self.live_world.agent) and not obj.can_overlap():
            raise ValueError(f"the agent is at ({x}, {y}); move it first")
        if obj is not WALL_OBJECT and obj._tracked_by is not None and obj._cur_pos != (x, y):
            where = "in the agent's hand" if obj._cur_pos == NO_POSITION else f"at {obj._cur_pos}"
            how = "set carrying to None" if obj._cur_pos == NO_POSITION else "empty that cell with grid.set(i, j, None)"
            raise ValueError(f"the {obj.color} {obj.type} is already {where}; {how} first, or make a new object")

    def _fill_box(self, obj: GridObject) -> None:
        """Puts the contents of a box into the world, which has room for those of one box."""
        if obj._cell & KIND_MASK != BOX or obj._contains is None:
            return
        others = [each for each in (*self.objects, self.carried) if each is not None and each is not obj]
        if any(each._cell & (KIND_MASK | MARKED) == BOX | MARKED for each in others):
            raise ValueError("only one box of a world can contain something")
        obj._cell |= MARKED
        self.live_world.hidden = obj._contains._cell

    # ------------------------------------------------------------ rooms and instructions

    @cached_property
    def rooms(self) -> Any:
        """The rooms, as rows of `Room`."""
        from babyai.envs.minigrid_rooms import find_rooms

        return find_rooms(self)

    def _forget_rooms(self) -> None:
        """The next look at the rooms finds the doors again."""
        vars(self).pop("rooms", None)

    @cached_property
    def instruction(self) -> Any:
        """The mission as an object with the attributes of Minigrid's `Instr`."""
        from babyai.envs.minigrid_instructions import read_instruction

        return read_instruction(self)
