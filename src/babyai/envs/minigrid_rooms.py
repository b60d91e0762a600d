"""Rooms with the attributes of Minigrid's `Room`, found in the grid of a world."""

from dataclasses import dataclass, field
from typing import Any

from babyai.envs.minigrid_objects import GridObject, Position
from babyai.envs.minigrid_tracking import TrackedObjects

RIGHT, DOWN, LEFT, UP = range(4)


@dataclass(eq=False)
class Room:
    """One room of a world. Sides are in the order right, down, left, up."""

    top: Position
    """The (x, y) of its upper left corner, which is wall."""
    size: tuple[int, int]
    """Its width and height in cells, both walls included."""
    doors: list[Any] = field(default_factory=lambda: [None] * 4)
    """By side: the door; True if the wall was removed; None if there is a wall, or no neighbor."""
    door_pos: list[Position | None] = field(default_factory=lambda: [None] * 4)
    """By side: the (x, y) of the door; None without a door. (Minigrid also keeps where a door could have been.)"""
    neighbors: list["Room | None"] = field(default_factory=lambda: [None] * 4)
    """By side: the adjacent room."""
    _objects: TrackedObjects | None = field(default=None, repr=False)

    def pos_inside(self, x: int, y: int) -> bool:
        """Whether a cell belongs to the room, walls included."""
        left, upper = self.top
        width, height = self.size
        return left <= x < left + width and upper <= y < upper + height

    @property
    def locked(self) -> bool:
        """Whether all doors of the room are locked now; in Minigrid, whether a locked door was added to it."""
        doors = [door for door in self.doors if door is not None]
        return bool(doors) and all(door is not True and door.is_locked for door in doors)

    @property
    def objs(self) -> list[GridObject]:
        """The keys, balls and boxes in the room now; in Minigrid, when the episode began."""
        assert self._objects is not None
        left, upper = self.top
        width, height = self.size
        cells = ((x, y) for y in range(upper, upper + height) for x in range(left, left + width))
        found = (self._objects.grid.get(x, y) for x, y in cells)
        return [obj for obj in found if obj is not None and obj.can_pickup()]


def find_rooms(objects: TrackedObjects) -> list[list[Room]]:
    """All rooms of a world, as rows from the top, with their doors."""
    world = objects.live_world
    size = (int(world.room_width), int(world.room_height))
    across, down = size[0] - 1, size[1] - 1
    columns = (objects.width - 1) // across
    rows = (objects.height - 1) // down
    rooms = [
        [Room((i * across, j * down), size, _objects=objects) for i in range(columns)] for j in range(rows)
    ]  # fmt: skip
    for j in range(rows):
        for i in range(columns):
            room = rooms[j][i]
            if i + 1 < columns:
                wall = [((i + 1) * across, j * down + k) for k in range(1, down)]
                _join(objects, room, rooms[j][i + 1], RIGHT, wall)
            if j + 1 < rows:
                wall = [(i * across + k, (j + 1) * down) for k in range(1, across)]
                _join(objects, room, rooms[j + 1][i], DOWN, wall)
    return rooms


def _join(objects: TrackedObjects, room: Room, neighbor: Room, side: int, wall: list[Position]) -> None:
    """Makes two rooms neighbors and notes what is in the wall between them."""
    opposite = (side + 2) % 4
    room.neighbors[side] = neighbor
    neighbor.neighbors[opposite] = room
    for x, y in wall:
        obj = objects.grid.get(x, y)
        if obj is None or obj.type == "door":
            room.doors[side] = neighbor.doors[opposite] = obj or True
            room.door_pos[side] = neighbor.door_pos[opposite] = None if obj is None else (x, y)
            if obj is not None:
                return
