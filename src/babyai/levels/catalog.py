"""The catalog: a table of all levels. Importing it does not import the compiler.

`LEVELS` maps a name to its `Level`. Rooms share walls, so a level is `(room_size - 1) * columns + 1` cells wide. The
names are those of Minigrid 3.2.0 without "BabyAI-" and the version. In addition there are the paper's PutNext, which
is not in Minigrid, and the levels that only the original has (OpenTwoDoorsDebug and the Test levels).
"""

import difflib
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any, Literal, get_args

import numpy as np

from babyai.levels.draft import LEVEL
from babyai.levels.limits import check_settings
from babyai.levels.tasks import describe_task
from babyai.world.codes import BLUE, GO_TO, OPEN, PICK_UP, PUT_NEXT, RED

Rules = Literal["paper", "minigrid"]
ANY = -1
# The value of `max_steps` if the time limit depends on the mission.
BY_MISSION = 0

# The recipes; the index is the number by which `dispatch` calls them.
RECIPES = (
    *("go_to_red_ball", "go_to_object", "go_to_local", "go_to_maze", "go_to_red_blue_ball", "go_to_door"),
    *("go_to_object_or_door", "open_maze", "open_red_door", "open_one_door", "open_two_doors", "open_doors_in_order"),
    *("pick_up_maze", "pick_up_distinct", "pick_up_above", "one_room", "find_object", "act_on_object_or_door"),
    *("put_next_local", "put_next_maze", "put_next_across", "move_two_across", "go_to_behind_locked_door", "unlock"),
    *("unlock_local", "key_in_box", "unlock_pickup", "unlock_to_unlock", "key_corridor", "random_level"),
    *("go_to_blocked", "put_next_to_blocked", "put_next_close_to_closed_door", "put_next_to_identical"),
    *("unblocking_loop", "put_next_close_to_door", "lots_of_blockers"),
)
VERBS = {"go to": GO_TO, "pick up": PICK_UP, "open": OPEN, "put next": PUT_NEXT}
JOINS = ("action", "and", "seq")


class UnknownLevelError(ValueError):
    """There is no level with this name."""


@dataclass(frozen=True)
class Level:
    """A recipe and its settings. The fields from `locked_room` to `joins` are for the recipe `random_level`."""

    name: str
    recipe: str | Callable[..., Any]
    """The name of a built-in recipe, or a function (see "Adding a level" in the docs)."""
    room_size: int = 8
    """Cells per side of a room, both walls included."""
    rows: int = 3
    columns: int = 3
    objects: int = 18
    """Number of objects that the recipe places (some recipes: per room; OpenDoorsOrder: number of doors)."""
    max_steps: int = BY_MISSION
    """The time limit; 0 means room_size² x rows x columns per trip that the mission takes."""
    variant: int = 0
    """Selects a variant of the recipe; see the docstring of the recipe."""
    strict: bool = False
    """Whether a wrong toggle or pickup fails the mission."""
    carrying: bool = False
    """Whether the agent starts with the object to be moved in hand."""
    colors: tuple[int, int] = (ANY, ANY)
    """The colors of the two doors of OpenTwoDoors."""
    locked_room: float = 0.5
    """Probability of a locked room."""
    locations: bool = True
    """Whether descriptors may have a place, such as "on your left"."""
    unblocking: bool = True
    """Whether objects may block the way."""
    implicit_unlock: bool = True
    """Whether the mission may require unlocking a room without saying so."""
    verbs: tuple[str, ...] = tuple(VERBS)
    """The verbs from which clauses are drawn."""
    joins: tuple[str, ...] = JOINS
    """The kinds of instructions: ("action",) for single clauses only, or all of JOINS."""
    version: int = 1
    """Increased whenever the same seed and actions would give a different episode."""

    def __post_init__(self) -> None:
        def require(condition: bool, message: str) -> None:
            if not condition:
                raise ValueError(f"level {self.name!r}: {message}")

        known = callable(self.recipe) or self.recipe in RECIPES
        require(known, f"unknown recipe {self.recipe!r}; expected a function, or one of {', '.join(RECIPES)}")
        check_settings(self)
        require(
            bool(self.verbs) and set(self.verbs) <= set(VERBS),
            f"verbs must be among {', '.join(VERBS)}; got {self.verbs!r}",
        )
        require(self.joins in (JOINS[:1], JOINS), f"joins must be {JOINS[:1]} or {JOINS}, got {self.joins!r}")

    @property
    def width(self) -> int:
        """Number of cells from left to right."""
        return (self.room_size - 1) * self.columns + 1

    @property
    def height(self) -> int:
        """Number of cells from top to bottom."""
        return (self.room_size - 1) * self.rows + 1

    @property
    def id(self) -> str:
        """The Gymnasium id."""
        return f"babyai/{self.name}-v0"

    @property
    def task(self) -> str:
        """What the agent is asked to do, in one line; empty for a custom recipe without a docstring."""
        return describe_task(self)

    def row(self, rules: Rules) -> np.ndarray:
        """Returns the settings as kernels read them: a zero-dimensional LEVEL record."""
        row = np.zeros((), dtype=LEVEL)
        for field in fields(self):
            if field.name in (LEVEL.names or ()) and field.name not in ("recipe", "verbs", "joins"):
                row[field.name] = getattr(self, field.name)
        row["recipe"] = RECIPES.index(self.recipe) if isinstance(self.recipe, str) else -1
        row["minigrid"] = rules == "minigrid"
        row["verbs"] = sum(1 << VERBS[verb] for verb in self.verbs)
        row["joins"] = len(self.joins)
        return row


