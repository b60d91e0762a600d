"""Registration of levels with Gymnasium as `babyai/<Level>-v0`. Needs neither Numba nor torch."""

import sys

from babyai.levels.catalog import BUILT_IN, LEVELS, Level, Rules

# Levels that only we have, and the one id of Minigrid's with another version.
NOT_IN_MINIGRID = frozenset(name for name in BUILT_IN if name in ("PutNext", "OpenTwoDoorsDebug") or "Test" in name)
MINIGRID_VERSIONS = {"GoToObjS6": 1}


def _register(level: Level) -> None:
    import gymnasium

    if level.id not in gymnasium.registry:
        _register_as(level.id, {"level": level.name})


def _register_as(name: str, settings: dict[str, str]) -> None:
    import gymnasium

    gymnasium.register(
        id=name,
        entry_point="babyai.envs.single:BabyAIEnv",
        vector_entry_point="babyai.envs.vector:BabyAIVectorEnv",
        kwargs=settings,
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


def minigrid_id(level: Level) -> str:
    """Minigrid's id of a built-in level."""
    if level.name in NOT_IN_MINIGRID or level.name not in BUILT_IN:
        raise ValueError(f"Minigrid has no level {level.name!r}")
    return f"BabyAI-{level.name}-v{MINIGRID_VERSIONS.get(level.name, 0)}"


def register_minigrid_ids(rules: Rules = "minigrid", *, replace: bool = False) -> list[str]:
    """Registers our environments under Minigrid's ids, so that `gym.make("BabyAI-GoToLocal-v0")` makes ours.

    Where Minigrid is installed, Gymnasium already knows these ids.

    Args:
        rules: Rule set of these environments.
        replace: Whether to replace ids that exist already.

    Returns:
        The ids.

    Raises:
        ValueError: Ids exist already and `replace` is False; none is registered then.
    """
    import gymnasium

    ids = {minigrid_id(LEVELS[name]): name for name in LEVELS if name in BUILT_IN - NOT_IN_MINIGRID}
    existing = [each for each in ids if each in gymnasium.registry]
    if existing and not replace:
        raise ValueError(
            f"{len(existing)} ids such as {existing[0]!r} are already registered, by Minigrid or by an earlier call; "
            f"pass replace=True to replace them by babyai's"
        )
    for each in existing:
        del gymnasium.registry[each]
    for each, name in ids.items():
        _register_as(each, {"level": name, "rules": rules})
    return list(ids)
