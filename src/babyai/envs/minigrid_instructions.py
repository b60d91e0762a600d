"""The mission as objects with the attributes of Minigrid's instructions, for bots, reward shaping and curricula.

They are read from the world's record: `obj_poss` and `a_done` change while the episode goes on, as in Minigrid. Whether
a mission has succeeded is decided by the compiled judge, so there is no `verify`.
"""

from typing import Any, NoReturn

import numpy as np

from babyai.envs.minigrid_classes import minigrid_class
from babyai.envs.minigrid_objects import GridObject, Position
from babyai.envs.minigrid_tracking import TrackedObjects
from babyai.levels.layout import grid_cells
from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    ANY_NOUN,
    ANYWHERE,
    BEHIND,
    COLORS,
    GO_TO,
    GREY,
    IN_FRONT,
    NOUNS,
    ON_LEFT,
    ON_RIGHT,
    OPEN,
    PICK_UP,
    PUT_NEXT,
    SINGLE,
    VECTORS,
    WALL_CELL,
)
from babyai.world.language import Clause, Descriptor, Mission
from babyai.world.state import MAX_SIZE, STRIDE, position_of

LOCATIONS = {ANYWHERE: None, ON_LEFT: "left", ON_RIGHT: "right", IN_FRONT: "front", BEHIND: "behind"}
_JUDGED = "the compiled judge decides; read info['success'] and `terminated` of env.step"
_NOT_OFFERED = {
    "verify": _JUDGED,
    "verify_action": _JUDGED,
    "reset_verifier": "the mission starts with reset(); to give another one, use reset(options={'mission': ...})",
    "update_objs_poss": "obj_poss is up to date without it",
    "objs_next": "compare desc_move.obj_poss and desc_fixed.obj_poss",
    "preCarrying": "keep env.unwrapped.carrying of the step before",
    "lastStepMatch": "use done_actions=True, and info['success']",
}


class _Readable:
    """Passes for Minigrid's class of the same name, and explains what is not offered."""

    @property
    def __class__(self) -> type:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The class that `isinstance` sees: Minigrid's, if Minigrid has been imported."""
        return minigrid_class("minigrid.envs.babyai.core.verifier", type(self).__name__, type(self))

    def __getattr__(self, name: str) -> NoReturn:
        reason = _NOT_OFFERED.get(name, "")
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}" + (f": {reason}" if reason else ""))


class ObjDesc(_Readable):
    """A descriptor of the mission, such as "the red ball on your left", and the objects that it refers to."""

    def __init__(self, objects: TrackedObjects, number: int, descriptor: Descriptor) -> None:
        self._objects = objects
        self._number = number
        self._descriptor = descriptor
        self.type: str | None = None if descriptor.noun == ANY_NOUN else NOUNS[descriptor.noun]
        """The kind of object; None for any."""
        self.color: str | None = None if descriptor.color == ANY_COLOR else COLORS[descriptor.color]
        """The color; None for any."""
        self.loc: str | None = LOCATIONS[descriptor.place]
        """"left", "right", "front", "behind", or None for anywhere."""
        self._walls = self._find_walls()
        self.obj_set: list[GridObject] = self._find_objects()
        """The objects that it refers to, column by column as they were when `instrs` was first read in the episode."""

    def surface(self, env: Any = None) -> str:
        """The words of the mission; `env` is accepted as in Minigrid."""
        return str(self._descriptor)

    def _find_walls(self) -> np.ndarray:
        """Where walls match, (H, W) bool: as in Minigrid, "object" and "grey object" mean walls too."""
        world = self._objects.live_world
        walls = grid_cells(world) == WALL_CELL
        if self.type is not None or self.color not in (None, COLORS[GREY]):
            return np.zeros_like(walls)
        return walls & self._in_place(walls.shape) if self.loc else walls

    def _in_place(self, shape: tuple[int, ...]) -> np.ndarray:
        """Which cells are in the agent's room, on the side of the agent that `loc` names: (H, W) bool."""
        world = self._objects.live_world
        ys, xs = np.indices(shape)
        x, y = position_of(world.agent)
        dx, dy = VECTORS[world.agent_dir]
        across, down = int(world.room_width) - 1, int(world.room_height) - 1
        left, upper = x // across * across, y // down * down
        in_room = (left <= xs) & (xs <= left + across) & (upper <= ys) & (ys <= upper + down)
        ahead = (xs - x) * dx + (ys - y) * dy
        rightward = (ys - y) * dx - (xs - x) * dy
        side = {"left": -rightward, "right": rightward, "front": ahead, "behind": -ahead}[self.loc or "front"]
        return in_room & (side > 0)

    def _tracked(self) -> np.ndarray:
        """Where the judge tracks objects of this descriptor, (H, W) bool."""
        world = self._objects.live_world
        rows = world.tracks.reshape(MAX_SIZE, STRIDE)[: world.height, : world.width]
        return (rows >> self._number & 1).astype(bool)

    def _find_objects(self) -> list[GridObject]:
        grid = self._objects.grid
        found: list[GridObject] = []
        carried = None
        # `carried` is up to date once the objects are built.
        if self._objects.objects and self._objects.live_world.carried_tracks >> self._number & 1:
            carried = self._objects.carried
        for x, y in _positions(self._tracked() | self._walls):
            obj = grid.get(x, y)
            if obj is None:
                # The judge has not yet noticed that this object was picked up.
                obj, carried = carried, None
            if obj is not None:
                found.append(obj)
        return found if carried is None else [*found, carried]

    @property
    def obj_poss(self) -> list[Position]:
        """Where these objects are, column by column; as in Minigrid, a picked up object stays here until a drop."""
        return _positions(self._tracked() | self._walls)

    def find_matching_objs(self, env: Any = None, use_location: bool = True) -> tuple[list[GridObject], list[Position]]:
        """`obj_set` and `obj_poss`; the arguments are accepted as in Minigrid."""
        return self.obj_set, self.obj_poss

    def __repr__(self) -> str:
        return f"{self.color} {self.type} {self.loc}"


