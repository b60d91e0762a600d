"""What settings a level may have: ranges that kernels rely on, and what each built-in recipe needs to place its things.

`Level` calls `check_settings` when it is made, so that no kernel meets a room that does not exist, a number that does
not fit its field, or more doors than a room has walls.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from babyai.levels.draft import MAX_ROOMS, MAX_THINGS
from babyai.world.codes import COLORS
from babyai.world.state import MAX_SIZE

if TYPE_CHECKING:
    from babyai.levels.catalog import Level

# World records store the time limit as an int32.
MAX_STEPS = 2**31 - 1
MAX_VARIANT = 255


@dataclass(frozen=True)
class Needs:
    """What a recipe needs: the smallest, and where it matters the largest, value of each setting."""

    rows: int = 1
    columns: int = 1
    room_size: int = 3
    objects: int = 0
    max_rows: int = MAX_ROOMS
    max_columns: int = MAX_ROOMS
    max_room_size: int = MAX_SIZE
    max_objects: int = MAX_THINGS
    variants: int = 1
    """How many variants there are."""
    square: bool = False
    """Whether there must be as many rows as columns."""


_MIDDLE_ROOM = Needs(rows=2, columns=2)
_FOUR_DOORS = Needs(rows=3, columns=3)
_NINE_BY_NINE = Needs(rows=2, columns=2, room_size=9, max_rows=2, max_columns=2, max_room_size=9)
NEEDS = {
    "go_to_red_ball": Needs(variants=2),
    "go_to_local": Needs(objects=1),
    "go_to_maze": Needs(objects=1, variants=2),
    "go_to_door": _FOUR_DOORS,
    "go_to_object_or_door": _FOUR_DOORS,
    "open_red_door": Needs(columns=2),
    "open_one_door": Needs(rows=3, columns=3, variants=3),
    "open_two_doors": Needs(rows=2, columns=3),
    "open_doors_in_order": Needs(rows=3, columns=3, objects=2, max_objects=4),
    "pick_up_maze": Needs(objects=1, variants=2),
    "pick_up_above": _MIDDLE_ROOM,
    "find_object": Needs(rows=2, columns=2, square=True),
    "act_on_object_or_door": _FOUR_DOORS,
    "put_next_local": Needs(objects=2),
    "put_next_maze": Needs(objects=2),
    "put_next_across": Needs(columns=2, objects=1),
    "move_two_across": Needs(columns=2, objects=2),
    "unlock_local": _MIDDLE_ROOM,
    "key_in_box": _MIDDLE_ROOM,
    "unlock_pickup": Needs(columns=2, variants=2),
    "unlock_to_unlock": Needs(columns=3),
    "key_corridor": Needs(columns=3),
    "go_to_blocked": Needs(room_size=5),
    "put_next_to_blocked": Needs(room_size=6),
    "put_next_close_to_closed_door": Needs(rows=2, room_size=6, max_columns=1, variants=2),
    "put_next_to_identical": Needs(room_size=6),
    "unblocking_loop": _NINE_BY_NINE,
    "put_next_close_to_door": _NINE_BY_NINE,
    "lots_of_blockers": Needs(room_size=8),
}


def check_settings(level: "Level") -> None:
    """Checks the settings that kernels rely on.

    Raises:
        ValueError: One of them is impossible, or not what the recipe needs; the message says which, and what is.
    """
    needs = Needs(variants=MAX_VARIANT) if callable(level.recipe) else NEEDS.get(level.recipe, Needs())
    _require(level, isinstance(level.name, str) and level.name.isprintable() and level.name, "its name is not a name")
    for setting, low, high in (
        ("room_size", needs.room_size, needs.max_room_size),
        ("rows", needs.rows, needs.max_rows),
        ("columns", needs.columns, needs.max_columns),
        ("objects", needs.objects, needs.max_objects),
        ("variant", 0, needs.variants - 1),
        ("max_steps", 0, MAX_STEPS),
        ("version", 0, MAX_STEPS),
    ):
        value = getattr(level, setting)
        problem = f"{setting} must be an integer in {low}..{high}, not {value!r}"
        _require(level, _is_integer(value) and low <= value <= high, problem)
    _require(
        level,
        max(level.width, level.height) <= MAX_SIZE and level.rows * level.columns <= MAX_ROOMS,
        f"{level.rows} x {level.columns} rooms of size {level.room_size} make a grid of {level.width} x {level.height} "
        f"cells; at most {MAX_SIZE} x {MAX_SIZE} cells and {MAX_ROOMS} rooms are possible",
    )
    _require(
        level,
        level.rows == level.columns or not needs.square,
        f"the recipe {level.recipe!r} needs as many rows as columns, not {level.rows} and {level.columns}",
    )
    for setting in ("strict", "carrying", "locations", "unblocking", "implicit_unlock"):
        value = getattr(level, setting)
        _require(level, isinstance(value, int) and value in (0, 1), f"{setting} must be True or False, not {value!r}")
    locked = level.locked_room
    is_probability = isinstance(locked, int | float) and math.isfinite(locked) and 0 <= locked <= 1
    _require(level, is_probability, f"locked_room must be a probability in 0..1, not {locked!r}")
    colors = level.colors
    _require(
        level,
        isinstance(colors, tuple | list) and len(colors) == 2 and all(_is_color(color) for color in colors),
        f"colors must be two colors in 0..{len(COLORS) - 1}, or -1 for any, not {colors!r}",
    )


def _require(level: "Level", condition: Any, problem: str) -> None:
    if not condition:
        raise ValueError(f"level {level.name!r}: {problem}")


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_color(value: Any) -> bool:
    return _is_integer(value) and -1 <= value < len(COLORS)
