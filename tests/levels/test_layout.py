"""Layouts: drawing and parsing round-trip, and errors name the line and column."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from babyai.levels.layout import CELL_TEXTS, Layout, LayoutError, grid_cells, parse_layout, place_layout
from babyai.render.text import draw_text
from babyai.world.codes import BALL, DOOR, EMPTY, OPAQUE, WALL_CELL, cell_of
from babyai.world.state import MAX_SIZE, index_of, make_worlds, position_of

SMALL = """
    ########
    ##>>ro##
    ##  g/##
    ########
"""


@st.composite
def layouts(draw: st.DrawFn) -> Layout:
    """Draws a random world with a border of wall; the agent is on an empty cell or in an open door."""
    width, height = draw(st.integers(3, MAX_SIZE)), draw(st.integers(3, MAX_SIZE))
    inside = (height - 2) * (width - 2)
    things = draw(st.lists(st.sampled_from(sorted(set(CELL_TEXTS.values()))), min_size=inside, max_size=inside))
    cells = np.full((height, width), WALL_CELL, dtype=np.uint8)
    cells[1:-1, 1:-1] = np.reshape(things, (height - 2, width - 2))
    x, y = draw(st.integers(1, width - 2)), draw(st.integers(1, height - 2))
    open_doors = [cell_of(DOOR, color) & ~OPAQUE for color in range(6)]
    cells[y, x] = draw(st.sampled_from([EMPTY, *open_doors]))
    return Layout(cells, (x, y), draw(st.integers(0, 3)))


@given(layouts())
def test_drawing_and_parsing_round_trip(layout: Layout) -> None:
    world = make_worlds(1)[0]
    place_layout(world, layout)
    again = parse_layout(draw_text(world))
    np.testing.assert_array_equal(again.cells, layout.cells)
    assert (again.agent, again.agent_dir) == (layout.agent, layout.agent_dir)


@given(st.text(alphabet="#.> rgo/d\n", max_size=80))
def test_arbitrary_text_parses_or_raises_layout_error(text: str) -> None:
    try:
        layout = parse_layout(text)
    except LayoutError:
        return
    assert layout.cells.dtype == np.uint8


def test_parsing_a_small_layout() -> None:
    layout = parse_layout(SMALL)
    assert (layout.width, layout.height, layout.agent, layout.agent_dir) == (4, 4, (1, 1), 0)
    assert layout.cells[1].tolist() == [WALL_CELL, EMPTY, cell_of(BALL, 0), WALL_CELL]
    assert layout.cells[2].tolist() == [WALL_CELL, EMPTY, cell_of(DOOR, 1) & ~OPAQUE, WALL_CELL]
    assert not layout.cells.flags.writeable


@pytest.mark.parametrize(("arrow", "heading"), [(">>", 0), ("vv", 1), ("<<", 2), ("^^", 3)])
def test_arrows_give_the_heading(arrow: str, heading: int) -> None:
    assert parse_layout(SMALL.replace(">>", arrow)).agent_dir == heading


def test_the_agent_may_stand_in_an_open_door() -> None:
    layout = parse_layout(SMALL.replace(">>", "b^"))
    assert layout.agent_dir == 3
    assert layout.cells[1, 1] == cell_of(DOOR, 2) & ~OPAQUE


def test_place_layout_overwrites_the_previous_world() -> None:
    world = make_worlds(1)[0]
    world.cells[:] = 77
    world.tracks[:] = 3
    world.carrying = cell_of(BALL, 1)
    world.hidden = cell_of(BALL, 2)
    layout = parse_layout(SMALL)
    place_layout(world, layout)
    assert (world.width, world.height, world.room_width, world.room_height) == (4, 4, 4, 4)
    assert position_of(world.agent) == (1, 1) and world.agent_dir == 0
    assert world.carrying == 0 and world.hidden == 0 and not world.tracks.any()
    np.testing.assert_array_equal(grid_cells(world), layout.cells)
    outside = np.ones(len(world.cells), dtype=bool)
    for y in range(4):
        outside[index_of(0, y) : index_of(4, y)] = False
    assert (world.cells[outside] == WALL_CELL).all()


BAD = {
    "empty": ("\n  \n", "is empty"),
    "unknown cell": (SMALL.replace("ro", "qq"), "line 3, column 9: 'qq' is not a cell; write '##'"),
    "reversed": (SMALL.replace("ro", "or"), "line 3, column 9: 'or' is not a cell; did you mean 'ro'?"),
    "upper case": (SMALL.replace("ro", "RO"), "line 3, column 9: 'RO' is not a cell; did you mean 'ro'?"),
    "ragged": (SMALL.replace("g/##", "##"), "line 4, column 11: the row has 3 cells but the first row has 4"),
    "blank row": (SMALL.replace("    ##>>", "\n    ##>>"), "line 3, column 5: the row has 0 cells"),
    "odd length": (SMALL.replace("ro", "r"), "line 3 has 7 characters"),
    "no agent": (SMALL.replace(">>", ".."), "line 2, column 5 to line 5, column 12: there is no agent"),
    "two agents": (
        SMALL.replace("ro", "<<"),
        "line 3, column 9: '<<' is a second agent; the first is at line 3, column 7",
    ),
    "too small": ("####\n##>>", "line 1, column 1: the layout is too small: it has 2 columns"),
    "too wide": ("\n".join(["##" * (MAX_SIZE + 1)] * 3), f"too large: it has {MAX_SIZE + 1} columns"),
    "too tall": ("\n".join(["######"] * (MAX_SIZE + 1)), f"too large: it has {MAX_SIZE + 1} rows"),
    "hole in the border": (SMALL.replace("ro##", "ro.."), "line 3, column 11: '..' is on the border"),
    "door in the border": (SMALL.replace("ro##", "rord"), "line 3, column 11: 'rd' is on the border"),
    "agent in the border": ("##>>##\n##..##\n######", "line 1, column 3: '>>' is on the border"),
}


@pytest.mark.parametrize(("text", "message"), BAD.values(), ids=BAD.keys())
def test_errors_name_the_line_and_column(text: str, message: str) -> None:
    with pytest.raises(LayoutError) as caught:
        parse_layout(text)
    assert message in str(caught.value)
