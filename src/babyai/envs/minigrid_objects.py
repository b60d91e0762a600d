"""Objects with the attributes of Minigrid's `WorldObj`: walls, doors, keys, balls and boxes."""

from typing import TYPE_CHECKING, Any

from babyai.envs.minigrid_classes import minigrid_class
from babyai.world.codes import (
    BALL,
    BOX,
    COLOR_SHIFT,
    COLORS,
    DOOR,
    EMPTY,
    KEY,
    KIND_MASK,
    LOCKED_DOOR,
    MARKED,
    MINIGRID_TYPES,
    OBJECT_KINDS,
    OPAQUE,
    WALL,
    cell_of,
    triple_of,
)

if TYPE_CHECKING:
    from babyai.envs.minigrid_tracking import TrackedObjects

Position = tuple[int, int]
KINDS = {"wall": WALL, "door": DOOR, "key": KEY, "ball": BALL, "box": BOX}
NO_POSITION = (-1, -1)

_NOT_OFFERED = {
    "toggle": "an object cannot act on its own; face it and call env.step(Action.toggle)",
    "render": "use grid.render(tile_size), or env.unwrapped.get_frame()",
}


class GridObject:
    """An object in the grid, in the agent's hand, in a box, or not in a world at all.

    `env.unwrapped.grid.get(i, j)` returns the same object for as long as it exists in an episode, wherever it is
    carried. Setting `color`, `is_open` or `is_locked` changes the world.

    Args:
        type: "wall", "door", "key", "ball" or "box".
        color: Color name.
        is_open: Doors only.
        is_locked: Doors only.
        contains: Boxes only: the object in the box.
    """

    __slots__ = ("_cell", "_contains", "_cur_pos", "_tracked_by", "_tracks", "init_pos")

    def __init__(
        self,
        type: str,
        color: str = "grey",
        is_open: bool = False,
        is_locked: bool = False,
        contains: "GridObject | None" = None,
    ) -> None:
        if type not in KINDS:
            raise ValueError(f"a BabyAI world has no objects of type {type!r}; expected one of {', '.join(KINDS)}")
        if color not in COLORS:
            raise ValueError(f"unknown color {color!r}; expected one of {', '.join(COLORS)}")
        kind = LOCKED_DOOR if type == "door" and is_locked and not is_open else KINDS[type]
        self._cell = cell_of(kind, COLORS.index(color)) & (~OPAQUE if type == "door" and is_open else 255)
        self._contains = contains
        self._tracked_by: TrackedObjects | None = None
        # The judge's track bits of an object that is out of the grid.
        self._tracks = 0
        self._cur_pos: Position | None = None
        self.init_pos: Position | None = None
        """Where it was when its world was first looked at in this episode; None for doors and walls, as in Minigrid."""

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The class that `isinstance` sees: Minigrid's, if Minigrid has been imported."""
        return minigrid_class("minigrid.core.world_object", self.type.capitalize(), GridObject)

    @property
    def type(self) -> str:
        """One of "wall", "door", "key", "ball" and "box"."""
        return MINIGRID_TYPES[triple_of(self._cell)[0]]

    @property
    def color(self) -> str:
        """Color name, as in Minigrid."""
        return COLORS[self._cell >> COLOR_SHIFT & 7]

    @color.setter
    def color(self, value: str) -> None:
        if value not in COLORS:
            raise ValueError(f"unknown color {value!r}; expected one of {', '.join(COLORS)}")
        self._rewrite(self._cell & ~(7 << COLOR_SHIFT) | COLORS.index(value) << COLOR_SHIFT)

    @property
    def is_open(self) -> bool:
        """Whether it is an open door."""
        return self._cell & (KIND_MASK | OPAQUE) == DOOR

    @is_open.setter
    def is_open(self, value: bool) -> None:
        self._require_door("is_open")
        kind = self._cell & KIND_MASK
        if value:
            self._rewrite(self._cell & ~KIND_MASK & ~OPAQUE | DOOR)
        else:
            self._rewrite(self._cell & ~KIND_MASK | OPAQUE | kind)

    @property
    def is_locked(self) -> bool:
        """Whether it is a locked door."""
        return self._cell & KIND_MASK == LOCKED_DOOR

    @is_locked.setter
    def is_locked(self, value: bool) -> None:
        self._require_door("is_locked")
        if bool(value) != self.is_locked:
            self._rewrite(self._cell & ~KIND_MASK | OPAQUE | (LOCKED_DOOR if value else DOOR))

    @property
    def contains(self) -> "GridObject | None":
        """Boxes only: the object in the box."""
        return self._contains

    @property
    def cur_pos(self) -> Position | None:
        """Its (x, y); (-1, -1) while it is carried; None for walls, contents of a box, and objects without a world."""
        return self._cur_pos

    @cur_pos.setter
    def cur_pos(self, value: Any) -> None:
        if self._cur_pos is None or tuple(value) != self._cur_pos:
            raise AttributeError(
                f"cur_pos says where an object is and does not move it; use env.unwrapped.put_obj(obj, {value[0]}, "
                f"{value[1]}), after grid.set(i, j, None) where it was"
            )

    def encode(self) -> tuple[int, int, int]:
        """The (type, color, state) triple of images."""
        return triple_of(self._cell)

    def can_pickup(self) -> bool:
        """Whether the agent can pick it up."""
        return self._cell & KIND_MASK in OBJECT_KINDS

    def can_overlap(self) -> bool:
        """Whether the agent can enter its cell, which is true only of an open door."""
        return self.is_open

    def can_contain(self) -> bool:
        """False: Minigrid's levels put things into boxes when they make them."""
        return False

    def see_behind(self) -> bool:
        """Whether the agent can see through it."""
        return not self._cell & OPAQUE

    def _require_door(self, name: str) -> None:
        if self.type != "door":
            raise AttributeError(f"only doors have {name}; this is a {self.color} {self.type}")

    def _rewrite(self, cell: int) -> None:
        """Sets the cell byte, also in the world if the object is in one."""
        if self is WALL_OBJECT:
            raise AttributeError("all walls of a world are one object; to change one, put a new object in its cell")
        self._cell = cell
        if self._tracked_by is not None:
            self._tracked_by.rewrite(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "GridObject":
        """A copy that is in no world."""
        twin = GridObject(self.type, self.color)
        twin._cell = self._cell
        twin._contains = None if self._contains is None else self._contains.__deepcopy__(memo)
        twin._cur_pos = self._cur_pos
        twin.init_pos = self.init_pos
        return twin

    def __reduce__(self) -> tuple[Any, ...]:
        twin = (self.type, self.color, self.is_open, self.is_locked, self._contains)
        return GridObject, twin

    def __getattr__(self, name: str) -> Any:
        reason = _NOT_OFFERED.get(name, "")
        raise AttributeError(f"a GridObject has no attribute {name!r}" + (f": {reason}" if reason else ""))

    def __repr__(self) -> str:
        return f"<{self.color} {self.type} at {self._cur_pos}>"


# All walls of all worlds are this one object.
WALL_OBJECT = GridObject("wall", "grey")


def object_of(cell: int, hidden: int = 0) -> GridObject | None:
    """A new object for a cell byte, or None; `hidden` is the cell byte of the contents of a marked box."""
    if cell & KIND_MASK <= EMPTY:
        return None
    found = GridObject("wall")
    found._cell = cell
    if cell & KIND_MASK == BOX and cell & MARKED and hidden:
        found._contains = object_of(hidden)
    return found


def adopt(obj: Any) -> GridObject:
    """The object itself, or a new one like an object of Minigrid's own class."""
    if type(obj) is GridObject:
        return obj
    try:
        contains = getattr(obj, "contains", None)
        return GridObject(
            obj.type,
            obj.color,
            getattr(obj, "is_open", False),
            getattr(obj, "is_locked", False),
            None if contains is None else adopt(contains),
        )
    except AttributeError:
        raise TypeError(f"expected a GridObject, an object of Minigrid, or None, not {obj!r}") from None
