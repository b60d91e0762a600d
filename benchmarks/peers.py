"""The peers: Minigrid 3.2.0 (Python) and EnvPool 1.2.5 (C++), each as fast as it goes on one thread.

Neither is handicapped: actions are drawn beforehand, Minigrid's messages about rejected worlds are not printed, and
EnvPool is measured with several numbers of worlds, of which the best counts.
"""

import importlib.util
from collections.abc import Callable, Iterator
from itertools import cycle
from typing import Any

import numpy as np

from benchmarks.timing import Contestant

NUM_ACTIONS = 7
# Missions differ in what they cost Minigrid, and an episode can outlast a round; so several worlds take turns.
MINIGRID_WORLDS = 16
MINIGRID_TURN = 32
ENVPOOL_PHASES = 16


def peer_id(level: str) -> str:
    """The id under which both peers know a level."""
    return f"BabyAI-{level}-v0"


def random_actions(seed: int) -> Iterator[int]:
    """Endless random actions, drawn beforehand."""
    return cycle(np.random.default_rng(seed).integers(0, NUM_ACTIONS, 5003).tolist())


# ---------------------------------------------------------------- Minigrid


def has_minigrid(level: str) -> bool:
    """Whether Minigrid is installed and knows the level."""
    if importlib.util.find_spec("minigrid") is None:
        return False
    import gymnasium
    import minigrid  # noqa: F401  (importing it registers its levels)

    return peer_id(level) in gymnasium.registry


def make_minigrid(level: str) -> Any:
    """Minigrid's world as its users make it, except that it does not print."""
    import gymnasium
    from minigrid.envs.babyai.core import roomgrid_level

    # A name in the module hides the builtin: the message costs a call, and no output.
    roomgrid_level.print = lambda *_: None  # type: ignore[attr-defined]
    return gymnasium.make(peer_id(level))


def open_minigrid(level: str) -> Contestant:
    """Minigrid's steps, resets included."""
    worlds = [make_minigrid(level) for _ in range(MINIGRID_WORLDS)]
    generator = np.random.default_rng(1)
    for seed, world in enumerate(worlds):
        world.reset(seed=seed)
        world.unwrapped.step_count = int(generator.integers(world.unwrapped.max_steps))
    turns, actions = cycle(worlds), random_actions(2)

    def play() -> int:
        return play_episodes(next(turns), actions, MINIGRID_TURN)

    return Contestant(play)


def open_minigrid_resets(level: str) -> Contestant:
    """Minigrid's resets alone."""
    world = make_minigrid(level)
    world.reset(seed=0)

    def play() -> int:
        world.reset()
        return 1

    return Contestant(play, share=0.5)


def play_episodes(world: Any, actions: Iterator[int], steps: int) -> int:
    """So many steps in a Gymnasium world, with a reset wherever an episode ends; returns their number."""
    step, reset = world.step, world.reset
    for _ in range(steps):
        _, _, terminated, truncated, _ = step(next(actions))
        if terminated or truncated:
            reset()
    return steps


# ---------------------------------------------------------------- EnvPool


def has_envpool(level: str) -> bool:
    """Whether EnvPool is installed and knows the level."""
    if importlib.util.find_spec("envpool") is None:
        return False
    import envpool

    return peer_id(level) in envpool.list_all_envs()


def make_envpool(level: str, num_worlds: int) -> Any:
    """So many of EnvPool's worlds, all stepped together by one thread, and reset once."""
    import envpool

    worlds = envpool.make_gymnasium(peer_id(level), num_envs=num_worlds, num_threads=1, seed=1)
    worlds.reset()
    return worlds


def play_envpool(worlds: Any, num_worlds: int) -> Callable[[], int]:
    """Plays one random action in each world; a world whose episode is over restarts itself in its next step."""
    drawn = np.random.default_rng(3).integers(0, NUM_ACTIONS, (251, num_worlds), dtype=np.int32)
    actions = cycle(drawn)

    def play() -> int:
        worlds.step(next(actions))
        return num_worlds

    return play


def open_envpool(level: str, max_steps: int, num_worlds: int) -> Contestant:
    """EnvPool's steps, with episodes out of step.

    Args:
        level: The level's name.
        max_steps: Over how many steps the beginnings are spread: a usual time limit of the level.
        num_worlds: How many worlds are stepped at once.
    """
    worlds = make_envpool(level, num_worlds)
    play = play_envpool(worlds, num_worlds)
    for group in np.array_split(np.arange(num_worlds, dtype=np.int32), min(ENVPOOL_PHASES, num_worlds)):
        worlds.reset(group)
        for _ in range(max(1, max_steps // ENVPOOL_PHASES)):
            play()
    return Contestant(play, share=0.25, close=worlds.close)
