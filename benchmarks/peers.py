"""The peers: Minigrid 3.2.0 (Python) and EnvPool 1.2.5 (C++), each as fast as possible on one thread.

To be fair to both, actions are drawn in advance, Minigrid's messages about rejected worlds are not printed, and EnvPool
is measured with several batch sizes, of which the best counts.
"""

import importlib.util
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.timing import Contestant

NUM_ACTIONS = 7
# Minigrid's cost depends on the mission, and an episode can be longer than a round, so several worlds are interleaved.
MINIGRID_WORLDS = 16
MINIGRID_TURN = 32
ENVPOOL_PHASES = 16


def peer_id(level: str) -> str:
    """The id of a level in both peers."""
    return f"BabyAI-{level}-v0"


def random_actions(seed: int) -> Iterator[int]:
    """Endless random actions, drawn in advance."""
    return cycle(np.random.default_rng(seed).integers(0, NUM_ACTIONS, 5003).tolist())


# ---------------------------------------------------------------- Minigrid


def has_minigrid(level: str) -> bool:
    """Whether Minigrid is installed and has the level."""
    if importlib.util.find_spec("minigrid") is None:
        return False
    import gymnasium
    import minigrid  # noqa: F401  (importing it registers its levels)

    return peer_id(level) in gymnasium.registry


def make_minigrid(level: str) -> Any:
    """Minigrid's environment, made with `gymnasium.make`, without its printed messages."""
    import gymnasium
    from minigrid.envs.babyai.core import roomgrid_level

    # A module-level name shadows the builtin, so a message costs a function call but no output.
    roomgrid_level.print = lambda *_: None  # type: ignore[attr-defined]
    return gymnasium.make(peer_id(level))


def open_minigrid(level: str) -> Contestant:
    """Minigrid's steps, including resets."""
    worlds = [make_minigrid(level) for _ in range(MINIGRID_WORLDS)]
    generator = np.random.default_rng(1)
    for seed, world in enumerate(worlds):
        world.reset(seed=seed)
        world.unwrapped.step_count = int(generator.integers(world.unwrapped.max_steps))
    turns = cycle(worlds)
    actions = random_actions(2)

    def play() -> int:
        return play_episodes(next(turns), actions, MINIGRID_TURN)

    return Contestant(play)


def open_minigrid_resets(level: str) -> Contestant:
    """Minigrid's resets."""
    world = make_minigrid(level)
    world.reset(seed=0)

    def play() -> int:
        world.reset()
        return 1

    return Contestant(play, share=0.5)


def play_episodes(world: Any, actions: Iterator[int], steps: int) -> int:
    """Takes this many steps in a Gymnasium environment, resetting it when an episode ends; returns their number."""
    step = world.step
    reset = world.reset
    for _ in range(steps):
        _, _, terminated, truncated, _ = step(next(actions))
        if terminated or truncated:
            reset()
    return steps


# ---------------------------------------------------------------- EnvPool


def has_envpool(level: str) -> bool:
    """Whether EnvPool is installed and has the level."""
    if importlib.util.find_spec("envpool") is None:
        return False
    import envpool

    return peer_id(level) in envpool.list_all_envs()


def make_envpool(level: str, num_worlds: int) -> Any:
    """EnvPool's vector environment with this many worlds on one thread, after a reset."""
    import envpool

    worlds = envpool.make_gymnasium(peer_id(level), num_envs=num_worlds, num_threads=1, seed=1)
    worlds.reset()
    return worlds


def play_envpool(worlds: Any, num_worlds: int) -> Callable[[], int]:
    """A function that takes one random action in each world. EnvPool resets finished worlds in their next step."""
    drawn = np.random.default_rng(3).integers(0, NUM_ACTIONS, (251, num_worlds), dtype=np.int32)
    actions = cycle(drawn)

    def play() -> int:
        worlds.step(next(actions))
        return num_worlds

    return play


def open_envpool(level: str, max_steps: int, num_worlds: int) -> Contestant:
    """EnvPool's steps, including resets, with the episodes' starts spread over time.

    Args:
        level: Name of the level.
        max_steps: Number of steps over which the starts are spread: a typical time limit of the level.
        num_worlds: Number of worlds in a batch.
    """
    worlds = make_envpool(level, num_worlds)
    play = play_envpool(worlds, num_worlds)
    for group in np.array_split(np.arange(num_worlds, dtype=np.int32), min(ENVPOOL_PHASES, num_worlds)):
        worlds.reset(group)
        for _ in range(max(1, max_steps // ENVPOOL_PHASES)):
            play()
    return Contestant(play, share=0.25, close=worlds.close)
