"""The building blocks of levels: reachability, connected rooms, and the start of the agent."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from babyai import LEVELS, Engine, _jit
from babyai.levels.blocks import all_reachable, put
from babyai.levels.draft import make_draft
from babyai.levels.layout import CELL_TEXTS, Layout, grid_cells, place_layout
from babyai.world.codes import DOOR, EMPTY, KIND_MASK, LOCKED_DOOR, VECTORS, WALL, WALL_CELL
from babyai.world.state import MAX_SIZE, ORIGIN, STRIDE, index_of, make_worlds, position_of
from tests.reference import everything_is_reachable, reachable_cells, things_of
from tests.scale import COMPILER_OFF, scaled

ALL_CELLS = sorted(set(CELL_TEXTS.values()))


@_jit.njit
def fill_draft(worlds, draft, bits):
    """Registers the contents of a world in a draft, as if they had been placed one by one."""
    s = worlds[0]
    d = draft[0]
    d.count = 0
    for y in range(int(s.height)):
        d.walkable[y] = bits[y]
        for x in range(int(s.width)):
            p = ORIGIN + y * STRIDE + x
            if s.cells[p] & KIND_MASK > WALL:
                put(s, d, p, int(s.cells[p]))


@_jit.njit
def reach_all(worlds, draft):
    return all_reachable(worlds[0], draft[0])


def for_kernels(records: np.recarray) -> np.ndarray:
    return records.view(np.ndarray) if _jit.COMPILED else records


@settings(max_examples=scaled(300, least=10))
@given(st.integers(0, 2**32), st.sampled_from([0.05, 0.15, 0.35]))
def test_all_reachable_matches_the_reference(seed: int, clutter: float) -> None:
    rng = np.random.default_rng(seed)
    width, height = rng.integers(3, MAX_SIZE + 1, size=2).tolist()
    cells = np.full((height, width), WALL_CELL, dtype=np.uint8)
    inside = rng.choice(ALL_CELLS, size=(height - 2, width - 2))
    cells[1:-1, 1:-1] = np.where(rng.random(inside.shape) < clutter, inside, EMPTY)
    x, y = int(rng.integers(1, width - 1)), int(rng.integers(1, height - 1))
    cells[y, x] = EMPTY
    worlds = make_worlds(1)
    draft = make_draft()
    place_layout(worlds[0], Layout(cells, (x, y), 0))
    rows = [sum(1 << i for i in range(width) if cells[j, i] == EMPTY) for j in range(height)]
    fill_draft(for_kernels(worlds), for_kernels(draft), np.array(rows, dtype=np.int64))
    assert draft[0].count == len(things_of(worlds[0]))
    assert reach_all(for_kernels(worlds), for_kernels(draft)) == everything_is_reachable(worlds[0])


# The recipes of these levels require everything to be reachable.
REACHABLE = ("GoToRedBall", "GoToLocal", "GoTo", "GoToObjDoor", "Open", "Pickup", "PutNextLocal", "PutNext", "GoToSeq")


def test_levels_without_blockers_are_fully_reachable() -> None:
    for name in REACHABLE[:: 4 if COMPILER_OFF else 1]:
        engine = Engine(name, scaled(100))
        engine.reset(0)
        assert all(map(everything_is_reachable, engine.worlds)), name


def test_unblock_pickup_always_has_an_unreachable_object() -> None:
    engine = Engine("UnblockPickup", scaled(100))
    engine.reset(0)
    assert not any(map(everything_is_reachable, engine.worlds))


def test_all_worlds_have_a_border_of_wall_and_connected_rooms() -> None:
    """The border is wall, and all rooms are connected once objects are removed."""
    engine = Engine(list(LEVELS), len(LEVELS) * scaled(10))
    engine.reset(7)
    for world in engine.worlds:
        cells = grid_cells(world)
        border = [*cells[0], *cells[-1], *cells[:, 0], *cells[:, -1]]
        assert set(border) == {WALL_CELL}
        name = engine.levels[world.level].name
        if name.startswith(("Test", "GoToDoor", "GoToObjDoor", "OpenDoor", "OpenTwo", "OpenRedBlue")) or name in (
            *("ActionObjDoor", "UnlockLocal", "UnlockLocalDist", "KeyInBox", "UnlockToUnlock"),
        ):
            # These levels have rooms around the agent's that need not be entered and are not connected.
            continue
        cleared = world.copy()
        kinds = grid_cells(cleared) & KIND_MASK
        grid_cells(cleared)[(kinds > 4)] = EMPTY
        free = {(int(x), int(y)) for y, x in np.argwhere(grid_cells(cleared) & KIND_MASK != WALL)}
        assert free <= reachable_cells(cleared), name


def test_the_agent_starts_on_an_empty_cell_not_facing_an_object() -> None:
    """It may face a door only in levels that add doors after placing the agent."""
    # The hand-placed levels fix the agent's position.
    names = [name for name in LEVELS if not name.startswith("Test")]
    engine = Engine(names, len(names) * scaled(20))
    engine.reset(0)
    for world in engine.worlds:
        x, y = position_of(world.agent)
        dx, dy = VECTORS[world.agent_dir]
        level = engine.levels[world.level]
        facing = int(grid_cells(world)[y + dy, x + dx]) & KIND_MASK
        assert grid_cells(world)[y, x] == EMPTY
        assert facing in (EMPTY, WALL, DOOR, LOCKED_DOOR), level.name
        if level.recipe in ("random_level", "open_one_door", "unlock", "go_to_door"):
            assert facing in (EMPTY, WALL), level.name


def test_flat_indices_convert_to_positions_and_back() -> None:
    assert index_of(0, 0) == ORIGIN and index_of(3, 2) == ORIGIN + 2 * STRIDE + 3
    assert position_of(index_of(17, 21)) == (17, 21)
