"""What can be read of a Minigrid environment can be read of ours, with the same values."""

from typing import Any

import minigrid.core.grid
import minigrid.core.world_object
import numpy as np
import pytest
from minigrid.envs.babyai.core import verifier

from babyai.envs.minigrid_grid import Grid
from babyai.envs.minigrid_objects import GridObject
from tests.envs.minigrid_pairs import iter_states, make_pair, reset_pair

# Thousands of steps, which are too slow without the compiler.
pytestmark = pytest.mark.compiled

LEVELS = ["GoToLocal", "BossLevel", "UnlockPickup", "KeyInBox", "PutNextS5N2Carrying", "OpenDoorLoc", "GoToObjMazeOpen"]


@pytest.mark.parametrize("level", LEVELS)
def test_texts_digests_and_grids_equal_minigrid(level: str) -> None:
    for ours, theirs in iter_states(level, 40):
        assert ours.pprint_grid() == theirs.pprint_grid()
        assert (ours.hash(), ours.hash(size=64)) == (theirs.hash(), theirs.hash(size=64))
        assert [_describe(obj) for obj in ours.grid.grid] == [_describe(obj) for obj in theirs.grid.grid]
        assert ours.see_through_walls is theirs.see_through_walls is False


@pytest.mark.parametrize("level", LEVELS)
def test_views_equal_minigrid(level: str) -> None:
    for ours, theirs in iter_states(level, 12):
        for size in (None, 3, 5, 11):
            grid, mask = ours.gen_obs_grid(size)
            expected, expected_mask = theirs.gen_obs_grid(size)
            np.testing.assert_array_equal(mask, expected_mask)
            np.testing.assert_array_equal(grid.encode(mask), expected.encode(expected_mask))
            assert ours.get_view_exts(size) == theirs.get_view_exts(size)
        for x in range(-2, ours.width + 2):
            for y in range(-2, ours.height + 2):
                assert ours.get_view_coords(x, y) == theirs.get_view_coords(x, y)
                assert ours.relative_coords(x, y) == theirs.relative_coords(x, y)
                assert ours.in_view(x, y) == theirs.in_view(x, y)


