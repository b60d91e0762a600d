"""Registration of levels with Gymnasium as `babyai/<Level>-v0`. Needs neither Numba nor torch."""

import sys

from babyai.levels.catalog import BUILT_IN, LEVELS, Level


def _register(level: Level) -> None:
    import gymnasium

    if level.id in gymnasium.registry:
        return
    gymnasium.register(
        id=level.id,
        entry_point="babyai.envs.single:BabyAIEnv",
        vector_entry_point="babyai.envs.vector:BabyAIVectorEnv",
        kwargs={"level": level.name},
        # If the first reset raises an error, say because of a misspelled mission, Gymnasium's passive checker fails at
        # the first step and hides that error. The tests run Gymnasium's full checker on every id instead.
        disable_env_checker=True,
    )


def register_all() -> None:
    """Registers all levels of the catalog that are not registered yet."""
    for level in LEVELS.values():
        _register(level)


def register_level(level: Level) -> Level:
    """Adds a custom level to the catalog and registers it with Gymnasium as `babyai/<name>-v0`; returns the level.

    A custom level with the same name is replaced, so that a notebook cell can be run again.
    """
    if level.name in BUILT_IN:
        raise ValueError(f"{level.name!r} is a built-in level; choose another name")
    LEVELS[level.name] = level
    # If Gymnasium is not imported yet, its import will register the whole catalog.
    if sys.modules.get("gymnasium") is not None:
        _register(level)
    return level
