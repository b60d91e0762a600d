"""Changing a world through Minigrid's names changes the world that is stepped, shown and judged."""

from typing import Any

import numpy as np
import pytest
from minigrid.core.world_object import Ball, Box, Door, Goal, Key, Wall

from babyai.envs.minigrid_objects import GridObject
from tests.envs.minigrid_pairs import make_pair, reset_pair

pytestmark = pytest.mark.compiled

ROOM = """
    ##############
    ##>>....ro..##
    ##..bk......##
    ##......gx..##
    ##..........##
    ##############
"""


def make_room(mission: str = "go to the red ball", **settings: Any) -> Any:
    ours, _ = make_pair("GoToLocal", **settings)
    ours.reset(seed=0, options={"layout": ROOM, "mission": mission})
    return ours


def assert_same_state(ours: Any, theirs: Any) -> None:
    np.testing.assert_array_equal(ours.grid.encode(), theirs.grid.encode())
    np.testing.assert_array_equal(ours.gen_obs()["image"], theirs.gen_obs()["image"])
    assert tuple(ours.agent_pos) == tuple(theirs.agent_pos) and ours.agent_dir == theirs.agent_dir
    assert ours.np_random.bit_generator.state == theirs.np_random.bit_generator.state


def is_far_left(env: Any, position: tuple[int, int]) -> bool:
    return position[0] < 3


@pytest.mark.parametrize("level", ["GoToLocal", "BossLevel"])
def test_place_and_put_draw_and_write_the_same_cells_as_minigrid(level: str) -> None:
    ours, theirs = make_pair(level)
    reset_pair(ours, theirs, 5)
    placed = []
    for env in (ours, theirs):
        room = env.get_room(0, 0)
        objects = (Ball("purple"), Key("grey"), Box("yellow"), Door("red", is_locked=True))
        positions = [env.place_obj(obj) for obj in objects]
        positions.append(env.place_obj(Ball("red"), room.top, room.size, is_far_left))
        spot = env.place_obj(None)
        env.put_obj(Wall(), *spot)
        placed.append([tuple(map(int, position)) for position in (*positions, spot)])
        assert [tuple(obj.cur_pos) for obj in objects] == [tuple(position) for position in positions[:4]]
    assert placed[0] == placed[1]
    assert_same_state(ours, theirs)


def test_the_agent_is_placed_as_in_minigrid() -> None:
    ours, theirs = make_pair("BossLevel")
    reset_pair(ours, theirs, 4)
    for i, j in ((None, None), (0, 2), (1, None)):
        assert ours.place_agent(i, j) == tuple(map(int, theirs.place_agent(i, j)))
        assert_same_state(ours, theirs)
    assert ours.place_agent(2, 2, rand_dir=False) == tuple(map(int, theirs.place_agent(2, 2, rand_dir=False)))
    assert_same_state(ours, theirs)
    # The draws count for the next episode.
    reset_pair(ours, theirs, None)
    assert_same_state(ours, theirs)


def test_setters_change_position_heading_and_time() -> None:
    env = make_room()
    env.agent_pos = (3, 1)
    env.agent_dir = 0
    obs, reward, terminated, *_ = env.step(env.actions.done)
    # The red ball is now in front of the agent.
    assert terminated and reward > 0.9 and obs["direction"] == 0
    env = make_room("pick up the blue key")
    env.max_steps = 3
    env.step_count = 1
    assert env.steps_remaining == 2
    assert [env.step(6)[3] for _ in range(2)] == [False, True]


def test_a_limit_that_does_not_depend_on_the_mission_stays() -> None:
    for level, stays in (("OpenTwoDoors", True), ("GoToLocal", False)):
        ours, theirs = make_pair(level)
        reset_pair(ours, theirs, 0)
        ours.max_steps = theirs.max_steps = 7
        reset_pair(ours, theirs, 1)
        assert ours.max_steps == theirs.max_steps
        assert (ours.max_steps == 7) == stays


def test_the_view_shows_a_change_at_once() -> None:
    env = make_room()
    env.grid.set(2, 1, GridObject("wall"))
    assert env.engine.images[0][3][5].tolist() == [2, 5, 0]
    env.grid.set(2, 1, None)
    obs, *_ = env.step(env.actions.forward)
    assert env.agent_pos == (2, 1)
    env.put_obj(GridObject("door", "blue", is_open=True), 3, 1)
    obs, *_ = env.step(env.actions.forward)
    assert env.agent_pos == (3, 1) and obs["image"][3][5].tolist() == [6, 0, 0]


def test_attributes_of_objects_change_the_world() -> None:
    env = make_room()
    ball = env.grid.get(4, 1)
    ball.color = "green"
    assert env.grid.encode()[4, 1].tolist() == [6, 1, 0]
    door = GridObject("door", "red", is_locked=True)
    env.put_obj(door, 2, 1)
    assert env.step(env.actions.toggle)[0]["image"][3][5].tolist() == [4, 0, 2]
    door.is_locked = False
    env.step(env.actions.toggle)
    assert door.is_open and not door.is_locked
    door.is_open = False
    assert env.grid.encode()[2, 1].tolist() == [4, 0, 1]
    with pytest.raises(AttributeError, match="only doors have is_open"):
        ball.is_open = True
    with pytest.raises(AttributeError, match="all walls"):
        env.grid.get(0, 0).color = "red"
    with pytest.raises(ValueError, match="unknown color 'pink'"):
        ball.color = "pink"