class _Clause(_Readable):
    """A single clause."""

    def __init__(self, objects: TrackedObjects, number: int, clause: Clause) -> None:
        self._clause = clause
        self.strict = bool(int(objects.live_world.strict) >> number & 1)
        """Whether a wrong toggle or pickup fails the mission."""

    def surface(self, env: Any = None) -> str:
        """The words of the mission; `env` is accepted as in Minigrid."""
        return str(self._clause)


class _OneObjectClause(_Clause):
    def __init__(self, objects: TrackedObjects, number: int, clause: Clause) -> None:
        _Clause.__init__(self, objects, number, clause)
        self.desc = ObjDesc(objects, 2 * number, clause.object)


class GoToInstr(_OneObjectClause):
    """Go to an object."""


class PickupInstr(_OneObjectClause):
    """Pick up an object."""


class OpenInstr(_OneObjectClause):
    """Open a door."""


class PutNextInstr(_Clause):
    """Put an object next to another one."""

    def __init__(self, objects: TrackedObjects, number: int, clause: Clause) -> None:
        _Clause.__init__(self, objects, number, clause)
        assert clause.target is not None
        self.desc_move = ObjDesc(objects, 2 * number, clause.object)
        self.desc_fixed = ObjDesc(objects, 2 * number + 1, clause.target)


class _Pair(_Readable):
    """Two instructions joined by a word; bit k of a field of the record says whether one is done."""

    joint = ""
    strict = False

    def __init__(self, objects: TrackedObjects, instr_a: Any, instr_b: Any, first_clause: int) -> None:
        self._objects = objects
        self._first_clause = first_clause
        self.instr_a = instr_a
        self.instr_b = instr_b

    def surface(self, env: Any = None) -> str:
        """The words of the mission; `env` is accepted as in Minigrid."""
        return f"{self.instr_a.surface()}{self.joint}{self.instr_b.surface()}"


class AndInstr(_Pair):
    """Two clauses in any order."""

    joint = " and "

    @property
    def a_done(self) -> str:
        """Either "success" or "continue"."""
        return _progress(int(self._objects.live_world.clauses_done) >> self._first_clause & 1)

    @property
    def b_done(self) -> str:
        """Either "success" or "continue"."""
        return _progress(int(self._objects.live_world.clauses_done) >> self._first_clause + 1 & 1)


class BeforeInstr(_Pair):
    """First `instr_a`, then `instr_b`."""

    joint = ", then "
    b_done = "continue"

    @property
    def a_done(self) -> str:
        """Either "success" or "continue"."""
        return _progress(int(self._objects.live_world.first_side_done))


class AfterInstr(_Pair):
    """First `instr_b`, then `instr_a`."""

    joint = " after you "
    a_done = "continue"

    @property
    def b_done(self) -> str:
        """Either "success" or "continue"."""
        return _progress(int(self._objects.live_world.first_side_done))


Instruction = GoToInstr | PickupInstr | OpenInstr | PutNextInstr | AndInstr | BeforeInstr | AfterInstr
_CLAUSES = {GO_TO: GoToInstr, PICK_UP: PickupInstr, OPEN: OpenInstr, PUT_NEXT: PutNextInstr}


def read_instruction(objects: TrackedObjects) -> Instruction:
    """The mission of a world."""
    mission = Mission.read(objects.live_world)
    first = _read_side(objects, mission.first, 0)
    if mission.order == SINGLE:
        return first
    joined = AfterInstr if mission.order == AFTER else BeforeInstr
    return joined(objects, first, _read_side(objects, mission.second, 2), 0)


def _read_side(objects: TrackedObjects, clauses: tuple[Clause, ...], first: int) -> Instruction:
    parts = [_CLAUSES[clause.verb](objects, first + k, clause) for k, clause in enumerate(clauses)]
    return parts[0] if len(parts) == 1 else AndInstr(objects, parts[0], parts[1], first)


def _progress(is_done: int) -> str:
    return "success" if is_done else "continue"


def _positions(mask: np.ndarray) -> list[Position]:
    """The (x, y) of the true cells of a mask, (H, W) bool, column by column."""
    return [(x, y) for x, y in np.argwhere(mask.T).tolist()]