@pytest.mark.parametrize("level", ["GoToLocal", "UnlockPickup"])
def test_agent_sees_what_minigrids_agent_sees(level: str) -> None:
    seen = 0
    for ours, theirs in iter_states(level, 6):
        for x in range(ours.width):
            for y in range(ours.height):
                # In Minigrid an object is seen if something of its type is shown where it is.
                if theirs.grid.get(x, y) is not None and (x, y) != tuple(ours.agent_pos):
                    assert ours.agent_sees(x, y) == theirs.agent_sees(x, y)
                    seen += ours.agent_sees(x, y)
    assert seen > 20
    empty = next(k for k, obj in enumerate(ours.grid.grid) if obj is None)
    with pytest.raises(ValueError, match=r"cell \(\d+, \d+\) is empty"):
        ours.agent_sees(empty % ours.width, empty // ours.width)


@pytest.mark.parametrize("level", LEVELS)
def test_renderings_equal_minigrid(level: str) -> None:
    for ours, theirs in iter_states(level, 2):
        for highlight in (True, False):
            expected = theirs.get_full_render(highlight, 8)
            np.testing.assert_array_equal(ours.get_full_render(highlight, 8), expected)
        np.testing.assert_array_equal(ours.get_pov_render(8), theirs.get_pov_render(8))
        mask = np.random.default_rng(0).random((ours.width, ours.height)) < 0.5
        rendered = ours.grid.render(8, ours.agent_pos, ours.agent_dir, mask)
        np.testing.assert_array_equal(rendered, theirs.grid.render(8, theirs.agent_pos, theirs.agent_dir, mask))


# ---------------------------------------------------------------- objects and grids


def _describe(obj: Any) -> Any:
    return None if obj is None else (obj.type, obj.color, obj.encode(), _describe(obj.contains))


@pytest.mark.parametrize("level", LEVELS)
def test_positions_of_objects_equal_minigrid(level: str) -> None:
    carried = 0
    for ours, theirs in iter_states(level, 150, seed=1):
        for x in range(ours.width):
            for y in range(ours.height):
                mine = ours.grid.get(x, y)
                other = theirs.grid.get(x, y)
                # Minigrid does not say where the contents of a box are, once it has been opened.
                if other is None or other.type == "wall" or other.cur_pos is None:
                    continue
                assert mine.cur_pos == tuple(other.cur_pos) == (x, y)
                assert mine.init_pos == (None if other.init_pos is None else tuple(other.init_pos))
        if ours.carrying is not None and ours.step_count > 0:
            carried += 1
            assert _describe(ours.carrying) == _describe(theirs.carrying)
            assert ours.carrying.cur_pos == (-1, -1)
    assert carried or level not in ("GoToLocal", "BossLevel", "PutNextS5N2Carrying")


def test_an_object_stays_the_same_while_it_is_carried() -> None:
    ours, theirs = make_pair("GoToObj")
    reset_pair(ours, theirs, 0)
    ((x, y),) = ours.instrs.desc.obj_poss
    ball = ours.grid.get(x, y)
    ours.agent_pos = (x - 1, y) if ours.grid.get(x - 1, y) is None else (x + 1, y)
    ours.agent_dir = 0 if ours.agent_pos[0] < x else 2
    ours.step(ours.actions.pickup)
    assert ours.carrying is ball and ball not in ours.grid


def test_grids_and_objects_of_an_earlier_episode_are_cut_off() -> None:
    ours, _ = make_pair("GoToObj")
    ours.reset(seed=0)
    grid = ours.grid
    (obj,) = ours.instrs.desc.obj_set
    before = grid.encode()
    ours.reset(seed=1)
    # What was kept shows the earlier episode, as in Minigrid, and changes nothing.
    np.testing.assert_array_equal(grid.encode(), before)
    obj.color = "grey"
    assert ours.grid is not grid and (obj.color, obj.type) in grid
    with pytest.raises(RuntimeError, match="earlier episode"):
        grid.set(1, 1, None)


def test_objects_and_instructions_pass_for_minigrids() -> None:
    names = set()
    for ours, _ in iter_states("BossLevel", 0, seed=5):
        for obj in filter(None, ours.grid.grid):
            assert isinstance(obj, minigrid.core.world_object.WorldObj)
            assert isinstance(obj, GridObject)
            names.add(obj.__class__.__name__)
        assert isinstance(ours.grid, minigrid.core.grid.Grid)
        assert isinstance(ours.instrs, verifier.Instr)
    assert names >= {"Wall", "Door", "Key", "Ball", "Box"}


@pytest.mark.parametrize("level", ["GoToLocal", "UnlockPickup"])
def test_grids_can_be_searched_cut_turned_copied_and_decoded(level: str) -> None:
    for ours, theirs in iter_states(level, 3):
        for color in (None, "red", "grey"):
            for kind in ("wall", "door", "ball", "box"):
                assert ((color, kind) in ours.grid) == ((color, kind) in theirs.grid)
        assert ours.grid.get(0, 0) in ours.grid and GridObject("ball", "red") not in ours.grid
        cut, expected = (env.grid.slice(-2, 3, 7, 5) for env in (ours, theirs))
        np.testing.assert_array_equal(cut.encode(), expected.encode())
        np.testing.assert_array_equal(cut.rotate_left().encode(), expected.rotate_left().encode())
        image = ours.gen_obs()["image"]
        grid, mask = Grid.decode(image)
        expected, expected_mask = minigrid.core.grid.Grid.decode(image)
        np.testing.assert_array_equal(grid.encode(mask), expected.encode(expected_mask))
        np.testing.assert_array_equal(mask, expected_mask)
        copied = ours.grid.copy()
        assert copied == ours.grid and copied == theirs.grid
        copied.set(1, 1, GridObject("box", "purple"))
        assert copied != ours.grid and ("purple", "box") in copied


# ---------------------------------------------------------------- rooms and instructions


@pytest.mark.parametrize("level", ["BossLevel", "UnlockPickup", "GoToObjMazeOpen", "KeyCorridor", "OpenDoor"])
def test_rooms_equal_minigrid(level: str) -> None:
    for ours, theirs in iter_states(level, 1):
        assert len(ours.room_grid) == len(theirs.room_grid)
        for j in range(ours.num_rows):
            for i in range(ours.num_cols):
                room = ours.get_room(i, j)
                expected = theirs.get_room(i, j)
                assert (room.top, room.size) == (expected.top, expected.size)
                assert [_describe_door(door) for door in room.doors] == [_describe_door(d) for d in expected.doors]
                assert [each is None for each in room.neighbors] == [each is None for each in expected.neighbors]
                for side, door in enumerate(room.doors):
                    assert door in (None, True) or room.door_pos[side] == tuple(expected.door_pos[side])
                assert sorted(map(_describe, room.objs)) == sorted(map(_describe, expected.objs))
        for x in range(ours.width - 1):
            for y in range(ours.height - 1):
                assert ours.room_from_pos(x, y).top == theirs.room_from_pos(x, y).top
                assert ours.get_room(0, 0).pos_inside(x, y) == theirs.get_room(0, 0).pos_inside(x, y)
    with pytest.raises(IndexError, match=rf"room \({ours.num_cols}, 0\)"):
        ours.get_room(ours.num_cols, 0)


def _describe_door(door: Any) -> Any:
    return door if door in (None, True) else (*_describe(door), door.is_open, door.is_locked)


def assert_same_instruction(ours: Any, theirs: Any) -> None:
    assert type(ours).__name__ == type(theirs).__name__
    assert ours.strict == getattr(theirs, "strict", False)
    for name in ("instr_a", "instr_b"):
        if hasattr(theirs, name):
            assert_same_instruction(getattr(ours, name), getattr(theirs, name))
    for name in ("a_done", "b_done"):
        if hasattr(theirs, name):
            assert (getattr(ours, name) == "success") == (getattr(theirs, name) == "success")
    for name in ("desc", "desc_move", "desc_fixed"):
        if hasattr(theirs, name):
            mine = getattr(ours, name)
            other = getattr(theirs, name)
            assert repr(mine) == repr(other)
            assert (mine.type, mine.color, mine.loc) == (other.type, other.color, other.loc)
            assert mine.obj_poss == [tuple(map(int, position)) for position in other.obj_poss]
            assert list(map(_describe, mine.obj_set)) == list(map(_describe, other.obj_set))
            assert mine.find_matching_objs() == (mine.obj_set, mine.obj_poss)


@pytest.mark.parametrize(
    "level",
    [*LEVELS, "SynthSeq", "PickupLoc", "OpenDoorsOrderN4Debug", "PickupDistDebug", "MoveTwoAcrossS5N2", "PutNextLocal"],
)
def test_instructions_equal_minigrid(level: str) -> None:
    for seed in range(4):
        for ours, theirs in iter_states(level, 60, seed=seed):
            assert ours.instrs.surface(ours) == theirs.mission
            assert_same_instruction(ours.instrs, theirs.instrs)


def test_instructions_that_name_grey_objects_refer_to_walls_too() -> None:
    matching = 0
    ours, theirs = make_pair("PickupDist")
    for seed in range(400):
        reset_pair(ours, theirs, seed)
        if ours.instrs.desc.type is None and ours.instrs.desc.color == "grey":
            matching += 1
            assert_same_instruction(ours.instrs, theirs.instrs)
            assert any(obj.type == "wall" for obj in ours.instrs.desc.obj_set)
    assert matching > 5


# ---------------------------------------------------------------- names that are not offered


def test_every_other_name_of_minigrid_says_what_to_use_instead() -> None:
    ours, theirs = make_pair("BossLevel")
    reset_pair(ours, theirs, 0)
    names = [name for name in dir(theirs) if not name.startswith("__")]
    # These are names of Python's or of Minigrid's own machinery.
    missing = []
    for name in sorted(set(names) - {"_abc_impl", "_is_protocol"}):
        try:
            getattr(ours, name)
        except AttributeError as error:
            if "not offered here" not in str(error):
                missing.append(name)
    assert missing == []


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("see_through_walls", True, "observation='full'"),
        ("agent_view_size", 5, "view_size="),
        ("room_size", 5, "room_size="),
        ("grid", None, "layout"),
        ("instrs", None, "mission"),
        ("front_pos", (1, 1), "agent_pos"),
        ("width", 5, "room_size"),
    ],
)
def test_names_that_cannot_be_set_say_what_to_do(name: str, value: Any, advice: str) -> None:
    ours, _ = make_pair("GoToLocal")
    ours.reset(seed=0)
    with pytest.raises(AttributeError, match=rf"{name!r} cannot be set: .*{advice}"):
        setattr(ours, name, value)


