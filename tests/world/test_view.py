"""What the agent sees: the table of sight and the wide views against cell-by-cell sweeps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from babyai import Engine
from babyai.engine import VIEW_SIZES
from babyai.levels.layout import CELL_TEXTS, Layout, place_layout
from babyai.world.codes import BALL, BOX, DOOR, EMPTY, OPAQUE, WALL_CELL, cell_of
from babyai.world.state import MAX_SIZE, index_of
from tests.reference import see, spread_sight
from tests.scale import scaled

THINGS = sorted(set(CELL_TEXTS.values()))
OPEN_DOOR = cell_of(DOOR, 3) & ~OPAQUE


def random_layout(rng: np.random.Generator, clutter: float) -> Layout:
    """A walled-in world of any size; a share of its cells holds any thing at all, walls and doors included."""
    width, height = rng.integers(3, MAX_SIZE + 1, size=2).tolist()
    cells = np.full((height, width), WALL_CELL, dtype=np.uint8)
    inside = rng.choice(THINGS, size=(height - 2, width - 2))
    cells[1:-1, 1:-1] = np.where(rng.random(inside.shape) < clutter, inside, EMPTY)
    x, y = int(rng.integers(1, width - 1)), int(rng.integers(1, height - 1))
    cells[y, x] = rng.choice([EMPTY, OPEN_DOOR])
    return Layout(cells, (x, y), int(rng.integers(4)))


def show(engine: Engine, layout: Layout, carrying: int) -> np.ndarray:
    place_layout(engine.worlds[0], layout)
    engine.worlds[0].carrying = carrying
    # Missions play no part in what is seen, but one must be there to be written down.
    engine.worlds[0].verbs[0] = 1
    engine.observe(0)
    return engine.images[0]


@settings(max_examples=scaled(60, least=5))
@given(st.integers(0, 2**32), st.sampled_from(VIEW_SIZES), st.sampled_from([0.05, 0.2, 0.5, 0.9]))
def test_views_are_swept_cell_by_cell(seed: int, size: int, clutter: float) -> None:
    rng, engine = np.random.default_rng(seed), Engine("GoToObj", view_size=size)
    for _ in range(scaled(20, least=2)):
        layout, carrying = random_layout(rng, clutter), int(rng.choice([0, cell_of(BALL, 1), cell_of(BOX, 5)]))
        image = show(engine, layout, carrying)
        np.testing.assert_array_equal(image, see(engine.worlds[0], size))


def test_thousands_of_usual_views() -> None:
    rng, engine = np.random.default_rng(0), Engine("GoToObj")
    for _ in range(scaled(1500, least=30)):
        image = show(engine, random_layout(rng, rng.choice([0.1, 0.3])), 0)
        np.testing.assert_array_equal(image, see(engine.worlds[0]))


def test_sight_never_leaves_the_grid() -> None:
    # Behind the outer wall lies the next row's memory: neither view may show any of it.
    rng = np.random.default_rng(1)
    for size in (7, 9):
        engine = Engine("GoToObj", view_size=size)
        for _ in range(scaled(200, least=10)):
            layout = random_layout(rng, 0.1)
            before = show(engine, layout, 0).copy()
            world = engine.worlds[0]
            inside = np.zeros(len(world.cells), dtype=bool)
            for y in range(layout.height):
                inside[index_of(0, y) : index_of(layout.width, y)] = True
            world.cells[~inside] = cell_of(BALL, 2)
            engine.observe(0)
            np.testing.assert_array_equal(engine.images[0], before)


def test_the_sweep_by_hand() -> None:
    """The reference itself, on a case to follow with a finger: the agent is in the middle of the last row."""
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
    np.testing.assert_array_equal(spread_sight(opaque), visible)


@pytest.mark.parametrize("size", VIEW_SIZES)
def test_alone_in_a_closet(size: int) -> None:
    engine = Engine("GoToObj", view_size=size)
    layout = Layout(
        np.array([[WALL_CELL] * 3, [WALL_CELL, EMPTY, WALL_CELL], [WALL_CELL] * 3], dtype=np.uint8), (1, 1), 3
    )
    image = show(engine, layout, cell_of(BALL, 4))
    half = size // 2
    assert image[half, size - 1].tolist() == [6, 4, 0]
    walls = {(half - 1, size - 1), (half + 1, size - 1), (half - 1, size - 2), (half, size - 2), (half + 1, size - 2)}
    assert {tuple(map(int, place)) for place in np.argwhere(image[..., 0] == 2)} == walls
    assert (image[..., 0] > 0).sum() == len(walls) + 1


def test_boxes_balls_keys_and_open_doors_hide_nothing() -> None:
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
