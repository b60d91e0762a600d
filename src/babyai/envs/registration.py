"""Puts every level into Gymnasium's registry as `babyai/<Level>-v0`. Needs neither the compiler nor torch."""

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
        # Gymnasium's passive checker stumbles over the first step if the first reset was refused, for a misspelt
        # mission say, and would hide what was wrong. Our tests run its full checker on every id instead.
        disable_env_checker=True,
    )


def register_all() -> None:
    """Registers the whole catalog; does nothing for ids that are there already."""
    for level in LEVELS.values():
        _register(level)


def register_level(level: Level) -> Level:
    """Adds a level of your own to the catalog and, as `babyai/<name>-v0`, to Gymnasium; returns it.

    A level of yours that has the same name is replaced, so that a notebook cell can be run again.
    """
    if level.name in BUILT_IN:
        raise ValueError(f"{level.name!r} is one of BabyAI's own levels; choose another name")
    LEVELS[level.name] = level
    # Whoever imports Gymnasium later finds the whole catalog registered.
    if sys.modules.get("gymnasium") is not None:
        _register(level)
    return level
