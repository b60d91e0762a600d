"""RGB observations against Minigrid's wrapper, and against a reference that copies one tile at a time."""

from concurrent.futures import ThreadPoolExecutor

import gymnasium
import numpy as np
import pytest
from minigrid.wrappers import RGBImgPartialObsWrapper

from babyai.render.blit import blit_views, rgb_views, view_tiles
from babyai.render.tiles import draw_tile
from babyai.world.codes import COLORS, TRIPLES, triple_of

CELL_OF_TRIPLE = {triple_of(cell): cell for cell in range(256) if triple_of(cell)[1] < len(COLORS)}


def random_views(count: int, size: int = 7, seed: int = 0) -> np.ndarray:
    triples = np.array(list(CELL_OF_TRIPLE), dtype=np.uint8)
    views = np.random.default_rng(seed).choice(triples, size=(count, size, size))
    views[:, size // 2, size - 1] = (1, 0, 0)
    return views


def render_reference(view: np.ndarray, tile: int) -> np.ndarray:
    """The obvious implementation: draws and copies one tile at a time."""
    size = len(view)
    frame = np.empty((size * tile, size * tile, 3), dtype=np.uint8)
    for vx in range(size):
        for vy in range(size):
            kind, color, state = view[vx, vy].tolist()
            heading = 3 if (vx, vy) == (size // 2, size - 1) else None
            image = draw_tile(CELL_OF_TRIPLE[kind, color, state], tile, heading, kind > 0)
            frame[vy * tile : (vy + 1) * tile, vx * tile : (vx + 1) * tile] = image
    return frame


@pytest.mark.parametrize("level", ["BossLevel", "UnlockPickup", "PutNextS5N2Carrying", "KeyInBox"])
def test_frames_equal_minigrid(level: str) -> None:
    env = RGBImgPartialObsWrapper(gymnasium.make(f"BabyAI-{level}-v0"), tile_size=8)
    actions = np.random.default_rng(1).choice(7, size=150, p=[0.15, 0.15, 0.35, 0.1, 0.05, 0.2, 0])
    views = []
    frames = []
    env.reset(seed=4)
    for action in actions:
        observation, _, terminated, truncated, _ = env.step(int(action))
        # The wrapper has replaced the symbolic view, so it is generated again.
        views.append(env.unwrapped.gen_obs()["image"])
        frames.append(observation["image"])
        if terminated or truncated:
            env.reset()
    np.testing.assert_array_equal(rgb_views(np.stack(views)), np.stack(frames))


@pytest.mark.parametrize("size", [3, 7, 11])
@pytest.mark.parametrize("tile", [5, 8, 16])
def test_frames_equal_the_reference(size: int, tile: int) -> None:
    views = random_views(6, size)
    # A carried object is drawn under the agent.
    views[1, size // 2, size - 1] = (5, 2, 0)
    expected = np.stack([render_reference(view, tile) for view in views])
    np.testing.assert_array_equal(rgb_views(views, tile), expected)


def test_frames_do_not_depend_on_threads() -> None:
    views = random_views(64)
    tables = view_tiles(8)
    frames = np.zeros((64, 56, 56, 3), dtype=np.uint8)
    blit_views(views, *tables, frames, 10, 20)
    assert not frames[:10].any() and not frames[20:].any() and frames[10:20].any(axis=(1, 2, 3)).all()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda first: blit_views(views, *tables, frames, first, first + 16), range(0, 64, 16)))
    np.testing.assert_array_equal(frames, rgb_views(views))


def test_views_may_be_strided_or_empty() -> None:
    views = random_views(8)
    np.testing.assert_array_equal(rgb_views(views[::2]), rgb_views(views)[::2])
    assert rgb_views(views[:0]).shape == (0, 56, 56, 3)


def test_tile_tables_contain_every_triple() -> None:
    tiles, agent_tiles = view_tiles(8)
    known = {tuple(triple) for triple in TRIPLES.tolist() if triple[1] < len(COLORS)}
    assert known == set(CELL_OF_TRIPLE)
    for (kind, color, state), cell in CELL_OF_TRIPLE.items():
        at = kind << 5 | color << 2 | state
        np.testing.assert_array_equal(tiles[at], draw_tile(cell, 8, None, kind > 0))
        np.testing.assert_array_equal(agent_tiles[at], draw_tile(cell, 8, 3, True))


@pytest.mark.parametrize(
    ("images", "message"),
    [(np.zeros((7, 7, 3), np.uint8), r"\(7, 7, 3\)"), (np.zeros((1, 7, 7, 3), np.int64), "int64")],
)
def test_invalid_views_are_rejected(images: np.ndarray, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        rgb_views(images)
