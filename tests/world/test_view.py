"""The agent's view, for all view sizes, against a cell-by-cell reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from babyai import Engine
from babyai.engine import VIEW_SIZES
from babyai.levels.layout import CELL_TEXTS, Layout, place_layout
from babyai.world.codes import BALL, BOX, DOOR, EMPTY, OPAQUE, WALL_CELL, cell_of
from babyai.world.state import MAX_SIZE, index_of
from tests.reference import compute_view, compute_visibility
from tests.scale import scaled

THINGS = sorted(set(CELL_TEXTS.values()))
OPEN_DOOR = cell_of(DOOR, 3) & ~OPAQUE


def random_layout(rng: np.random.Generator, clutter: float) -> Layout:
    """Returns a world of random size; a fraction of its cells holds random objects, doors and walls."""
    width, height = rng.integers(3, MAX_SIZE + 1, size=2).tolist()
    cells = np.full((height, width), WALL_CELL, dtype=np.uint8)
    inside = rng.choice(THINGS, size=(height - 2, width - 2))
    cells[1:-1, 1:-1] = np.where(rng.random(inside.shape) < clutter, inside, EMPTY)
    x, y = int(rng.integers(1, width - 1)), int(rng.integers(1, height - 1))
    cells[y, x] = rng.choice([EMPTY, OPEN_DOOR])
    return Layout(cells, (x, y), int(rng.integers(4)))


def observe(engine: Engine, layout: Layout, carrying: int) -> np.ndarray:
    place_layout(engine.worlds[0], layout)
    engine.worlds[0].carrying = carrying
    # The view does not depend on the mission, but observing also writes its tokens.
    engine.worlds[0].verbs[0] = 1
    engine.observe(0)
    return engine.images[0]


@settings(max_examples=scaled(60, least=5))
@given(st.integers(0, 2**32), st.sampled_from(VIEW_SIZES), st.sampled_from([0.05, 0.2, 0.5, 0.9]))
def test_views_of_any_size_match_the_reference(seed: int, size: int, clutter: float) -> None:
    rng = np.random.default_rng(seed)
    engine = Engine("GoToObj", view_size=size)
    for _ in range(scaled(20, least=2)):
        layout = random_layout(rng, clutter)
        carrying = int(rng.choice([0, cell_of(BALL, 1), cell_of(BOX, 5)]))
        image = observe(engine, layout, carrying)
        np.testing.assert_array_equal(image, compute_view(engine.worlds[0], size))


def test_thousands_of_default_views_match_the_reference() -> None:
    rng = np.random.default_rng(0)
    engine = Engine("GoToObj")
    for _ in range(scaled(1500, least=30)):
        image = observe(engine, random_layout(rng, rng.choice([0.1, 0.3])), 0)
        np.testing.assert_array_equal(image, compute_view(engine.worlds[0]))


def test_views_do_not_depend_on_cells_outside_the_grid() -> None:
    # Beyond the outer wall, the flat index reads other rows: no view may show them.
    rng = np.random.default_rng(1)
    for size in (7, 9):
        engine = Engine("GoToObj", view_size=size)
        for _ in range(scaled(200, least=10)):
            layout = random_layout(rng, 0.1)
            before = observe(engine, layout, 0).copy()
            world = engine.worlds[0]
            inside = np.zeros(len(world.cells), dtype=bool)
            for y in range(layout.height):
                inside[index_of(0, y) : index_of(layout.width, y)] = True
            world.cells[~inside] = cell_of(BALL, 2)
            engine.observe(0)
            np.testing.assert_array_equal(engine.images[0], before)


def test_reference_visibility_on_a_small_example() -> None:
    """Checks the reference itself; the agent is in the middle of the last row."""
    drawing = """
        .......
        #######
        .......
        ....#..
        ....#..
        ....#..
        ....#..
    """
    expected = """
        .......
        *******
        *******
        *****..
        *****..
        *****..
        *****..
    """
    opaque = np.array([[mark == "#" for mark in row] for row in drawing.split()]).T
    visible = np.array([[mark == "*" for mark in row] for row in expected.split()]).T
    np.testing.assert_array_equal(compute_visibility(opaque), visible)


@pytest.mark.parametrize("size", VIEW_SIZES)
def test_view_in_a_room_of_one_cell(size: int) -> None:
    engine = Engine("GoToObj", view_size=size)
    layout = Layout(
        np.array([[WALL_CELL] * 3, [WALL_CELL, EMPTY, WALL_CELL], [WALL_CELL] * 3], dtype=np.uint8), (1, 1), 3
    )
    image = observe(engine, layout, cell_of(BALL, 4))
    half = size // 2
    assert image[half, size - 1].tolist() == [6, 4, 0]
    walls = {(half - 1, size - 1), (half + 1, size - 1), (half - 1, size - 2), (half, size - 2), (half + 1, size - 2)}
    assert {tuple(map(int, place)) for place in np.argwhere(image[..., 0] == 2)} == walls
    assert (image[..., 0] > 0).sum() == len(walls) + 1


def test_objects_and_open_doors_do_not_block_the_view() -> None:
    engine = Engine("GoToObj")
    engine.lay_out(
        0,
        """
        ##################
        ##..............##
        ##............ro##
        ##>>bobkbxb/gdro##
        ##..............##
        ##..............##
        ##################
        """,
        "go to a red ball",
    )
    ahead = [engine.images[0, 3, vy].tolist() for vy in range(6, -1, -1)]
    assert ahead == [[1, 0, 0], [6, 2, 0], [5, 2, 0], [7, 2, 0], [4, 2, 0], [4, 1, 1], [6, 0, 0]]