def _one_room(name: str, recipe: str, **settings: Any) -> Level:
    return Level(name, recipe, rows=1, columns=1, **settings)


def _two_rooms(name: str, recipe: str, **settings: Any) -> Level:
    return Level(name, recipe, rows=1, columns=2, **settings)


def _generated(name: str, **settings: Any) -> Level:
    return Level(name, "random_level", **settings)


SINGLE_CLAUSE = JOINS[:1]

_TABLE = (
    # Go to something in a single room.
    _one_room("GoToRedBallGrey", "go_to_red_ball", objects=7, variant=1),
    _one_room("GoToRedBall", "go_to_red_ball", objects=7),
    _one_room("GoToRedBallNoDists", "go_to_red_ball", objects=0),
    _one_room("GoToObj", "go_to_object"),
    *(_one_room(f"GoToObjS{size}", "go_to_object", room_size=size) for size in (4, 6)),
    _one_room("GoToLocal", "go_to_local", objects=8),
    *(
        _one_room(f"GoToLocalS{size}N{count}", "go_to_local", room_size=size, objects=count)
        for size, count in [(5, 2), (6, 2), (6, 3), (6, 4), (7, 4), (7, 5), *((8, n) for n in range(2, 8))]
    ),
    _one_room("GoToRedBlueBall", "go_to_red_blue_ball", objects=7),
    Level("GoToDoor", "go_to_door", room_size=7),
    Level("GoToObjDoor", "go_to_object_or_door"),
    # Go to something in a maze.
    Level("GoTo", "go_to_maze"),
    Level("GoToOpen", "go_to_maze", variant=1),
    Level("GoToObjMaze", "go_to_maze", objects=1),
    Level("GoToObjMazeOpen", "go_to_maze", objects=1, variant=1),
    Level("GoToObjMazeS4R2", "go_to_maze", objects=1, room_size=4, rows=2, columns=2),
    *(Level(f"GoToObjMazeS{size}", "go_to_maze", objects=1, room_size=size) for size in (4, 5, 6, 7)),
    Level("GoToImpUnlock", "go_to_behind_locked_door"),
    _generated("GoToSeq", verbs=("go to",), locked_room=0, locations=False, unblocking=False),
    _generated(
        "GoToSeqS5R2", room_size=5, rows=2, columns=2, objects=4,
        verbs=("go to",), locked_room=0, locations=False, unblocking=False,
    ),
    # Open doors.
    Level("Open", "open_maze"),
    _two_rooms("OpenRedDoor", "open_red_door", room_size=5),
    Level("OpenDoor", "open_one_door"),
    Level("OpenDoorDebug", "open_one_door", strict=True),
    Level("OpenDoorColor", "open_one_door", variant=1),
    Level("OpenDoorLoc", "open_one_door", variant=2),
    Level("OpenTwoDoors", "open_two_doors", room_size=6, max_steps=720),
    Level("OpenTwoDoorsDebug", "open_two_doors", room_size=6, max_steps=720, strict=True),
    Level("OpenRedBlueDoors", "open_two_doors", room_size=6, max_steps=720, colors=(RED, BLUE)),
    Level("OpenRedBlueDoorsDebug", "open_two_doors", room_size=6, max_steps=720, colors=(RED, BLUE), strict=True),
    *(
        Level(f"OpenDoorsOrderN{n}{'Debug' * debug}", "open_doors_in_order", room_size=6, max_steps=720, objects=n,
              strict=bool(debug))
        for n in (2, 4) for debug in (0, 1)
    ),
    # Pick something up.
    Level("Pickup", "pick_up_maze"),
    Level("UnblockPickup", "pick_up_maze", objects=20, variant=1),
    _generated(
        "PickupLoc", rows=1, columns=1, objects=8,
        verbs=("pick up",), joins=SINGLE_CLAUSE, locked_room=0, unblocking=False,
    ),
    _one_room("PickupDist", "pick_up_distinct", room_size=7),
    _one_room("PickupDistDebug", "pick_up_distinct", room_size=7, strict=True, version=2),
    Level("PickupAbove", "pick_up_above", room_size=6, max_steps=288),
    *(_one_room(f"OneRoomS{size}", "one_room", room_size=size) for size in (8, 12, 16, 20)),
    *(Level(f"FindObjS{size}", "find_object", room_size=size, max_steps=20 * size**2) for size in (5, 6, 7)),
    Level("ActionObjDoor", "act_on_object_or_door", room_size=7),
    # Put something next to something else.
    _one_room("PutNextLocal", "put_next_local", objects=8),
    _one_room("PutNextLocalS5N3", "put_next_local", room_size=5, objects=3),
    _one_room("PutNextLocalS6N4", "put_next_local", room_size=6, objects=4),
    Level("PutNext", "put_next_maze"),
    *(
        _two_rooms(f"PutNextS{size}N{n}{'Carrying' * carrying}", "put_next_across", room_size=size, objects=n,
                   max_steps=8 * size**2, carrying=bool(carrying))
        for size, n, carrying in
        [(4, 1, 0), (5, 2, 0), (5, 1, 0), (6, 3, 0), (7, 4, 0), (5, 2, 1), (6, 3, 1), (7, 4, 1)]
    ),
    _two_rooms("MoveTwoAcrossS5N2", "move_two_across", room_size=5, objects=2, max_steps=16 * 5**2),
    _two_rooms("MoveTwoAcrossS8N9", "move_two_across", room_size=8, objects=9, max_steps=16 * 8**2),
    # Unlock doors.
    Level("Unlock", "unlock"),
    Level("UnlockLocal", "unlock_local", objects=0),
    Level("UnlockLocalDist", "unlock_local", objects=3),
    Level("KeyInBox", "key_in_box"),
    _two_rooms("UnlockPickup", "unlock_pickup", room_size=6, objects=0),
    _two_rooms("UnlockPickupDist", "unlock_pickup", room_size=6, objects=4),
    _two_rooms("BlockedUnlockPickup", "unlock_pickup", room_size=6, objects=0, variant=1, max_steps=576),
    Level("UnlockToUnlock", "unlock_to_unlock", room_size=6, rows=1, max_steps=1080),
    Level("KeyCorridor", "key_corridor", room_size=6, max_steps=30 * 6**2),
    *(
        Level(f"KeyCorridorS{size}R{rows}", "key_corridor", room_size=size, rows=rows, max_steps=30 * size**2)
        for size, rows in [(3, 1), (3, 2), (3, 3), (4, 3), (5, 3), (6, 3)]
    ),
    # Random instructions.
    _generated("Synth", joins=SINGLE_CLAUSE, locations=False, implicit_unlock=False),
    _generated("SynthS5R2", joins=SINGLE_CLAUSE, locations=False, implicit_unlock=False, room_size=5, rows=2, columns=2,
               objects=7),
    _generated("SynthLoc", joins=SINGLE_CLAUSE, implicit_unlock=False),
    _generated("SynthSeq", implicit_unlock=False),
    _generated("MiniBossLevel", room_size=5, rows=2, columns=2, objects=7, locked_room=0.25),
    _generated("BossLevel"),
    _generated("BossLevelNoUnlock", locked_room=0, implicit_unlock=False),
    # Hand-placed worlds.
    _one_room("TestGoToBlocked", "go_to_blocked", room_size=9),
    _one_room("TestPutNextToBlocked", "put_next_to_blocked", room_size=9),
    Level("TestPutNextToCloseToDoor1", "put_next_close_to_closed_door", room_size=9, rows=2, columns=1, variant=1),
    Level("TestPutNextToCloseToDoor2", "put_next_close_to_closed_door", room_size=9, rows=2, columns=1),
    _one_room("TestPutNextToIdentical", "put_next_to_identical", room_size=9),
    Level("TestUnblockingLoop", "unblocking_loop", room_size=9, rows=2, columns=2),
    Level("TestPutNextCloseToDoor", "put_next_close_to_door", room_size=9, rows=2, columns=2),
    _one_room("TestLotsOfBlockers", "lots_of_blockers"),
)  # fmt: skip

