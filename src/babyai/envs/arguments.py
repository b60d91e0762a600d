"""What users give to the environments, checked: each fault is answered with what would have been right."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

from babyai.levels.catalog import Level, Rules, find_level


def check_choice(name: str, given: Any, known: Iterable[Any]) -> None:
    """Nothing happens where `given` is one of those known."""
    known = tuple(known)
    if given not in known:
        raise ValueError(f"unknown {name} {given!r}; it can be {', '.join(map(repr, known))}")


def check_options(options: Mapping[str, Any] | None, known: Iterable[str]) -> dict[str, Any]:
    """The options of a reset as a dict of our own, if all of them are known."""
    given, known = dict(options or {}), tuple(known)
    for key in given:
        if key not in known:
            raise ValueError(f"unknown reset option {key!r}; known are {', '.join(map(repr, known))}")
    return given


def find_limited_level(level: str | Level, rules: Rules, max_steps: int | None) -> Level:
    """The level, with a time limit of its own for every episode where one is given, as in Minigrid."""
    found = find_level(level, rules)
    if max_steps is None:
        return found
    if isinstance(max_steps, bool) or not isinstance(max_steps, int):
        raise TypeError(f"max_steps must be an integer, not {max_steps!r}")
    if not 1 <= max_steps < 2**31:
        raise ValueError(f"max_steps must be at least 1 and below 2**31, not {max_steps}")
    return replace(found, max_steps=max_steps)
