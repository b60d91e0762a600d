"""Keyword arguments of Minigrid's constructors, such as `room_size` and `num_dists`, as settings of a level."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from babyai.levels.catalog import ANY, Level
from babyai.world.codes import COLORS

SIZE = {"room_size": "room_size"}
ROOMS = {**SIZE, "num_rows": "rows", "num_cols": "columns"}
DISTRACTORS = {"num_dists": "objects"}
LEVEL_GEN = {
    "locked_room_prob": "locked_room",
    "locations": "locations",
    "unblocking": "unblocking",
    "implicit_unlock": "implicit_unlock",
    "action_kinds": "verbs",
    "instr_kinds": "joins",
}

# By recipe: Minigrid's argument and the field of `Level` that it sets.
FIELDS: dict[str, dict[str, str]] = {
    "go_to_red_ball": SIZE | DISTRACTORS,
    "go_to_local": SIZE | DISTRACTORS,
    "go_to_red_blue_ball": SIZE | DISTRACTORS,
    "go_to_object": SIZE,
    "one_room": SIZE,
    "find_object": SIZE,
    "go_to_maze": ROOMS | DISTRACTORS | {"doors_open": "variant"},
    "put_next_local": SIZE | {"num_objs": "objects"},
    "put_next_across": SIZE | {"objs_per_room": "objects", "start_carrying": "carrying"},
    "move_two_across": SIZE | {"objs_per_room": "objects"},
    "key_corridor": SIZE | {"num_rows": "rows"},
    "open_one_door": {"debug": "strict", "select_by": "variant"},
    "open_two_doors": {"strict": "strict"},
    "open_doors_in_order": {"num_doors": "objects", "debug": "strict"},
    "pick_up_distinct": {"debug": "strict"},
    "random_level": ROOMS | DISTRACTORS | LEVEL_GEN,
}
# Recipes whose time limit is a multiple of the area of a room.
STEPS_PER_CELL = {"find_object": 20, "put_next_across": 8, "move_two_across": 16, "key_corridor": 30}

_VERBS = {"goto": "go to", "pickup": "pick up", "open": "open", "putnext": "put next"}
# How a value of Minigrid's becomes a setting of a level; all others are taken as they are.
_CONVERT: dict[str, Callable[[Any], Any]] = {
    "doors_open": int,
    "select_by": lambda value: {None: 0, "color": 1, "loc": 2}[value],
    "action_kinds": lambda values: tuple(_VERBS[value] for value in values),
    "instr_kinds": tuple,
}
_DISTRACTORS_OF = {"unlock_local": 3, "unlock_pickup": 4}


def apply_arguments(level: Level, arguments: dict[str, Any], max_steps: int | None) -> Level:
    """The level with Minigrid's arguments applied.

    Raises:
        TypeError: The level has no such argument; the message names those that it has.
        ValueError: The level cannot have that value.
    """
    if not arguments:
        return level
    recipe = level.recipe if isinstance(level.recipe, str) else ""
    known = FIELDS.get(recipe, {})
    settings: dict[str, Any] = {}
    for name, value in arguments.items():
        if name in ("first_color", "second_color") and recipe == "open_two_doors":
            colors = list(settings.get("colors", level.colors))
            colors[name == "second_color"] = ANY if value is None else _color(value)
            settings["colors"] = tuple(colors)
        elif name == "distractors" and recipe in _DISTRACTORS_OF:
            settings["objects"] = _DISTRACTORS_OF[recipe] if value else 0
        elif name in known:
            settings[known[name]] = _convert(name, value)
        else:
            raise TypeError(_unknown(level, name, _names_of(recipe)))
    if "room_size" in settings and recipe in STEPS_PER_CELL and max_steps is None:
        settings["max_steps"] = STEPS_PER_CELL[recipe] * settings["room_size"] ** 2
    return replace(level, **settings)


def _convert(name: str, value: Any) -> Any:
    try:
        return _CONVERT[name](value) if name in _CONVERT else value
    except (KeyError, TypeError, ValueError):
        raise ValueError(f"{name}={value!r} is not a value of Minigrid's") from None


def _color(name: Any) -> int:
    if name not in COLORS:
        raise ValueError(f"unknown color {name!r}; expected one of {', '.join(COLORS)}")
    return COLORS.index(name)


def _names_of(recipe: str) -> list[str]:
    colors = ["first_color", "second_color"] if recipe == "open_two_doors" else []
    distractors = ["distractors"] if recipe in _DISTRACTORS_OF else []
    return [*FIELDS.get(recipe, {}), *colors, *distractors]


def _unknown(level: Level, name: str, known: Iterable[str]) -> str:
    names = ", ".join(known)
    offer = f"it has {names}" if names else "it has none of Minigrid's own"
    return f"level {level.name!r} has no argument {name!r}: {offer}; for other settings, make a babyai.Level"
