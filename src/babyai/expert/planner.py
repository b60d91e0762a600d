"""The paper's expert: the reference planner, a stack of subgoals that is replanned at every step.

The subgoal on top of the stack either returns an action or changes the stack, in which case the new top is tried. Where
the reference fails (a failed assertion, a contradictory plan, no cell to drop an object on), `plan` returns PLAN_FAILED
and the teacher takes over.
"""

import numpy as np

from babyai._jit import load_eight, njit
from babyai.expert.search import (
    CLOSED_DOOR,
    CLOSED_OR_LOCKED_DOOR,
    UNSEEN_CELL,
    find_nearest,
    first_step,
    has_path,
    is_path_blocked,
    is_seen,
    search_all,
)
from babyai.expert.state import MAX_STACK
from babyai.world.actions import COLOR_MASK, front_of
from babyai.world.codes import (
    AFTER,
    DONE,
    DOOR,
    DROP,
    EMPTY,
    FORWARD,
    GO_TO,
    KEY,
    KIND_MASK,
    LEFT,
    LOCKED_DOOR,
    NO_CLAUSE,
    OPAQUE,
    OPEN,
    PICK_UP,
    PICKUP,
    RIGHT,
    TOGGLE,
    WALL,
)
from babyai.world.state import MAX_SIZE, ORIGIN, STRIDE
from babyai.world.view import STEPS

# Kinds of subgoals, their reasons, and how their target is given.
GO_NEXT_TO, OPENING, CLOSING, PICKING_UP, DROPPING, EXPLORING = range(6)
NO_REASON, TO_OPEN, TO_PUT_NEXT, TO_EXPLORE, TO_UNLOCK, KEEPING_KEY = range(6)
NO_TARGET, DESCRIPTOR, KEY_OF_COLOR, DOOR_AT, CELL = range(5)
# Returned instead of an action: the stack has changed, or the reference would have failed.
STACK_CHANGED = 7
PLAN_FAILED = 8

MAX_REPLANS = 64
NOWHERE = 0
FAR = 999
RING_OFFSETS = np.array([-STRIDE - 1, -STRIDE, -STRIDE + 1, 1, STRIDE + 1, STRIDE, STRIDE - 1, -1], dtype=np.int64)
EACH_BYTE = np.uint64(0x0101010101010101)


# ---------------------------------------------------------------- the stack


@njit
def push(e, kind, reason, target, value):
    """Pushes a subgoal. On overflow only the depth grows, which `plan` detects."""
    if e.depth < MAX_STACK:
        e.kinds[e.depth] = kind
        e.reasons[e.depth] = reason
        e.targets[e.depth] = target
        e.values[e.depth] = value
    e.depth += 1
    return STACK_CHANGED


@njit
def push_go_to_cell(e, p):
    """Pushes a subgoal to face cell `p`."""
    return push(e, GO_NEXT_TO, NO_REASON, CELL, p)


@njit
def push_plain(e, kind):
    """Pushes a subgoal without reason and target."""
    return push(e, kind, NO_REASON, NO_TARGET, 0)


@njit
def _push_clause(s, e, k):
    """Pushes the subgoals of one clause."""
    verb = s.verbs[k]
    if verb == GO_TO:
        push(e, GO_NEXT_TO, NO_REASON, DESCRIPTOR, 2 * k)
    elif verb == OPEN:
        push_plain(e, OPENING)
        push(e, GO_NEXT_TO, TO_OPEN, DESCRIPTOR, 2 * k)
    elif verb == PICK_UP:
        # The object is dropped afterwards, so that the agent can pick up others.
        push_plain(e, DROPPING)
        push_plain(e, PICKING_UP)
        push(e, GO_NEXT_TO, NO_REASON, DESCRIPTOR, 2 * k)
    elif verb != NO_CLAUSE:
        push_plain(e, DROPPING)
        push(e, GO_NEXT_TO, TO_PUT_NEXT, DESCRIPTOR, 2 * k + 1)
        push_plain(e, PICKING_UP)
        push(e, GO_NEXT_TO, NO_REASON, DESCRIPTOR, 2 * k)


