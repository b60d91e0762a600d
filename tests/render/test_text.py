"""Text rendering of the grid."""

import re

import numpy as np

from babyai.levels.layout import parse_layout, place_layout
from babyai.render.text import draw_text
from babyai.world.codes import BOX, MARKED, cell_of
from babyai.world.state import index_of, make_worlds

ROOM = "\n".join(
    [
        "##############",
        "##ro......gk##",
        "##..r>bx....##",
        "##yd##al##p/##",
        "##############",
    ]
)


def world_from(text: str) -> np.record:
    world = make_worlds(1)[0]
    place_layout(world, parse_layout(text))
    return world


def test_draw_text_reproduces_the_layout() -> None:
    assert draw_text(world_from(ROOM)) == ROOM


def test_color_only_adds_ansi_codes() -> None:
    colored = draw_text(world_from(ROOM), color=True)
    assert "\x1b[1;31mro\x1b[0m" in colored
    assert re.sub(r"\x1b\[[0-9;]*m", "", colored) == ROOM


def test_contents_of_a_box_are_not_shown() -> None:
    world = world_from(ROOM)
    world.cells[index_of(2, 1)] = cell_of(BOX, 2) | MARKED
    assert "##robx" in draw_text(world)