LEVELS: dict[str, Level] = {level.name: level for level in _TABLE}
BUILT_IN = frozenset(LEVELS)

# Settings that differ under Minigrid's rules; all other differences are in the recipes and the judge.
_MINIGRID_SETTINGS = {"SynthS5R2": {"columns": 3, "objects": 18}, "PickupDistDebug": {"version": 1}}

PAPER_LEVELS = (
    *("GoToObj", "GoToRedBallGrey", "GoToRedBall", "GoToLocal", "PutNextLocal", "PickupLoc", "GoToObjMaze", "GoTo"),
    *("Pickup", "UnblockPickup", "Open", "Unlock", "PutNext", "Synth", "SynthLoc", "GoToSeq", "SynthSeq"),
    *("GoToImpUnlock", "BossLevel"),
)


def find_level(name: str | Level, rules: Rules = "paper") -> Level:
    """Returns the level with this name under a rule set.

    Args:
        name: The name of a level, with or without "BabyAI-" or "babyai/" and version; a `Level` is returned unchanged.
        rules: The rule set.

    Raises:
        UnknownLevelError: There is no level with this name; the message suggests similar names.
        ValueError: The rule set is unknown.
    """
    if rules not in get_args(Rules):
        raise ValueError(f"unknown rules {rules!r}; expected 'paper' or 'minigrid'")
    if isinstance(name, Level):
        return name
    key = name.removeprefix("babyai/").removeprefix("BabyAI-").split("-v")[0]
    if key not in LEVELS:
        near = difflib.get_close_matches(key, LEVELS, n=3)
        hint = f"; did you mean {' or '.join(map(repr, near))}?" if near else "; `babyai levels` lists all"
        raise UnknownLevelError(f"unknown level {name!r}{hint}")
    level = LEVELS[key]
    return replace(level, **_MINIGRID_SETTINGS.get(key, {})) if rules == "minigrid" else level