@njit
def reset_plan(s, e):
    """Sets the stack to the whole mission, with the first clause on top."""
    e.depth = 0
    later, earlier = (0, 2) if s.order == AFTER else (2, 0)
    for k in (later + 1, later, earlier + 1, earlier):
        _push_clause(s, e, k)


# ---------------------------------------------------------------- targets and drop cells


@njit
def _distance(f, s, p, adjacent):
    """Returns the reference's estimate of the distance to a visited object."""
    distance = int(f.distance[p])
    if is_path_blocked(f, p):
        distance += 7 if s.carrying else 4
    if distance == 0:
        return 3 if adjacent else 2
    return 3 if adjacent and distance == 1 else distance


@njit
def _find_nearest_target(s, e, f, target, value, adjacent):
    """Returns the nearest seen object that matches a descriptor or the color of a key.

    NOWHERE if none has been seen; -PLAN_FAILED where the reference would fail.
    """
    best = NOWHERE
    best_distance = FAR
    found = False
    for base in range(0, MAX_SIZE * STRIDE, 8):
        if target == DESCRIPTOR and load_eight(s.tracks, base) & (EACH_BYTE << np.uint64(value)) == np.uint64(0):
            continue
        for k in range(base, base + 8):
            p = ORIGIN + k
            cell = int(s.cells[p])
            if target == DESCRIPTOR:
                # A tracked cell that is empty held an object that is now carried, or a box that was opened.
                if not (int(s.tracks[k]) >> value) & 1 or cell == EMPTY:
                    continue
            elif cell & (KIND_MASK | COLOR_MASK) != KEY | value << 4 or cell & OPAQUE:
                continue
            found = True
            if not is_seen(e, p):
                continue
            if not has_path(f, s, e, p, True):
                return -PLAN_FAILED
            distance = _distance(f, s, p, adjacent)
            if distance < best_distance or (distance == best_distance and _precedes(p, best)):
                best = p
                best_distance = distance
    return best if found or target == DESCRIPTOR else -PLAN_FAILED


@njit
def _precedes(p, q):
    """Returns whether `p` comes before `q` in column-major order."""
    py, px = divmod(p - ORIGIN, STRIDE)
    qy, qx = divmod(q - ORIGIN, STRIDE)
    return px < qx or (px == qx and py < qy)


@njit
def _is_safe_drop(s, e, p, excluded):
    """Returns whether an object dropped at `p` keeps its eight neighbors connected and the objects there reachable."""
    empty = 0
    objects = 0
    for k in range(8):
        q = p + RING_OFFSETS[k]
        cell = int(s.cells[q])
        seen = is_seen(e, q)
        if seen and cell & KIND_MASK == WALL:
            continue
        free = cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR or q == int(s.agent)
        if seen and free and q != excluded:
            empty |= 1 << k
        else:
            objects |= 1 << k
    rotated = ((empty << 1) | (empty >> 7)) & 255
    changes = empty ^ rotated
    all_but_one = changes & (changes - 1)
    if all_but_one & (all_but_one - 1):
        return False
    next_to_empty = rotated | ((empty >> 1) | (empty << 7)) & 255
    return objects & ~next_to_empty == 0


@njit
def find_drop_cell(s, e, f, excluded):
    """Returns the nearest cell to drop an object on, if possible a safe one and one with an unblocked path."""
    search_all(f, s, e)
    for careful_and_blocked in range(4):
        careful = careful_and_blocked % 2 == 0
        last = f.unblocked if careful_and_blocked < 2 else f.count
        for k in range(last):
            p = int(f.order[k])
            if p == int(s.agent) or p == excluded or s.cells[p] != EMPTY or not is_seen(e, p):
                continue
            if not careful or _is_safe_drop(s, e, p, excluded):
                return p
    return NOWHERE


