"""Descriptions of whole worlds: a world can be drawn again from what is said about it."""

import re

import gymnasium as gym
import numpy as np
import pytest

from babyai.engine import Engine
from babyai.levels.catalog import LEVELS
from babyai.levels.layout import grid_cells
from babyai.text.world import HEADINGS, describe_world
from babyai.world.codes import (
    BALL,
    BOX,
    COLORS,
    DOOR,
    EMPTY,
    KEY,
    LOCKED_DOOR,
    MARKED,
    OPAQUE,
    WALL_CELL,
    cell_of,
)
from babyai.world.state import position_of
from tests.scale import scaled

KINDS = {"key": KEY, "ball": BALL, "box": BOX}
DOORS = {"open": DOOR, "closed": DOOR, "locked": LOCKED_DOOR}


def places(text: str) -> list[tuple[int, int]]:
    """All positions in a list such as "(3, 1) to (3, 5), (7, 2)"."""
    found = []
    for first, last in re.findall(r"(\(\d+, \d+\))(?: to (\(\d+, \d+\)))?", text):
        x0, y0, x1, y1 = map(int, re.findall(r"\d+", first + (last or first)))
        found += [(x, y) for x in range(x0, x1 + 1) for y in range(y0, y1 + 1)]
    return found


def read_name(name: str) -> int:
    """The cell of "a closed red door"."""
    *state, color, kind = name.split()[1:]
    if kind != "door":
        return cell_of(KINDS[kind], COLORS.index(color))
    cell = cell_of(DOORS[state[0]], COLORS.index(color))
    return cell & ~OPAQUE if state == ["open"] else cell


def redraw(sentences: list[str]) -> np.ndarray:
    """The cells, (H, W), from a description; the slow opposite of `describe_world`."""
    text = "\n".join(sentences)
    [(width, height)] = re.findall(r"grid of (\d+) columns and (\d+) rows", text)
    cells = np.full((int(height), int(width)), WALL_CELL, dtype=np.uint8)
    for x0, x1, y0, y1 in re.findall(r"x from (\d+) to (\d+), y from (\d+) to (\d+)", text):
        cells[int(y0) : int(y1) + 1, int(x0) : int(x1) + 1] = EMPTY
    for pattern, cell in ((r"walls inside at (.*)\.", WALL_CELL), (r"no wall at (.*)\.", EMPTY)):
        for found in re.findall(pattern, text):
            for x, y in places(found):
                cells[y, x] = cell
    for name, x, y in re.findall(r"There is (an? [a-z ]+) at \((\d+), (\d+)\)", text):
        cells[int(y), int(x)] = read_name(name)
    return cells


def assert_described(engine: Engine, index: int) -> None:
    sentences = describe_world(engine, index)
    world = engine.worlds[index]
    expected = np.array(grid_cells(world))
    np.testing.assert_array_equal(redraw(sentences), expected & ~np.uint8(MARKED))
    x, y = position_of(world.agent)
    [found] = re.findall(r"You are at \((\d+), (\d+)\).*, facing (\w+), toward \((\d+), (\d+)\)\.", sentences[-2])
    assert (int(found[0]), int(found[1]), HEADINGS.index(found[2])) == (x, y, world.agent_dir)
    carried = sentences[-1].removeprefix("You carry ").removesuffix(".")
    assert (0 if carried == "nothing" else read_name(carried)) == int(world.carrying) & ~MARKED


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_can_be_redrawn(level: str) -> None:
    count = scaled(4, 1)
    engine = Engine(level, count)
    engine.reset(0)
    for actions in np.random.default_rng(0).choice(6, size=(scaled(60, 3), count), p=[0.1, 0.1, 0.4, 0.2, 0.05, 0.15]):
        engine.step(actions, skip_done=True)
    for index in range(count):
        assert_described(engine, index)


def test_rooms_doors_and_objects_are_located() -> None:
    env = gym.make("babyai/UnlockPickup-v0")
    env.reset(seed=0)
    assert describe_world(env)[1:] == [
        "There are 2 rooms in 1 row of 2, with walls between and around them.",
        "Room 1: x from 1 to 4, y from 1 to 4.",
        "Room 2: x from 6 to 9, y from 1 to 4.",
        "There is a locked green door at (5, 4) between room 1 and room 2.",
        "There is a purple box at (8, 1) in room 2.",
        "There is a green key at (4, 3) in room 1.",
        "You are at (3, 3) in room 1, facing north, toward (3, 2).",
        "You carry nothing.",
    ]


def test_a_layout_is_one_room_with_walls_inside() -> None:
    env = gym.make("babyai/GoToObj-v0")
    layout = "##############\n##>>..##..ro##\n##..##gd....##\n##....##....##\n##############"
    env.reset(options={"layout": layout, "mission": "go to the ball"})
    sentences = describe_world(env)
    assert "There are walls inside at (2, 2), (3, 1), (3, 3)." in sentences
    assert "There is a closed green door at (3, 2)." in sentences
    assert_described(env.unwrapped.engine, 0)  # pyright: ignore[reportAttributeAccessIssue]


def test_one_world_of_a_vector_environment() -> None:
    envs = gym.make_vec("babyai/GoTo-v0", num_envs=3)
    envs.reset(seed=4)
    env = gym.make("babyai/GoTo-v0")
    env.reset(seed=6)
    assert describe_world(envs, 2) == describe_world(env)


def test_bad_input_is_refused() -> None:
    env = gym.make("babyai/GoTo-v0")
    with pytest.raises(RuntimeError, match="reset"):
        describe_world(env)
    env.reset(seed=0)
    with pytest.raises(IndexError, match=r"no world 1.*0\.\.0"):
        describe_world(env, 1)
    with pytest.raises(TypeError, match="'BossLevel'"):
        describe_world("BossLevel")
