"""Text rendering of the grid, and descriptions of views."""

import re

import gymnasium
import numpy as np
import pytest

from babyai.levels.layout import parse_layout, place_layout
from babyai.render.text import describe_view, draw_text
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


def view_with(*objects: tuple[int, int, tuple[int, int, int]], size: int = 7) -> np.ndarray:
    """A view of empty floor with these (ahead, right, triple) objects."""
    image = np.zeros((size, size, 3), dtype=np.uint8)
    image[:, :, 0] = 1
    for ahead, right, triple in objects:
        image[size // 2 + right, size - 1 - ahead] = triple
    return image


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


def test_objects_are_described_nearest_first() -> None:
    image = view_with((3, 0, (4, 1, 1)), (2, 1, (6, 0, 0)), (0, -1, (7, 4, 0)), (1, 0, (5, 5, 0)), (0, 0, (5, 2, 0)))
    assert describe_view(image) == [
        "You see a grey key 1 step forward",
        "You see a yellow box 1 step left",
        "You see a closed green door 3 steps forward",
        "You see a red ball 2 steps forward and 1 step right",
        "You carry a blue key",
    ]


@pytest.mark.parametrize(("state", "words"), [(0, "an open"), (1, "a closed"), (2, "a locked")])
def test_doors_are_described_with_their_state(state: int, words: str) -> None:
    assert describe_view(view_with((1, 2, (4, 3, state)))) == [
        f"You see {words} purple door 1 step forward and 2 steps right"
    ]


def test_only_the_nearest_walls_ahead_left_and_right_are_described() -> None:
    wall = (2, 5, 0)
    image = view_with((4, 0, wall), (5, 0, wall), (0, -2, wall), (0, 3, wall), (2, 2, wall), size=9)
    assert describe_view(image) == [
        "You see a wall 2 steps left",
        "You see a wall 3 steps right",
        "You see a wall 4 steps forward",
    ]


def test_walls_behind_unseen_cells_are_not_described() -> None:
    image = view_with((3, 0, (2, 5, 0)))
    image[3, 4] = 0
    assert describe_view(image) == []


def test_every_object_in_minigrid_views_gets_one_sentence() -> None:
    env = gymnasium.make("BabyAI-BossLevel-v0")
    observation, _ = env.reset(seed=5)
    for action in np.random.default_rng(0).integers(0, 6, size=100):
        sentences = describe_view(observation["image"])
        objects = [sentence for sentence in sentences if "wall" not in sentence]
        assert len(objects) == (observation["image"][:, :, 0] > 2).sum()
        assert len(set(sentences)) == len(sentences)
        observation, *_ = env.step(int(action))
