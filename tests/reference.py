"""Slow, obvious reference implementations of the kernels, written from the rules alone."""

from collections import deque

import numpy as np

from babyai.levels.layout import grid_cells
from babyai.world.codes import (
    BALL,
    BOX,
    COLORS,
    DOOR,
    EMPTY,
    KEY,
    KIND_MASK,
    LOCKED_DOOR,
    NOUNS,
    OPAQUE,
    TRIPLES,
    VECTORS,
    WALL,
    Action,
)
from babyai.world.state import position_of

Position = tuple[int, int]
UNSEEN_TILE = (0, 0, 0)
EMPTY_TILE = (1, 0, 0)
WALL_TILE = (2, 5, 0)


# ---------------------------------------------------------------- the contents of a world


def encode_grid(world: np.record) -> np.ndarray:
    """Returns the whole grid as Minigrid's `grid.encode()` does: (W, H, 3) uint8."""
    return np.ascontiguousarray(TRIPLES[grid_cells(world)].transpose(1, 0, 2))


def things_of(world: np.record) -> dict[Position, str]:
    """Returns every object and door by its (x, y): "red ball", "closed blue door", "locked grey door"."""
    found = {}
    for y, row in enumerate(grid_cells(world).tolist()):
        for x, cell in enumerate(row):
            kind = cell & KIND_MASK
            color = COLORS[cell >> 4 & 7] if cell >> 4 & 7 < len(COLORS) else ""
            if kind in (KEY, BALL, BOX):
                found[x, y] = f"{color} {NOUNS[kind]}"
            elif kind in (DOOR, LOCKED_DOOR):
                state = "locked" if kind == LOCKED_DOOR else "closed" if cell & OPAQUE else "open"
                found[x, y] = f"{state} {color} door"
    return found


def doors_of(world: np.record) -> dict[Position, str]:
    return {place: thing for place, thing in things_of(world).items() if thing.endswith("door")}


def objects_of(world: np.record) -> dict[Position, str]:
    return {place: thing for place, thing in things_of(world).items() if not thing.endswith("door")}


def differing_fields(a: np.ndarray, b: np.ndarray) -> list[str]:
    """Returns the names of the fields in which two worlds, or two arrays of worlds, differ."""
    return [name for name in a.dtype.names if not np.array_equal(a[name], b[name])]


def generator_state(world: np.record) -> dict:
    """Returns the world's generator in the format of NumPy's `bit_generator.state`."""
    state = {name: int(world[f"rng_{name}"]) for name in ("high", "low", "inc_high", "inc_low")}
    return {
        "bit_generator": "PCG64",
        "state": {"state": state["high"] << 64 | state["low"], "inc": state["inc_high"] << 64 | state["inc_low"]},
        "has_uint32": int(world["rng_has_spare"]),
        "uinteger": int(world["rng_spare"]),
    }


# ---------------------------------------------------------------- visibility


def compute_visibility(opaque: np.ndarray) -> np.ndarray:
    """Returns which cells of a view are visible: (n, n) bool, indexed [vx, vy] like `opaque`."""
    n = len(opaque)
    visible = np.zeros((n, n), dtype=bool)
    visible[n // 2, n - 1] = True
    for vy in reversed(range(n)):
        sweeps = [(vx, vx + 1) for vx in range(n - 1)] + [(vx, vx - 1) for vx in range(n - 1, 0, -1)]
        for vx, side in sweeps:
            if visible[vx, vy] and not opaque[vx, vy]:
                visible[side, vy] = True
                if vy > 0:
                    visible[side, vy - 1] = True
                    visible[vx, vy - 1] = True
    return visible


def compute_view(world: np.record, size: int = 7) -> np.ndarray:
    """Returns the agent's view, (size, size, 3) uint8, computed cell by cell."""
    x, y = position_of(world.agent)
    dx, dy = VECTORS[world.agent_dir]
    grid = encode_grid(world)
    tiles = np.zeros((size, size, 3), dtype=np.uint8)
    for vx in range(size):
        for vy in range(size):
            ahead = size - 1 - vy
            right = vx - size // 2
            wx = x + dx * ahead - dy * right
            wy = y + dy * ahead + dx * right
            inside = 0 <= wx < world.width and 0 <= wy < world.height
            tiles[vx, vy] = grid[wx, wy] if inside else WALL_TILE
    closed_door = (tiles[..., 0] == 4) & (tiles[..., 2] != 0)
    visible = compute_visibility((tiles[..., 0] == 2) | closed_door)
    tiles[~visible] = UNSEEN_TILE
    tiles[size // 2, size - 1] = TRIPLES[int(world.carrying)] if world.carrying else EMPTY_TILE
    return tiles


# ---------------------------------------------------------------- paths and rooms


def reachable_cells(world: np.record) -> set[Position]:
    """Returns the cells reachable from the agent through empty cells and all doors, including what bounds them."""
    cells = grid_cells(world)
    reached = set()
    stack = [position_of(world.agent)]
    while stack:
        x, y = stack.pop()
        if (x, y) in reached or not (0 <= x < world.width and 0 <= y < world.height):
            continue
        reached.add((x, y))
        if cells[y, x] & KIND_MASK in (EMPTY, DOOR, LOCKED_DOOR):
            stack += [(x + dx, y + dy) for dx, dy in VECTORS]
    return reached


def everything_is_reachable(world: np.record) -> bool:
    return things_of(world).keys() <= reachable_cells(world)


def path_to_face(world: np.record, target: Position) -> list[Action] | None:
    """Returns the shortest actions to face `target`, through empty cells and open doors; None if there is no path."""
    cells = grid_cells(world)
    start = (*position_of(world.agent), int(world.agent_dir))
    paths: dict[tuple[int, int, int], list[Action]] = {start: []}
    queue = deque([start])
    while queue:
        x, y, heading = here = queue.popleft()
        dx, dy = VECTORS[heading]
        if (x + dx, y + dy) == target:
            return paths[here]
        cell = int(cells[y + dy, x + dx])
        free = cell & KIND_MASK == EMPTY or cell & (KIND_MASK | OPAQUE) == DOOR
        successors = {
            Action.left: (x, y, (heading - 1) % 4),
            Action.right: (x, y, (heading + 1) % 4),
            Action.forward: (x + dx, y + dy, heading) if free else here,
        }
        for action, there in successors.items():
            if there not in paths:
                paths[there] = [*paths[here], action]
                queue.append(there)
    return None


def room_of(world: np.record, place: Position) -> tuple[int, int]:
    """Returns the (column, row) of the room that contains the cell."""
    return place[0] // (int(world.room_width) - 1), place[1] // (int(world.room_height) - 1)


def rooms_joined_by(world: np.record, door: Position) -> list[tuple[int, int]]:
    """Returns the two rooms that a door joins."""
    x, y = door
    is_in_vertical_wall = x % (int(world.room_width) - 1) == 0
    sides = [(x - 1, y), (x + 1, y)] if is_in_vertical_wall else [(x, y - 1), (x, y + 1)]
    return [room_of(world, side) for side in sides]


assert WALL_TILE[0] == WALL
