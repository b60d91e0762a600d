"""Observation kinds, and the Gymnasium spaces of observations and actions."""

import string
import sys
from typing import Any, Literal

import numpy as np
from gymnasium import spaces

from babyai.render.frame import draw_world
from babyai.world.codes import (
    AFTER,
    AGENT_TYPE,
    ANY_NOUN,
    COLORS,
    DOOR_CLOSED,
    DOOR_LOCKED,
    DOOR_OPEN,
    IN_FRONT,
    MAX_WORDS,
    MINIGRID_TYPES,
    NUM_ACTIONS,
    PURPLE,
    PUT_NEXT,
    RED,
    TRIPLES,
    VOCABULARY,
)
from babyai.world.language import Clause, Descriptor, Mission, MissionError, parse_mission, random_mission
from babyai.world.state import MAX_SIZE, ORIGIN, STRIDE

Observation = Literal["symbolic", "rgb", "one_hot", "full", "full_rgb", "text"]
Missions = Literal["tokens", "text"]
# Side length in pixels of a cell in RGB observations, as in Minigrid's wrapper.
TILE_PIXELS = 8
NUM_HEADINGS = 4
# Rows of the identity: one bit for each type, color and state, as in Minigrid's OneHotPartialObsWrapper.
ONE_HOT = np.eye(len(MINIGRID_TYPES) + len(COLORS) + len((DOOR_OPEN, DOOR_CLOSED, DOOR_LOCKED)), dtype=np.uint8)
# Upper bound on the length of a sentence about one cell of the view.
CHARACTERS_PER_CELL = 72


def _longest_mission() -> str:
    descriptor = Descriptor(ANY_NOUN, PURPLE, IN_FRONT, definite=True)
    half = (Clause(PUT_NEXT, descriptor, descriptor),) * 2
    return str(Mission(half, AFTER, half))


class MissionSpace(spaces.Text):
    """The space of all sentences of the Baby Language.

    It is a `Text` space with a fixed charset, so Gymnasium can flatten and batch it.
    """

    def __init__(self, seed: int | np.random.Generator | None = None) -> None:
        super().__init__(len(_longest_mission()), charset=string.ascii_lowercase + " ,", seed=seed)

    @property
    def shape(self) -> tuple[int, ...] | None:
        """None: a sentence has no shape. Stable-Baselines3, which needs one, is told about the adapter."""
        if sys._getframe(1).f_globals.get("__name__", "").startswith("stable_baselines3"):
            raise TypeError(
                "Stable-Baselines3 cannot read missions as text. Use the vector environment, whose missions are token "
                "ids: babyai.envs.stable_baselines_env(gym.make_vec('babyai/GoToLocal-v0', num_envs=8))"
            )
        return self._shape

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """A random sentence, drawn from the grammar."""
        if mask is not None or probability is not None:
            raise ValueError("missions are sampled from a grammar, which supports neither mask nor probability")
        return str(random_mission(self.np_random))

    def contains(self, x: Any) -> bool:
        """Whether `x` is a sentence of the Baby Language."""
        if not super().contains(x):
            return False
        try:
            parse_mission(x)
        except MissionError:
            return False
        return True

    def __repr__(self) -> str:
        return "MissionSpace()"


def action_space() -> spaces.Discrete:
    """The seven actions."""
    return spaces.Discrete(NUM_ACTIONS)


def image_space(observation: Observation, view_size: int, size: tuple[int, int]) -> spaces.Box:
    """The space of one image; `size` is the (width, height) of the grid."""
    width, height = size
    shapes = {
        "rgb": (view_size * TILE_PIXELS, view_size * TILE_PIXELS, 3),
        "one_hot": (view_size, view_size, ONE_HOT.shape[1]),
        "full": (width, height, 3),
        "full_rgb": (height * TILE_PIXELS, width * TILE_PIXELS, 3),
    }
    return spaces.Box(0, 255, shapes.get(observation, (view_size, view_size, 3)), np.uint8)


def single_space(observation: Observation, view_size: int, size: tuple[int, int]) -> spaces.Dict:
    """The observation space of a single environment; missions are English text."""
    return world_space(observation, view_size, size, "text")


def world_space(
    observation: Observation, view_size: int, size: tuple[int, int], missions: Missions = "tokens"
) -> spaces.Dict:
    """The observation space of one world of a vector environment; missions are token ids, (72,) uint8, or text."""
    tokens = spaces.Box(0, len(VOCABULARY) - 1, (MAX_WORDS,), np.uint8)
    parts = {
        "image": image_space(observation, view_size, size),
        "direction": spaces.Discrete(NUM_HEADINGS),
        "mission": tokens if missions == "tokens" else MissionSpace(),
    }
    if observation == "text":
        longest = view_size**2 * CHARACTERS_PER_CELL
        parts["text"] = spaces.Text(longest, min_length=0, charset=string.ascii_letters + string.digits + " \n")
    return spaces.Dict(parts)


def one_hot_views(images: np.ndarray) -> np.ndarray:
    """Symbolic views, (..., 3) uint8, as bits: 11 for the type, 6 for the color, 3 for the state: (..., 20) uint8."""
    kinds, colors, states = np.moveaxis(images, -1, 0)
    return ONE_HOT[kinds] | ONE_HOT[len(MINIGRID_TYPES) + colors] | ONE_HOT[len(MINIGRID_TYPES) + len(COLORS) + states]


def full_rgb_views(worlds: np.ndarray, views: np.ndarray) -> np.ndarray:
    """RGB images of whole grids with the agents' views highlighted, (N, 8H, 8W, 3) uint8.

    Args:
        worlds: (N,) records, all of the same size.
        views: (N, n, n, 3) uint8, the agents' symbolic views.
    """
    return np.stack([draw_world(world, TILE_PIXELS, view) for world, view in zip(worlds, views, strict=True)])


def full_views(worlds: np.ndarray, size: tuple[int, int]) -> np.ndarray:
    """Whole grids, with the agents' cells encoded as (10, 0, heading): (N, W, H, 3) uint8, indexed [x][y].

    Args:
        worlds: (N,) records, all of the same size.
        size: Their (width, height).
    """
    width, height = size
    grids = worlds["cells"][:, ORIGIN : ORIGIN + STRIDE * MAX_SIZE].reshape(-1, MAX_SIZE, STRIDE)
    images = np.take(TRIPLES, grids[:, :height, :width].swapaxes(1, 2), axis=0)
    y, x = np.divmod(worlds["agent"] - ORIGIN, STRIDE)
    at = np.arange(len(worlds)), x, y
    images[at] = np.stack([np.full_like(x, AGENT_TYPE), np.full_like(x, RED), worlds["agent_dir"]], axis=-1)
    return images
