"""Images and encodings of whole grids against Minigrid, over random walks."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
from minigrid.core.world_object import Door
from minigrid.wrappers import FullyObsWrapper

from babyai.render.frame import draw_world, encode_grid, full_view
from babyai.world.codes import DOOR, MARKED, OPAQUE, WALL_CELL, cell_of, triple_of
from babyai.world.state import index_of, make_worlds

CELL_OF_TRIPLE = {triple_of(cell): cell for cell in range(256) if not cell & MARKED}
LEVELS = ["BossLevel", "UnlockPickup", "OpenDoorsOrderN4", "PutNextS5N2Carrying"]


def world_of(env: Any) -> np.record:
    """A world record with the state of a Minigrid environment."""
    world = make_worlds(1)[0]
    world.width = env.width
    world.height = env.height
    world.cells[:] = WALL_CELL
    for x, column in enumerate(env.grid.encode().tolist()):
        for y, (kind, color, state) in enumerate(column):
            world.cells[index_of(x, y)] = CELL_OF_TRIPLE[kind, color, state]
    world.agent = index_of(*env.agent_pos)
    world.agent_dir = env.agent_dir
    if env.carrying:
        world.carrying = CELL_OF_TRIPLE[env.carrying.encode()]
    return world


def iter_random_walk(level: str, steps: int, every: int) -> Iterator[Any]:
    """Yields the Minigrid environment once every `every` random steps."""
    env = gymnasium.make(f"BabyAI-{level}-v0").unwrapped
    env.reset(seed=7)
    actions = np.random.default_rng(2).choice(6, size=steps, p=[0.15, 0.15, 0.35, 0.1, 0.05, 0.2])
    for step, action in enumerate(actions):
        _, _, terminated, truncated, _ = env.step(int(action))
        if step % every == 0:
            yield env
        if terminated or truncated:
            env.reset()


@pytest.mark.parametrize("level", LEVELS)
def test_images_equal_minigrid(level: str) -> None:
    for env in iter_random_walk(level, steps=120, every=6):
        world = world_of(env)
        view = env.gen_obs()["image"]
        highlighted = env.get_full_render(highlight=True, tile_size=8)
        plain = env.get_full_render(highlight=False, tile_size=8)
        np.testing.assert_array_equal(draw_world(world, 8, view), highlighted)
        np.testing.assert_array_equal(draw_world(world, 8), plain)


def test_other_view_and_tile_sizes_equal_minigrid() -> None:
    env = gymnasium.make("BabyAI-GoTo-v0", agent_view_size=11).unwrapped
    env.reset(seed=3)
    for action in (2, 0, 2, 2, 1, 1, 2):
        observation, *_ = env.step(action)
        frame = draw_world(world_of(env), 5, observation["image"])
        np.testing.assert_array_equal(frame, env.get_full_render(highlight=True, tile_size=5))


def test_agent_in_an_open_door_is_drawn_over_the_door() -> None:
    env = gymnasium.make("BabyAI-GoToLocal-v0").unwrapped
    env.reset(seed=0)
    x, y = env.agent_pos
    env.grid.set(x, y, Door("green", is_open=True))
    world = world_of(env)
    view = env.gen_obs()["image"]
    assert world.cells[index_of(x, y)] == cell_of(DOOR, 1) & ~OPAQUE
    frame = draw_world(world, view=view)
    np.testing.assert_array_equal(frame, env.get_full_render(highlight=True, tile_size=32))
    assert (frame[y * 32 : (y + 1) * 32, x * 32 : (x + 1) * 32] == (76, 255, 76)).all(axis=-1).any()


@pytest.mark.parametrize("level", LEVELS)
def test_encodings_equal_minigrid(level: str) -> None:
    for env in iter_random_walk(level, steps=60, every=5):
        world = world_of(env)
        np.testing.assert_array_equal(encode_grid(world), env.grid.encode())
        expected = FullyObsWrapper(env).observation(env.gen_obs())["image"]
        assert full_view(world).dtype == np.uint8 and full_view(world).flags.c_contiguous
        np.testing.assert_array_equal(full_view(world), expected)
