"""Our contestants: the engine, the vector environment, the single environment, and resets."""

import importlib.util
from itertools import cycle
from typing import Any

import numpy as np

import babyai
from benchmarks.peers import NUM_ACTIONS, play_episodes, random_actions
from benchmarks.timing import Contestant

STEPS_PER_PLAY = 8
SINGLE_STEPS_PER_PLAY = 256
# Not a divisor of any level's time limit, so that a world does not repeat the same episode.
ACTION_ROWS = 251


def has_environments() -> bool:
    """Whether the Gymnasium environments are available."""
    return all(importlib.util.find_spec(f"babyai.envs.{name}") for name in ("single", "vector"))


def make_engine(level: str, num_worlds: int) -> babyai.Engine:
    """An engine with one thread, after a reset of all worlds."""
    engine = babyai.Engine(level, num_worlds)
    engine.reset(0)
    return engine


def randomize_step_counts(engine: babyai.Engine) -> None:
    """Sets each world's step count to a random value below its time limit, so that resets are spread evenly."""
    generator = np.random.default_rng(4)
    engine.worlds.step_count = generator.integers(0, engine.worlds.max_steps)


def draw_actions(num_worlds: int) -> Any:
    """Endless rows of random actions, drawn in advance."""
    return cycle(np.random.default_rng(5).integers(0, NUM_ACTIONS, (ACTION_ROWS, num_worlds)))


def open_engine(level: str, num_worlds: int) -> Contestant:
    """The engine's steps, including resets."""
    engine = make_engine(level, num_worlds)
    randomize_step_counts(engine)
    actions = draw_actions(num_worlds)

    def play() -> int:
        for _ in range(STEPS_PER_PLAY):
            engine.step(next(actions))
            engine.reset_done()
        return STEPS_PER_PLAY * num_worlds

    for _ in range(int(engine.worlds.max_steps.max()) // 2 // STEPS_PER_PLAY + 1):
        play()
    return Contestant(play, share=0.25, close=engine.close)


def open_resets(level: str, num_worlds: int) -> Contestant:
    """The engine's resets, of all worlds at once."""
    engine = make_engine(level, num_worlds)

    def play() -> int:
        engine.reset()
        return num_worlds

    return Contestant(play, share=0.25, close=engine.close)


def open_vector(level: str, num_worlds: int, copy: bool) -> Contestant:
    """The vector environment's steps, with new arrays at each step (copy=True) or views of the engine's."""
    import gymnasium

    worlds: Any = gymnasium.make_vec(babyai.LEVELS[level].id, num_envs=num_worlds, copy=copy, autoreset_mode="SameStep")
    worlds.reset(seed=0)
    engine = find_engine(worlds.unwrapped)
    randomize_step_counts(engine)
    actions = draw_actions(num_worlds)

    def play() -> int:
        for _ in range(STEPS_PER_PLAY):
            worlds.step(next(actions))
        return STEPS_PER_PLAY * num_worlds

    for _ in range(int(engine.worlds.max_steps.max()) // 2 // STEPS_PER_PLAY + 1):
        play()
    return Contestant(play, share=0.25, close=worlds.close)


def open_single(level: str) -> Contestant:
    """The single environment's steps, including resets."""
    import gymnasium

    world = gymnasium.make(babyai.LEVELS[level].id)
    world.reset(seed=0)
    randomize_step_counts(find_engine(world.unwrapped))
    actions = random_actions(6)

    def play() -> int:
        return play_episodes(world, actions, SINGLE_STEPS_PER_PLAY)

    return Contestant(play, share=0.25, close=world.close)


def find_engine(environment: Any) -> babyai.Engine:
    """The engine of one of our environments."""
    return next(value for value in vars(environment).values() if isinstance(value, babyai.Engine))


def median_time_limit(level: str, num_worlds: int) -> int:
    """The median time limit of this many worlds of a level."""
    return int(np.median(make_engine(level, num_worlds).worlds.max_steps))


def bytes_per_world(num_worlds: int) -> tuple[int, int]:
    """The size in bytes of one world's record, and of its part of the engine's output arrays."""
    engine = babyai.Engine("GoToLocal", num_worlds)
    observations = (engine.images, engine.directions, engine.missions)
    results = (engine.rewards, engine.terminated, engine.truncated, engine.done)
    return engine.worlds.nbytes // num_worlds, sum(array.nbytes for array in observations + results) // num_worlds