def test_names_of_grids_objects_and_instructions_that_are_not_offered() -> None:
    ours, _ = make_pair("GoToLocal")
    ours.reset(seed=0)
    for owner, name, advice in (
        (ours.grid, "process_vis", "gen_obs_grid"),
        (ours.grid, "horz_wall", "layout"),
        (ours.grid.get(0, 0), "toggle", r"env\.step"),
        (ours.instrs, "verify", "info"),
        (ours.instrs, "reset_verifier", "mission"),
    ):
        with pytest.raises(AttributeError, match=rf"{name!r}: .*{advice}"):
            getattr(owner, name)


def test_subclasses_with_methods_that_would_never_be_called_are_rejected() -> None:
    from babyai.envs import BabyAIEnv

    with pytest.raises(TypeError, match=r"gen_mission would never be called.*recipe"):

        class MyLevel(BabyAIEnv):
            def gen_mission(self) -> None: ...


def test_before_the_first_reset_there_is_no_world() -> None:
    ours, _ = make_pair("GoToLocal")
    for read in (lambda: ours.grid, lambda: ours.instrs, lambda: ours.room_grid, ours.get_frame):
        with pytest.raises(RuntimeError, match=r"reset\(\)"):
            read()
    with pytest.raises(ValueError, match=r"reset\(\)"):
        ours.pprint_grid()
