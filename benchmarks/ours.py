"""Our own contestants: the engine, the vector environment, the single one, and resets alone."""

import importlib.util
from itertools import cycle
from typing import Any

import numpy as np

import babyai
from benchmarks.peers import NUM_ACTIONS, play_episodes, random_actions
from benchmarks.timing import Contestant

STEPS_PER_PLAY = 8
SINGLE_STEPS_PER_PLAY = 256
# No level's time limit divides this number, so that no world plays the same episode again and again.
ACTION_ROWS = 251


def has_environments() -> bool:
    """Whether the Gymnasium environments can be had."""
    return all(importlib.util.find_spec(f"babyai.envs.{name}") for name in ("single", "vector"))


def make_engine(level: str, num_worlds: int) -> babyai.Engine:
    """An engine of one thread whose worlds have all begun an episode."""
    engine = babyai.Engine(level, num_worlds)
    engine.reset(0)
    return engine


def put_out_of_step(engine: babyai.Engine) -> None:
    """Moves each world's clock to a random point of its time limit, so that resets come evenly."""
    generator = np.random.default_rng(4)
    engine.worlds.step_count = generator.integers(0, engine.worlds.max_steps)


def draw_actions(num_worlds: int) -> Any:
    """Endless rows of random actions, drawn beforehand."""
    return cycle(np.random.default_rng(5).integers(0, NUM_ACTIONS, (ACTION_ROWS, num_worlds)))


def open_engine(level: str, num_worlds: int) -> Contestant:
    """The engine's steps, resets included."""
    engine = make_engine(level, num_worlds)
    put_out_of_step(engine)
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
    """The engine's resets alone, of all worlds at once."""
    engine = make_engine(level, num_worlds)

    def play() -> int:
        engine.reset()
        return num_worlds

    return Contestant(play, share=0.25, close=engine.close)


def open_vector(level: str, num_worlds: int, copy: bool) -> Contestant:
    """`gym.make_vec`'s steps, with fresh arrays at each step (copy) or views of the engine's."""
    import gymnasium

    worlds: Any = gymnasium.make_vec(babyai.LEVELS[level].id, num_envs=num_worlds, copy=copy)
    worlds.reset(seed=0)
    engine = find_engine(worlds.unwrapped)
    put_out_of_step(engine)
    actions = draw_actions(num_worlds)

    def play() -> int:
        for _ in range(STEPS_PER_PLAY):
            worlds.step(next(actions))
        return STEPS_PER_PLAY * num_worlds

    for _ in range(int(engine.worlds.max_steps.max()) // 2 // STEPS_PER_PLAY + 1):
        play()
    return Contestant(play, share=0.25, close=worlds.close)


def open_single(level: str) -> Contestant:
    """`gym.make`'s steps in one world, resets included."""
    import gymnasium

    world = gymnasium.make(babyai.LEVELS[level].id)
    world.reset(seed=0)
    put_out_of_step(find_engine(world.unwrapped))
    actions = random_actions(6)

    def play() -> int:
        return play_episodes(world, actions, SINGLE_STEPS_PER_PLAY)

    return Contestant(play, share=0.25, close=world.close)


def find_engine(environment: Any) -> babyai.Engine:
    """The engine inside one of our environments."""
    return next(value for value in vars(environment).values() if isinstance(value, babyai.Engine))


def usual_limit(level: str, num_worlds: int) -> int:
    """The median time limit of so many worlds of a level."""
    return int(np.median(make_engine(level, num_worlds).worlds.max_steps))


def bytes_per_world(num_worlds: int) -> tuple[int, int]:
    """The bytes of one world's record, and of what the engine shows of one world."""
    engine = babyai.Engine("GoToLocal", num_worlds)
    shown = (engine.images, engine.directions, engine.missions)
    told = (engine.rewards, engine.terminated, engine.truncated, engine.done)
    return engine.worlds.nbytes // num_worlds, sum(array.nbytes for array in shown + told) // num_worlds
