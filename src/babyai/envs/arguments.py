"""Validation of the environments' arguments; error messages name the accepted values."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

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


def find_limited_level(level: str | Level, rules: Rules, max_steps: int | None) -> Level:
    """The level, with `max_steps` as the time limit of every episode if it is not None, as in Minigrid."""
    found = find_level(level, rules)
    if max_steps is None:
        return found
    if isinstance(max_steps, bool) or not isinstance(max_steps, int):
        raise TypeError(f"max_steps must be an integer, not {max_steps!r}")
    if not 1 <= max_steps < 2**31:
        raise ValueError(f"max_steps must be at least 1 and below 2**31, not {max_steps}")
    return replace(found, max_steps=max_steps)