# ---------------------------------------------------------------- from subgoals to actions


@njit
def _carries_key_for(s, door):
    """Returns whether the agent carries a key of the door's color."""
    held = int(s.carrying)
    return held & KIND_MASK == KEY and (held ^ door) & COLOR_MASK == 0


@njit
def _is_steppable(cell):
    return cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR


@njit
def _manhattan_distance(p, q):
    py, px = divmod(p - ORIGIN, STRIDE)
    qy, qx = divmod(q - ORIGIN, STRIDE)
    return abs(px - qx) + abs(py - qy)


@njit
def _free_distance(s, step):
    """Returns the distance to the first wall or door in a direction to the side, within the view."""
    for k in range(1, 4):
        if int(s.cells[int(s.agent) + k * step]) & KIND_MASK in (WALL, DOOR, LOCKED_DOOR):
            return k
    return 3


@njit
def _go_next_to(s, e, f):
    """Moves to face the target or, for TO_PUT_NEXT, an empty cell next to it."""
    top = e.depth - 1
    reason = int(e.reasons[top])
    target = int(e.targets[top])
    value = int(e.values[top])
    p = value
    if target == DESCRIPTOR or target == KEY_OF_COLOR:
        p = _find_nearest_target(s, e, f, target, value, reason == TO_PUT_NEXT)
        if p < 0:
            return PLAN_FAILED
        if p == NOWHERE:
            return push_plain(e, EXPLORING)
    cell = int(s.cells[p])
    if reason == TO_OPEN and cell & KIND_MASK == LOCKED_DOOR and not s.carrying:
        # Get the key before going to the door.
        e.depth -= 1
        push(e, GO_NEXT_TO, TO_OPEN, DOOR_AT, p)
        push_plain(e, PICKING_UP)
        return push(e, GO_NEXT_TO, NO_REASON, KEY_OF_COLOR, (cell >> 4) & 7)
    front = front_of(s)
    right = STEPS[(int(s.agent_dir) + 1) & 3]
    if _manhattan_distance(p, int(s.agent)) == (1 if reason == TO_PUT_NEXT else 0):
        if _is_steppable(int(s.cells[front])):
            return FORWARD
        return RIGHT if _is_steppable(int(s.cells[int(s.agent) + right])) else LEFT
    if reason == TO_PUT_NEXT:
        if _manhattan_distance(p, front) == 1:
            if s.cells[front] == EMPTY:
                e.depth -= 1
                return STACK_CHANGED
            if s.cells[front] & (OPAQUE | KIND_MASK) == DOOR:
                # Nothing can be dropped in a doorway, so go to the cell behind it.
                return push_go_to_cell(e, front + 2 * STEPS[int(s.agent_dir)])
    elif p == front:
        e.depth -= 1
        return STACK_CHANGED
    if not has_path(f, s, e, p, True):
        return push_plain(e, EXPLORING)
    return _step_along(s, e, f, first_step(f, s, p), front, right)


@njit
def _step_along(s, e, f, step, front, right):
    """Returns an action toward the neighboring cell `step`, or plans to clear it."""
    if step == front:
        cell = int(s.cells[front])
        if _is_steppable(cell):
            return FORWARD
        kind = cell & KIND_MASK
        if kind == DOOR:
            return push_plain(e, OPENING)
        if kind < KEY:
            return PLAN_FAILED
        return _plan_clearing(s, e, f, front)
    if step == int(s.agent) + right:
        return RIGHT
    if step == int(s.agent) - right:
        return LEFT
    return LEFT if _free_distance(s, -right) > _free_distance(s, right) else RIGHT


