"""The agent's view in English, in one of two wordings."""

from collections.abc import Sequence
from typing import Any, Literal, get_args

import numpy as np

from babyai.world.codes import (
    BALL,
    BOX,
    COLORS,
    DOOR,
    DOOR_CLOSED,
    DOOR_LOCKED,
    DOOR_OPEN,
    EMPTY,
    KEY,
    WALL,
)

Wording = Literal["plain", "babyai_text"]
WORDINGS: tuple[str, ...] = get_args(Wording)

KIND_NAMES = {DOOR: "door", KEY: "key", BALL: "ball", BOX: "box"}
DOOR_STATES = {DOOR_OPEN: "open", DOOR_CLOSED: "closed", DOOR_LOCKED: "locked"}

# A place in the view: steps ahead, and steps to the right (negative: to the left).
Place = tuple[int, int]
# The symbolic view as nested lists: view[vx][vy] is (type, color, state).
View = list[list[list[int]]]


def check_wording(wording: Any) -> None:
    """Raises a ValueError unless this is a wording."""
    if wording not in WORDINGS:
        raise ValueError(f"unknown wording {wording!r}; expected one of {', '.join(map(repr, WORDINGS))}")


def describe_view(image: np.ndarray, wording: Wording = "plain") -> list[str]:
    """Sentences that describe the agent's view.

    In the wording "plain", the nearest comes first and the carried object last. All visible objects and doors are
    described, but only the first wall straight ahead, to the left and to the right. The wording "babyai_text" is that
    of BabyAI-Text (Carta et al. 2023), to the letter: the carried object, then these walls unless something stands
    before them, then objects and doors, column by column from left to right.

    Args:
        image: (n, n, 3) uint8, the symbolic view, indexed [vx][vy].
        wording: "plain" or "babyai_text".
    """
    check_wording(wording)
    # Many single cells are read, for which lists are several times faster than arrays.
    view = image.tolist()
    return _describe_plainly(view) if wording == "plain" else _describe_as_babyai_text(view)


def name_object(triple: Sequence[int] | np.ndarray) -> str:
    """The name of a (type, color, state) triple with its article: "a red ball", "an open green door"."""
    name = name_kind(triple)
    return f"an {name}" if name.startswith("open") else f"a {name}"


def name_kind(triple: Sequence[int] | np.ndarray) -> str:
    """The name of a (type, color, state) triple without an article: "red ball", "open green door", "wall"."""
    kind, color, state = triple
    if kind == WALL:
        return "wall"
    name = f"{COLORS[color]} {KIND_NAMES[kind]}"
    return f"{DOOR_STATES[state]} {name}" if kind == DOOR else name


def _describe_plainly(view: View) -> list[str]:
    places = _objects(view) + _nearest_walls(view, behind_objects=True)
    places.sort(key=lambda place: (place[0] + abs(place[1]), -place[0], place[1]))
    sentences = [f"You see {name_object(_at(view, place))} {_direction(place)}" for place in places]
    carried = _at(view, (0, 0))
    return [*sentences, f"You carry {name_object(carried)}"] if carried[0] > WALL else sentences


def _describe_as_babyai_text(view: View) -> list[str]:
    # BabyAI-Text puts the sideways distance first, and writes "a open".
    places = _nearest_walls(view, behind_objects=False) + _objects(view)
    sentences = [
        f"You see a {name_kind(_at(view, place))} {_direction(place, sideways_first=True)}" for place in places
    ]
    carried = _at(view, (0, 0))
    return [f"You carry a {name_kind(carried)}", *sentences] if carried[0] > WALL else sentences


def _at(view: View, place: Place) -> list[int]:
    """The (type, color, state) at a place."""
    ahead, right = place
    return view[len(view) // 2 + right][len(view) - 1 - ahead]


def _objects(view: View) -> list[Place]:
    """The places of all visible objects and doors, column by column from left to right, each from far to near."""
    middle = len(view) // 2
    bottom = len(view) - 1
    visible = [
        (bottom - vy, vx - middle) for vx, column in enumerate(view) for vy, cell in enumerate(column) if cell[0] > WALL
    ]
    return [place for place in visible if place != (0, 0)]


def _nearest_walls(view: View, behind_objects: bool) -> list[Place]:
    """The places of the first wall ahead, to the left and to the right, if visible.

    Args:
        view: The view.
        behind_objects: Whether a wall counts if something else stands before it.
    """
    rays = (
        [(distance, 0) for distance in range(1, len(view))],
        [(0, -distance) for distance in range(1, len(view) // 2 + 1)],
        [(0, distance) for distance in range(1, len(view) // 2 + 1)],
    )
    passed = (EMPTY, DOOR, KEY, BALL, BOX) if behind_objects else (EMPTY,)
    walls = []
    for ray in rays:
        place = next((place for place in ray if _at(view, place)[0] not in passed), None)
        if place is not None and _at(view, place)[0] == WALL:
            walls.append(place)
    return walls


def _direction(place: Place, sideways_first: bool = False) -> str:
    """Where a place is: "2 steps forward and 1 step left"."""
    ahead, right = place
    parts = [_steps(ahead, "forward")] if ahead else []
    if right:
        parts.insert(0 if sideways_first else len(parts), _steps(abs(right), "right" if right > 0 else "left"))
    return " and ".join(parts)


def _steps(count: int, direction: str) -> str:
    return f"{count} step{'s' if count > 1 else ''} {direction}"
