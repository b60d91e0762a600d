"""A world of ours and Minigrid's of the same seed, stepped together, for tests that compare what can be read."""

import contextlib
import io
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import minigrid  # noqa: F401
import numpy as np

import babyai  # noqa: F401 - registers the levels

# Left, right, forward, pickup, drop, toggle.
ACTIONS = [0.15, 0.15, 0.3, 0.15, 0.1, 0.15]


def make_pair(level: str, **settings: Any) -> tuple[Any, Any]:
    """A babyai environment under Minigrid's rules, and Minigrid's; both unwrapped."""
    ours = gym.make(f"babyai/{level}-v0", rules="minigrid", **settings)
    return ours.unwrapped, gym.make(f"BabyAI-{level}-v0", **settings).unwrapped


def reset_pair(ours: Any, theirs: Any, seed: int | None) -> None:
    """Starts the same episode in both."""
    with contextlib.redirect_stdout(io.StringIO()):
        theirs.reset(seed=seed)
    ours.reset(seed=seed)


def iter_states(level: str, steps: int, seed: int = 0, **settings: Any) -> Iterator[tuple[Any, Any]]:
    """Takes the same random actions in both environments; yields them after each reset and each step."""
    ours, theirs = make_pair(level, **settings)
    reset_pair(ours, theirs, seed)
    yield ours, theirs
    for action in np.random.default_rng(seed).choice(6, size=steps, p=ACTIONS):
        *_, terminated, truncated, _ = ours.step(action)
        theirs.step(action)
        if terminated or truncated:
            reset_pair(ours, theirs, None)
        yield ours, theirs
