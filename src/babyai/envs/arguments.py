"""Validation of the environments' arguments; error messages name the accepted values."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from babyai.envs.minigrid_arguments import apply_arguments
from babyai.levels.catalog import Level, Rules, find_level


def check_choice(name: str, given: Any, known: Iterable[Any]) -> None:
    """Raises a ValueError unless `given` is one of the known values."""
    known = tuple(known)
    if given not in known:
        raise ValueError(f"unknown {name} {given!r}; expected one of {', '.join(map(repr, known))}")


def check_options(options: Mapping[str, Any] | None, known: Iterable[str]) -> dict[str, Any]:
    """A copy of the reset options; raises a ValueError if one of them is unknown."""
    given = dict(options or {})
    known = tuple(known)
    for key in given:
        if key not in known:
            raise ValueError(f"unknown reset option {key!r}; expected one of {', '.join(map(repr, known))}")
    return given


def find_limited_level(
    level: str | Level, rules: Rules, max_steps: int | None, arguments: Mapping[str, Any] | None = None
) -> Level:
    """The level with arguments of Minigrid's constructors, and with `max_steps` as its limit unless that is None."""
    found = apply_arguments(find_level(level, rules), dict(arguments or {}), max_steps)
    check_step_limit("max_steps", max_steps)
    return found if max_steps is None else replace(found, max_steps=int(max_steps))


def check_step_limit(name: str, limit: Any) -> None:
    """Raises an error unless a limit is None or a number of steps that a world can count."""
    if limit is None:
        return
    if isinstance(limit, bool) or not isinstance(limit, int | np.integer):
        raise TypeError(f"{name} must be an integer, not {limit!r}")
    if not 1 <= limit < 2**31:
        raise ValueError(f"{name} must be at least 1 and below 2**31, not {limit}")
