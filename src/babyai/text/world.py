"""A whole world in English: its size, rooms, doors and objects with their positions, and where the agent is."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from babyai.engine import Engine
from babyai.levels.layout import grid_cells
from babyai.text.view import name_object
from babyai.world.codes import DOOR, EMPTY, KIND_MASK, LOCKED_DOOR, TRIPLES, VECTORS, WALL
from babyai.world.state import NOT_RESET, position_of

# By heading: 0 right, 1 down, 2 left, 3 up.
HEADINGS = ("east", "south", "west", "north")

Position = tuple[int, int]


def describe_world(env: Any, index: int = 0) -> list[str]:
    """Sentences from which the world can be drawn: everything but what is inside boxes.

    Args:
        env: A babyai environment, single or vector, wrapped or not; or an engine.
        index: Number of the world, in a vector environment.

    Raises:
        RuntimeError: The environment has not been reset.
    """
    world = find_world(find_engine(env), index)
    rooms = Rooms(world)
    return [
        f"The world is a grid of {world.width} columns and {world.height} rows. A position (x, y) is column x from the "
        f"west and row y from the north, both counted from 0.",
        *rooms.describe(),
        *_describe_cells(world, rooms),
        *_describe_agent(world, rooms),
    ]


def find_engine(env: Any) -> Engine:
    """The engine of an environment, wrapped or not; of an engine, itself."""
    engine = env if isinstance(env, Engine) else getattr(getattr(env, "unwrapped", env), "engine", None)
    if not isinstance(engine, Engine):
        raise TypeError(f"expected a babyai environment or engine, got {env!r}")
    return engine


def find_world(engine: Engine, index: int) -> np.record:
    """One of the engine's worlds; raises an error if there is none or if it has not been reset."""
    if not 0 <= index < engine.num_worlds:
        raise IndexError(f"there is no world {index}; worlds are numbered 0..{engine.num_worlds - 1}")
    world = engine.worlds[index]
    if world.status == NOT_RESET:
        raise RuntimeError(f"world {index} has not been reset yet: call reset() first")
    return world


class Rooms:
    """The rooms of a world, numbered from 1, row by row; a layout is one room."""

    def __init__(self, world: np.record) -> None:
        self.inner_width = int(world.room_width) - 1
        self.inner_height = int(world.room_height) - 1
        self.columns = (int(world.width) - 1) // self.inner_width
        self.rows = (int(world.height) - 1) // self.inner_height

    def describe(self) -> list[str]:
        """The rooms and their extent."""
        count = self.columns * self.rows
        if count == 1:
            return [f"It is one room with walls around it: {self._extent(0, 0)}."]
        grid = f"{self.rows} row{'s' if self.rows > 1 else ''} of {self.columns}"
        sentences = [f"There are {count} rooms in {grid}, with walls between and around them."]
        for row in range(self.rows):
            for column in range(self.columns):
                sentences.append(f"Room {row * self.columns + column + 1}: {self._extent(column, row)}.")
        return sentences

    def is_boundary(self, position: Position) -> bool:
        """Whether a position is where rooms have their walls."""
        x, y = position
        return x % self.inner_width == 0 or y % self.inner_height == 0

    def locate(self, position: Position) -> str:
        """The room or rooms of a position: " in room 2", " between room 1 and room 2"; empty if there is one room."""
        if self.columns * self.rows == 1:
            return ""
        x, y = position
        columns = range((x - 1) // self.inner_width, x // self.inner_width + 1)
        rows = range((y - 1) // self.inner_height, y // self.inner_height + 1)
        numbers = [
            f"room {row * self.columns + column + 1}"
            for row in rows
            for column in columns
            if 0 <= row < self.rows and 0 <= column < self.columns
        ]
        return f" {'in' if len(numbers) == 1 else 'between'} {' and '.join(numbers)}"

    def _extent(self, column: int, row: int) -> str:
        left = column * self.inner_width + 1
        top = row * self.inner_height + 1
        return f"x from {left} to {left + self.inner_width - 2}, y from {top} to {top + self.inner_height - 2}"


def _describe_cells(world: np.record, rooms: Rooms) -> list[str]:
    """Walls where there is usually none, and none where there usually is one; doors; objects."""
    cells = {(x, y): int(cell) for (y, x), cell in np.ndenumerate(grid_cells(world))}
    kinds = {position: cell & KIND_MASK for position, cell in cells.items()}
    walls = [each for each, kind in kinds.items() if kind == WALL and not rooms.is_boundary(each)]
    doors = [each for each, kind in kinds.items() if kind in (DOOR, LOCKED_DOOR)]
    gaps = [each for each, kind in kinds.items() if kind not in (WALL, DOOR, LOCKED_DOOR) and rooms.is_boundary(each)]
    objects = [each for each, kind in kinds.items() if kind not in (WALL, EMPTY, DOOR, LOCKED_DOOR)]
    sentences = []
    if walls:
        sentences.append(f"There are walls inside at {_list_runs(walls)}.")
    if gaps:
        sentences.append(f"There is no wall at {_list_runs(gaps)}.")
    for position in doors + objects:
        name = name_object(TRIPLES[cells[position]])
        sentences.append(f"There is {name} at {position}{rooms.locate(position)}.")
    return sentences


def _describe_agent(world: np.record, rooms: Rooms) -> list[str]:
    x, y = position_of(world.agent)
    dx, dy = VECTORS[world.agent_dir]
    carried = name_object(TRIPLES[world.carrying]) if world.carrying else "nothing"
    return [
        f"You are at {(x, y)}{rooms.locate((x, y))}, facing {HEADINGS[world.agent_dir]}, toward {(x + dx, y + dy)}.",
        f"You carry {carried}.",
    ]


def _list_runs(positions: Iterable[Position]) -> str:
    """Positions, with those in a straight line combined: "(3, 1) to (3, 5), (7, 2)"."""
    left = set(positions)
    runs = []
    while left:
        first = min(left)
        run = max((_follow(first, step, left) for step in ((0, 1), (1, 0))), key=len)
        left -= set(run)
        runs.append(f"{run[0]}" if len(run) == 1 else f"{run[0]} to {run[-1]}")
    return ", ".join(runs)


def _follow(first: Position, step: Position, among: set[Position]) -> list[Position]:
    """The positions from the first one on, as long as they are among these."""
    run = [first]
    while (following := (run[-1][0] + step[0], run[-1][1] + step[1])) in among:
        run.append(following)
    return run