def test_what_is_carried_can_be_set() -> None:
    env = make_room("put the red ball next to the box")
    ball = env.grid.get(4, 1)
    env.carrying = ball
    assert env.carrying is ball and env.grid.get(4, 1) is None and ball.cur_pos == (-1, -1)
    env.agent_pos = (2, 3)
    # The mission still refers to this ball. As in Minigrid, a clause knows what was carried after one step.
    env.step(env.actions.left)
    env.step(env.actions.right)
    _, reward, terminated, *_ = env.step(env.actions.drop)
    assert terminated and reward > 0 and env.grid.get(3, 3) is ball and ball.cur_pos == (3, 3)
    env.carrying = Key("red")
    assert env.carrying.type == "key"
    env.carrying = None
    assert env.carrying is None
    with pytest.raises(ValueError, match="not a door"):
        env.carrying = Door("red")


def test_a_mission_refers_to_its_objects_wherever_they_are_put() -> None:
    env = make_room("go to the red ball")
    ball = env.grid.get(4, 1)
    env.grid.set(4, 1, None)
    assert env.instrs.desc.obj_poss == []
    env.put_obj(ball, 1, 3)
    assert env.instrs.desc.obj_poss == [(1, 3)]
    # A new object is not what the mission meant, even if it looks the same.
    env.put_obj(GridObject("ball", "red"), 2, 1)
    assert not env.step(env.actions.done)[2]
    env.agent_dir = 1
    assert [env.step(env.actions.forward)[2]] == [True]


def test_a_box_can_hold_an_object_of_ours_or_minigrids() -> None:
    env = make_room("go to the red ball")
    env.put_obj(Box("red", Key("yellow")), 2, 1)
    assert env.grid.get(2, 1).contains.type == "key"
    obs, *_ = env.step(env.actions.toggle)
    assert obs["image"][3][5].tolist() == [5, 4, 0] and env.grid.get(2, 1).cur_pos == (2, 1)
    env.put_obj(GridObject("box", "red", contains=GridObject("ball", "blue")), 2, 4)
    with pytest.raises(ValueError, match="only one box"):
        env.put_obj(GridObject("box", "red", contains=GridObject("ball", "blue")), 3, 4)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda env: env.grid.set(0, 2, None), ValueError, r"\(0, 2\) is on the border"),
        (lambda env: env.put_obj(Ball("red"), 6, 5), ValueError, "border"),
        (lambda env: env.put_obj(Ball("red"), 1, 1), ValueError, r"agent is at \(1, 1\)"),
        (lambda env: env.put_obj(Goal(), 2, 1), ValueError, "'goal'.*wall, door, key, ball, box"),
        (lambda env: env.put_obj("ball", 2, 1), TypeError, "GridObject.*'ball'"),
        (lambda env: env.put_obj(env.grid.get(4, 1), 2, 1), ValueError, r"red ball is already at \(4, 1\)"),
        (lambda env: env.grid.set(7, 1, None), IndexError, r"cell \(7, 1\)"),
        (lambda env: setattr(env, "agent_pos", (4, 1)), ValueError, r"cannot stand at \(4, 1\)"),
        (lambda env: setattr(env, "agent_pos", (-1, -1)), ValueError, r"\(-1, -1\) is outside"),
        (lambda env: setattr(env, "agent_dir", 4), ValueError, "agent_dir .* 4$"),
        (lambda env: setattr(env, "max_steps", 2**31), ValueError, r"below 2\*\*31"),
        (lambda env: setattr(env, "step_count", -1), ValueError, "at least 0"),
        (lambda env: setattr(env.grid.get(4, 1), "cur_pos", (2, 2)), AttributeError, r"put_obj\(obj, 2, 2\)"),
        (lambda env: env.grid.grid.__setitem__(0, None), AttributeError, "__setitem__"),
        (lambda env: env.place_obj(Ball("red"), (0, 0), (1, 1), max_tries=5), RecursionError, "5 tries"),
        (lambda env: GridObject("ball", "pink"), ValueError, "'pink'"),
    ],
)
def test_changes_that_a_world_cannot_have_are_rejected(change: Any, error: type[Exception], message: str) -> None:
    env = make_room()
    before = env.snapshot()
    with pytest.raises(error, match=message):
        change(env)
    after = env.snapshot()
    # Only the draws of place_obj remain.
    assert after[40:] == before[40:] or error is RecursionError


def test_changes_before_the_first_reset_are_rejected() -> None:
    ours, _ = make_pair("GoToLocal")
    for name, value in (("agent_pos", (1, 1)), ("agent_dir", 0), ("carrying", None), ("max_steps", 5)):
        with pytest.raises(RuntimeError, match=r"reset\(\)"):
            setattr(ours, name, value)
    with pytest.raises(RuntimeError, match=r"reset\(\)"):
        ours.place_obj(Ball("red"))