@njit
def _plan_clearing(s, e, f, front):
    """Pushes subgoals that move the object in front out of the way."""
    here = find_drop_cell(s, e, f, NOWHERE)
    if here == NOWHERE:
        return PLAN_FAILED
    if s.carrying:
        there = find_drop_cell(s, e, f, here)
        if there == NOWHERE:
            return PLAN_FAILED
        push_plain(e, PICKING_UP)
        push_go_to_cell(e, here)
        push_plain(e, DROPPING)
        push_go_to_cell(e, there)
        push_plain(e, PICKING_UP)
        push_go_to_cell(e, front)
    push_plain(e, DROPPING)
    push_go_to_cell(e, here)
    return STACK_CHANGED if s.carrying else push_plain(e, PICKING_UP)


@njit
def _open_door(s, e, f):
    """Opens the door in front, after getting its key if it is locked."""
    front = front_of(s)
    cell = int(s.cells[front])
    kind = cell & KIND_MASK
    if kind != DOOR and kind != LOCKED_DOOR:
        return PLAN_FAILED
    if kind == LOCKED_DOOR and not _carries_key_for(s, cell):
        e.depth -= 1
        here = find_drop_cell(s, e, f, NOWHERE) if s.carrying else NOWHERE
        if s.carrying:
            if here == NOWHERE:
                return PLAN_FAILED
            push_plain(e, PICKING_UP)
            push_go_to_cell(e, here)
        push_plain(e, OPENING)
        push_go_to_cell(e, front)
        push_plain(e, PICKING_UP)
        push(e, GO_NEXT_TO, NO_REASON, KEY_OF_COLOR, (cell >> 4) & 7)
        if s.carrying:
            push_plain(e, DROPPING)
            push_go_to_cell(e, here)
        return STACK_CHANGED
    if kind == DOOR and not cell & OPAQUE:
        return push_plain(e, CLOSING)
    if kind == LOCKED_DOOR and e.reasons[e.depth - 1] == NO_REASON:
        e.depth -= 1
        return push(e, OPENING, TO_UNLOCK, NO_TARGET, 0)
    return TOGGLE


@njit
def _explore(s, e, f):
    """Goes to the nearest unseen cell, else to a closed door, else to a locked door."""
    p = find_nearest(f, s, e, UNSEEN_CELL)
    if p:
        return push(e, GO_NEXT_TO, TO_EXPLORE, CELL, p)
    p = find_nearest(f, s, e, CLOSED_DOOR)
    if not p:
        p = find_nearest(f, s, e, CLOSED_OR_LOCKED_DOOR)
    if not p:
        return PLAN_FAILED
    cell = int(s.cells[p])
    keep = cell & KIND_MASK == LOCKED_DOOR and _carries_key_for(s, cell)
    e.depth -= 1
    push(e, OPENING, KEEPING_KEY if keep else NO_REASON, NO_TARGET, 0)
    return push(e, GO_NEXT_TO, TO_OPEN, DOOR_AT, p)


@njit
def _run_top_subgoal(s, e, f):
    """Returns the action of the subgoal on top, STACK_CHANGED, or PLAN_FAILED."""
    kind = e.kinds[e.depth - 1]
    if kind == GO_NEXT_TO:
        return _go_next_to(s, e, f)
    if kind == OPENING:
        return _open_door(s, e, f)
    if kind == EXPLORING:
        return _explore(s, e, f)
    front = int(s.cells[front_of(s)])
    if kind == CLOSING:
        return TOGGLE if front & (OPAQUE | KIND_MASK) == DOOR else PLAN_FAILED
    if kind == PICKING_UP:
        return PLAN_FAILED if s.carrying else PICKUP
    return DROP if s.carrying and front == EMPTY else PLAN_FAILED


@njit
def plan(s, e, f):
    """Returns the next action, DONE if the stack is empty, or PLAN_FAILED."""
    for _ in range(MAX_REPLANS):
        if e.depth == 0:
            return DONE
        if e.depth > MAX_STACK:
            return PLAN_FAILED
        action = _run_top_subgoal(s, e, f)
        if action != STACK_CHANGED:
            return action
    return PLAN_FAILED
