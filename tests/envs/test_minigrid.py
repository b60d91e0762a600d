"""With rules="minigrid" the environments equal Minigrid's: only the id changes."""

from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401
import numpy as np
import pytest
from minigrid.wrappers import (
    FlatObsWrapper,
    FullyObsWrapper,
    ImgObsWrapper,
    OneHotPartialObsWrapper,
    RGBImgObsWrapper,
    RGBImgPartialObsWrapper,
)

from babyai.envs.minigrid_names import GridObject

# Thousands of steps, which are too slow without the compiler.
pytestmark = pytest.mark.compiled

LEVELS = ["GoToLocal", "BossLevel", "UnlockPickup", "PutNextS5N2Carrying", "KeyInBox", "OpenDoorsOrderN4Debug"]
ACTIONS = [0.15, 0.15, 0.35, 0.1, 0.05, 0.2]


def make_pair(level: str, **settings: Any) -> tuple[gym.Env, gym.Env]:
    """A babyai environment and Minigrid's."""
    ours = gym.make(f"babyai/{level}-v0", rules="minigrid", **settings)
    return ours, gym.make(f"BabyAI-{level}-v0", **settings)


def assert_same(ours: Any, theirs: Any) -> None:
    if not isinstance(theirs, dict):
        ours = {"": ours}
        theirs = {"": theirs}
    assert ours.keys() == theirs.keys()
    for key, part in theirs.items():
        np.testing.assert_array_equal(ours[key], part, err_msg=key)
        if isinstance(part, np.ndarray):
            assert ours[key].dtype == part.dtype


def iter_same_walk(ours: gym.Env, theirs: gym.Env, steps: int, seed: int = 7) -> Any:
    """Takes the same actions in both environments and compares all results; yields after each call."""
    first, info = ours.reset(seed=seed)
    expected, expected_info = theirs.reset(seed=seed)
    assert_same(first, expected)
    assert info == {"success": False} and expected_info == {}
    yield
    for action in np.random.default_rng(seed).choice(6, size=steps, p=ACTIONS):
        obs, *result, _ = ours.step(action)
        expected, *expected_result, _ = theirs.step(action)
        assert_same(obs, expected)
        assert result == expected_result
        if result[1] or result[2]:
            assert_same(ours.reset()[0], theirs.reset()[0])
        yield


@pytest.mark.parametrize("level", LEVELS)
def test_observations_rewards_and_ends_equal_minigrid(level: str) -> None:
    for _ in iter_same_walk(*make_pair(level), steps=300):
        pass


@pytest.mark.parametrize("size", [3, 11])
def test_other_view_sizes_equal_minigrid(size: int) -> None:
    for _ in iter_same_walk(*make_pair("GoTo", agent_view_size=size), steps=60):
        pass


def test_max_steps_equals_minigrid() -> None:
    for _ in iter_same_walk(*make_pair("PickupLoc", max_steps=9), steps=40):
        pass


@pytest.mark.parametrize("level", LEVELS)
def test_rgb_observations_equal_minigrids_wrapper(level: str) -> None:
    ours = gym.make(f"babyai/{level}-v0", rules="minigrid", observation="rgb")
    for _ in iter_same_walk(ours, RGBImgPartialObsWrapper(gym.make(f"BabyAI-{level}-v0")), steps=25):
        pass


@pytest.mark.parametrize("level", LEVELS)
def test_full_observations_equal_minigrids_wrapper(level: str) -> None:
    ours = gym.make(f"babyai/{level}-v0", rules="minigrid", observation="full")
    for _ in iter_same_walk(ours, FullyObsWrapper(gym.make(f"BabyAI-{level}-v0")), steps=25):
        pass


@pytest.mark.parametrize(
    "wrapper",
    [
        *(ImgObsWrapper, FullyObsWrapper, RGBImgPartialObsWrapper, OneHotPartialObsWrapper, FlatObsWrapper),
        lambda env: RGBImgObsWrapper(env, tile_size=8),
    ],
)
def test_minigrids_wrappers_work(wrapper: Any) -> None:
    for _ in iter_same_walk(*map(wrapper, make_pair("GoToLocal")), steps=6):
        pass


def is_same_object(ours: GridObject | None, theirs: Any) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    names = ("type", "color", *(("is_open", "is_locked") if theirs.type == "door" else ()))
    methods = ("encode", "can_pickup", "can_overlap", "see_behind")
    return (
        all(getattr(ours, name) == getattr(theirs, name) for name in names)
        and all(getattr(ours, name)() == getattr(theirs, name)() for name in methods)
        and (theirs.type != "box" or is_same_object(ours.contains, theirs.contains))
    )


@pytest.mark.parametrize("level", LEVELS)
def test_attributes_equal_minigrid(level: str) -> None:
    wrapped, their_wrapped = make_pair(level)
    ours: Any = wrapped.unwrapped
    theirs: Any = their_wrapped.unwrapped
    carried = False
    for _ in iter_same_walk(wrapped, their_wrapped, steps=80):
        names = ("max_steps", "mission", "agent_dir", "step_count", "steps_remaining", "width", "height", "room_size")
        for name in (*names, "num_rows", "num_cols", "agent_view_size", "tile_size", "highlight"):
            assert getattr(ours, name) == getattr(theirs, name), name
        for name in ("agent_pos", "dir_vec", "right_vec", "front_pos"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        np.testing.assert_array_equal(ours.grid.encode(), theirs.grid.encode())
        assert_same(ours.gen_obs(), theirs.gen_obs())
        assert is_same_object(ours.carrying, theirs.carrying)
        carried |= ours.carrying is not None
    assert (ours.grid.width, ours.grid.height) == (theirs.grid.width, theirs.grid.height)
    for x in range(ours.width):
        for y in range(ours.height):
            assert is_same_object(ours.grid.get(x, y), theirs.grid.get(x, y))
    assert [action.name for action in ours.actions] == [action.name for action in theirs.actions]
    assert carried or level != "PutNextS5N2Carrying"
    with pytest.raises(IndexError, match=rf"cell \({ours.width}, 0\)"):
        ours.grid.get(ours.width, 0)


def test_masked_encodings_equal_minigrid() -> None:
    ours, theirs = (env.unwrapped for env in make_pair("GoToLocal"))
    ours.reset(seed=1)
    theirs.reset(seed=1)
    mask = np.random.default_rng(0).random((8, 8)) < 0.5
    grid, their_grid = (env.grid for env in (ours, theirs))  # pyright: ignore[reportAttributeAccessIssue]
    np.testing.assert_array_equal(grid.encode(mask), their_grid.encode(mask))


@pytest.mark.parametrize("settings", [{}, {"highlight": False}, {"agent_pov": True}, {"agent_view_size": 5}])
def test_rendered_images_equal_minigrid(settings: dict[str, Any]) -> None:
    ours, theirs = make_pair("MiniBossLevel", render_mode="rgb_array", tile_size=12, **settings)
    for _ in iter_same_walk(ours, theirs, steps=5):
        np.testing.assert_array_equal(ours.render(), theirs.render())


def test_attributes_before_the_first_reset_equal_minigrid() -> None:
    ours, theirs = (env.unwrapped for env in make_pair("OpenTwoDoors"))
    for name in ("agent_pos", "agent_dir", "carrying", "width", "height", "max_steps"):
        assert getattr(ours, name) == getattr(theirs, name), name
