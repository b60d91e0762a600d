"""Proofs that a mission can no longer be won, from the full state of a world.

Plain Python, written from the rules of the world and the judge, independently of any planner. All assumptions favor the
mission: objects never block paths and time never runs out. So a world reported as lost is lost for every player. The
converse does not hold: `None` only means that no proof was found.
"""

import numpy as np

from babyai.world.codes import (
    AFTER,
    BALL,
    BOX,
    DOOR,
    EMPTY,
    GO_TO,
    KEY,
    KIND_MASK,
    LOCKED_DOOR,
    MARKED,
    NO_CLAUSE,
    OPEN,
    PICK_UP,
    PUT_NEXT,
    SINGLE,
    WALL,
)
from babyai.world.state import LENIENT, ORIGIN, STRIDE, index_of

NEIGHBORS = (1, -1, STRIDE, -STRIDE)
MOVABLE = (KEY, BALL, BOX)


def why_lost(world: np.record) -> str | None:
    """Returns why the mission can no longer be won, or None if there is no proof."""
    sides = _pending_sides(world)
    if reason := _why_self_defeating(world, sides):
        return reason
    for number, side in enumerate(sides):
        # Sides are carried out in order; a drop in an earlier side clears last known positions.
        dropped = any(world.verbs[k] == PUT_NEXT for earlier in sides[:number] for k in earlier)
        for k in side:
            if reason := _why_impossible(world, k, dropped):
                return f"clause {k}: {reason}"
    return None


def _pending_sides(world: np.record) -> list[list[int]]:
    """Returns the pending clauses of each side, in the order of the sides."""
    sides = [0] if world.order == SINGLE else [2, 0] if world.order == AFTER else [0, 2]
    if world.first_side_done:
        sides = sides[1:]
    return [
        [k for k in (first, first + 1) if world.verbs[k] != NO_CLAUSE and not world.clauses_done >> k & 1]
        for first in sides
    ]


def _is_strict(world: np.record, side: list[int], verb: int) -> bool:
    """Returns whether a wrong action fails this side; clauses joined by `and` never fail."""
    alone = len(side) == 1 and world.verbs[side[0] | 1] == NO_CLAUSE
    return bool(alone and world.verbs[side[0]] == verb and world.strict >> side[0] & 1)


def _why_self_defeating(world: np.record, sides: list[list[int]]) -> str | None:
    """Returns a reason if opening the first door fails a strict second clause, as under Minigrid's rules."""
    if len(sides) < 2 or world.options & LENIENT or not _is_strict(world, sides[1], OPEN):
        return None
    if len(sides[0]) != 1 or world.verbs[sides[0][0]] != OPEN:
        return None
    both = [1 << 2 * side[0] for side in sides]
    if any(int(t) & both[0] and int(t) & both[1] for t in world.tracks):
        return None
    return "opening the first door fails the second clause"


def _why_impossible(world: np.record, k: int, dropped: bool) -> str | None:
    verb = int(world.verbs[k])
    bit = 1 << 2 * k
    strict_pickup = _is_strict(world, [k], PICK_UP)
    reached, keys = _explore(world, strict_pickup)
    things = _tracked(world, bit)
    in_hand = bool(world.carried_tracks & bit)
    if verb == GO_TO:
        places = set(things) if dropped else {p for p in _cells(world) if world.tracks[p - ORIGIN] & bit}
        if places & reached or in_hand:
            return None
        return "no object to go to is left" if not places else "no object to go to can be reached"
    if verb == PICK_UP:
        if in_hand or set(things) & reached:
            return None
        return "no object to pick up is left" if not things else "no object to pick up can be reached"
    if verb == OPEN:
        return _why_no_door(world, set(things) & reached, keys)
    if not in_hand and not set(things) & reached:
        return "no object to move is left" if not things else "no object to move can be reached"
    others = _tracked(world, bit << 1)
    if world.carried_tracks & bit << 1 or set(others) & reached:
        return None
    return "no object to put it next to is left" if not others else "no object to put it next to can be reached"


def _why_no_door(world: np.record, doors: set[int], keys: set[int]) -> str | None:
    if not doors:
        return "no door to open can be reached"
    for p in doors:
        if int(world.cells[p]) & KIND_MASK == DOOR or _color(int(world.cells[p])) in keys:
            return None
    return "the key of the door to open cannot be reached"


def _cells(world: np.record) -> list[int]:
    return [index_of(x, y) for y in range(world.height) for x in range(world.width)]


def _color(cell: int) -> int:
    return cell >> 4 & 7


def _tracked(world: np.record, bit: int) -> list[int]:
    """Returns the cells with objects and doors of a descriptor; the content of a box belongs to none."""
    found = []
    for p in _cells(world):
        cell = int(world.cells[p])
        came_from_box = cell & MARKED and cell & KIND_MASK != BOX
        if world.tracks[p - ORIGIN] & bit and cell != EMPTY and cell & KIND_MASK != WALL and not came_from_box:
            found.append(p)
    return found


def _explore(world: np.record, strict_pickup: bool) -> tuple[set[int], set[int]]:
    """Returns the cells that can be faced and the colors of obtainable keys, if portable objects never block paths.

    If only the target may be picked up, other objects do block paths, except boxes, which can be opened.
    """
    held = int(world.carrying)
    keys = {_color(held)} if held & KIND_MASK == KEY else set()
    while True:
        reached = _flood(world, keys, strict_pickup)
        found = set(keys)
        for p in reached:
            cell = int(world.cells[p])
            if cell & KIND_MASK == KEY:
                found.add(_color(cell))
            if cell & KIND_MASK == BOX and cell & MARKED and world.hidden & KIND_MASK == KEY:
                found.add(_color(int(world.hidden)))
        if held & KIND_MASK == BOX and held & MARKED and world.hidden & KIND_MASK == KEY:
            found.add(_color(int(world.hidden)))
        if found == keys:
            return reached, keys
        keys = found


def _flood(world: np.record, keys: set[int], strict_pickup: bool) -> set[int]:
    """Returns all cells that the agent can face, and its own."""
    reached = {int(world.agent)}
    stack = [int(world.agent)]
    while stack:
        p = stack.pop()
        if p != int(world.agent) and not _is_passable(int(world.cells[p]), keys, strict_pickup):
            continue
        for step in NEIGHBORS:
            if p + step not in reached and int(world.cells[p + step]) & KIND_MASK != WALL:
                reached.add(p + step)
                stack.append(p + step)
    return reached


def _is_passable(cell: int, keys: set[int], strict_pickup: bool) -> bool:
    kind = cell & KIND_MASK
    if kind == LOCKED_DOOR:
        return _color(cell) in keys
    if kind in MOVABLE:
        return not strict_pickup or kind == BOX
    return kind in (EMPTY, DOOR)
