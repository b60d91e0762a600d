"""The paper's expert: a stack of subgoals, replanned at every step, as the reference planner does it.

The top of the stack is asked for an action; instead it may change the stack, and then the new top is asked. Where the
reference fails (an assertion, a plan that contradicts itself, nowhere to put something down), `plan` says so with
BREAKDOWN, and the teacher takes over.
"""

import numpy as np

from babyai._jit import load_eight, njit
from babyai.expert.search import (
    CLOSED_DOOR,
    CLOSED_OR_LOCKED_DOOR,
    UNSEEN_CELL,
    first_step,
    is_blocked,
    is_seen,
    nearest,
    reach_all,
    reaches,
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

GO_NEXT_TO, OPENING, CLOSING, TAKING, DROPPING, EXPLORING = range(6)
NO_REASON, TO_OPEN, TO_PUT_NEXT, TO_EXPLORE, TO_UNLOCK, KEEPING_KEY = range(6)
NO_TARGET, DESCRIPTOR, KEY_OF_COLOR, DOOR_AT, CELL = range(5)
# Instead of an action: the stack has changed, or the reference would have failed.
CHANGED, BREAKDOWN = 7, 8

MAX_REPLANNING = 64
NOWHERE = 0
FAR = 999
RING = np.array([-STRIDE - 1, -STRIDE, -STRIDE + 1, 1, STRIDE + 1, STRIDE, STRIDE - 1, -1], dtype=np.int64)
EACH_BYTE = np.uint64(0x0101010101010101)


# ---------------------------------------------------------------- the stack


@njit
def push(e, kind, reason, target, value):
    """Puts a subgoal on top. One that does not fit is not lost quietly: the depth says that the stack overflowed."""
    if e.depth < MAX_STACK:
        e.kinds[e.depth] = kind
        e.reasons[e.depth] = reason
        e.targets[e.depth] = target
        e.values[e.depth] = value
    e.depth += 1
    return CHANGED


@njit
def push_go_to_cell(e, p):
    return push(e, GO_NEXT_TO, NO_REASON, CELL, p)


@njit
def push_plain(e, kind):
    return push(e, kind, NO_REASON, NO_TARGET, 0)


@njit
def _push_clause(s, e, k):
    """The plan for one clause."""
    verb = s.verbs[k]
    if verb == GO_TO:
        push(e, GO_NEXT_TO, NO_REASON, DESCRIPTOR, 2 * k)
    elif verb == OPEN:
        push_plain(e, OPENING)
        push(e, GO_NEXT_TO, TO_OPEN, DESCRIPTOR, 2 * k)
    elif verb == PICK_UP:
        # What was picked up is put down again, so that the hands are free.
        push_plain(e, DROPPING)
        push_plain(e, TAKING)
        push(e, GO_NEXT_TO, NO_REASON, DESCRIPTOR, 2 * k)
    elif verb != NO_CLAUSE:
        push_plain(e, DROPPING)
        push(e, GO_NEXT_TO, TO_PUT_NEXT, DESCRIPTOR, 2 * k + 1)
        push_plain(e, TAKING)
        push(e, GO_NEXT_TO, NO_REASON, DESCRIPTOR, 2 * k)


@njit
def begin_plan(s, e):
    """The whole mission as a stack, what comes first on top."""
    e.depth = 0
    later, earlier = (0, 2) if s.order == AFTER else (2, 0)
    for k in (later + 1, later, earlier + 1, earlier):
        _push_clause(s, e, k)


# ---------------------------------------------------------------- where things are


@njit
def _distance(f, s, p, adjacent):
    """How far the reference takes a reached object to be."""
    distance = int(f.distance[p])
    if is_blocked(f, p):
        distance += 7 if s.carrying else 4
    if distance == 0:
        return 3 if adjacent else 2
    return 3 if adjacent and distance == 1 else distance


@njit
def _nearest_of(s, e, f, target, value, adjacent):
    """The nearest seen object that a descriptor, or a key's color, names; NOWHERE, or BREAKDOWN as a negative."""
    best, best_distance, found = NOWHERE, FAR, False
    for base in range(0, MAX_SIZE * STRIDE, 8):
        if target == DESCRIPTOR and load_eight(s.tracks, base) & (EACH_BYTE << np.uint64(value)) == np.uint64(0):
            continue
        for k in range(base, base + 8):
            p = ORIGIN + k
            cell = int(s.cells[p])
            if target == DESCRIPTOR:
                # An empty cell in the tracks is where something carried, or a box now open, once lay.
                if not (int(s.tracks[k]) >> value) & 1 or cell == EMPTY:
                    continue
            elif cell & (KIND_MASK | COLOR_MASK) != KEY | value << 4 or cell & OPAQUE:
                continue
            found = True
            if not is_seen(e, p):
                continue
            if not reaches(f, s, e, p, True):
                return -BREAKDOWN
            distance = _distance(f, s, p, adjacent)
            if distance < best_distance or (distance == best_distance and _comes_first(p, best)):
                best, best_distance = p, distance
    return best if found or target == DESCRIPTOR else -BREAKDOWN


@njit
def _comes_first(p, q):
    """Whether `p` stands before `q` where columns are read from left to right, each from top to bottom."""
    py, px = divmod(p - ORIGIN, STRIDE)
    qy, qx = divmod(q - ORIGIN, STRIDE)
    return px < qx or (px == qx and py < qy)


@njit
def _is_harmless(s, e, p, except_p):
    """Whether an object dropped at `p` leaves its eight neighbors connected and every object there in reach."""
    empty, objects = 0, 0
    for k in range(8):
        q = p + RING[k]
        cell = int(s.cells[q])
        seen = is_seen(e, q)
        if seen and cell & KIND_MASK == WALL:
            continue
        free = cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR or q == int(s.agent)
        if seen and free and q != except_p:
            empty |= 1 << k
        else:
            objects |= 1 << k
    turned = ((empty << 1) | (empty >> 7)) & 255
    changes = empty ^ turned
    all_but_one = changes & (changes - 1)
    if all_but_one & (all_but_one - 1):
        return False
    beside = turned | ((empty >> 1) | (empty << 7)) & 255
    return objects & ~beside == 0


@njit
def find_drop_cell(s, e, f, except_p):
    """Where something can be put down: near, harmless if possible, reached without moving things if possible."""
    reach_all(f, s, e)
    for careful_and_blocked in range(4):
        careful = careful_and_blocked % 2 == 0
        last = f.unblocked if careful_and_blocked < 2 else f.count
        for k in range(last):
            p = int(f.order[k])
            if p == int(s.agent) or p == except_p or s.cells[p] != EMPTY or not is_seen(e, p):
                continue
            if not careful or _is_harmless(s, e, p, except_p):
                return p
    return NOWHERE


# ---------------------------------------------------------------- asking a subgoal for an action


@njit
def _has_key(s, door):
    held = int(s.carrying)
    return held & KIND_MASK == KEY and (held ^ door) & COLOR_MASK == 0


@njit
def _is_steppable(cell):
    return cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR


@njit
def _steps_between(p, q):
    py, px = divmod(p - ORIGIN, STRIDE)
    qy, qx = divmod(q - ORIGIN, STRIDE)
    return abs(px - qx) + abs(py - qy)


@njit
def _free_distance(s, way):
    """How far the first wall or door lies in a direction to the side, as far as the view goes."""
    for k in range(1, 4):
        if int(s.cells[int(s.agent) + k * way]) & KIND_MASK in (WALL, DOOR, LOCKED_DOOR):
            return k
    return 3


@njit
def _go_next_to(s, e, f):
    top = e.depth - 1
    reason, target, value = int(e.reasons[top]), int(e.targets[top]), int(e.values[top])
    p = value
    if target == DESCRIPTOR or target == KEY_OF_COLOR:
        p = _nearest_of(s, e, f, target, value, reason == TO_PUT_NEXT)
        if p < 0:
            return BREAKDOWN
        if p == NOWHERE:
            return push_plain(e, EXPLORING)
    cell = int(s.cells[p])
    if reason == TO_OPEN and cell & KIND_MASK == LOCKED_DOOR and not s.carrying:
        # Fetch the key before walking to the door.
        e.depth -= 1
        push(e, GO_NEXT_TO, TO_OPEN, DOOR_AT, p)
        push_plain(e, TAKING)
        return push(e, GO_NEXT_TO, NO_REASON, KEY_OF_COLOR, (cell >> 4) & 7)
    front = front_of(s)
    right = STEPS[(int(s.agent_dir) + 1) & 3]
    if _steps_between(p, int(s.agent)) == (1 if reason == TO_PUT_NEXT else 0):
        if _is_steppable(int(s.cells[front])):
            return FORWARD
        return RIGHT if _is_steppable(int(s.cells[int(s.agent) + right])) else LEFT
    if reason == TO_PUT_NEXT:
        if _steps_between(p, front) == 1:
            if s.cells[front] == EMPTY:
                e.depth -= 1
                return CHANGED
            if s.cells[front] & (OPAQUE | KIND_MASK) == DOOR:
                # Nothing can be dropped in a doorway: make room by moving what lies behind it.
                return push_go_to_cell(e, front + 2 * STEPS[int(s.agent_dir)])
    elif p == front:
        e.depth -= 1
        return CHANGED
    if not reaches(f, s, e, p, True):
        return push_plain(e, EXPLORING)
    return _follow(s, e, f, first_step(f, s, p), front, right)


@njit
def _follow(s, e, f, step, front, right):
    """One action toward the neighboring cell `step`, or a plan to clear it."""
    if step == front:
        cell = int(s.cells[front])
        if _is_steppable(cell):
            return FORWARD
        kind = cell & KIND_MASK
        if kind == DOOR:
            return push_plain(e, OPENING)
        if kind < KEY:
            return BREAKDOWN
        return _clear(s, e, f, front)
    if step == int(s.agent) + right:
        return RIGHT
    if step == int(s.agent) - right:
        return LEFT
    return LEFT if _free_distance(s, -right) > _free_distance(s, right) else RIGHT


@njit
def _clear(s, e, f, front):
    """Plans to move the object in front out of the way."""
    here = find_drop_cell(s, e, f, NOWHERE)
    if here == NOWHERE:
        return BREAKDOWN
    if s.carrying:
        there = find_drop_cell(s, e, f, here)
        if there == NOWHERE:
            return BREAKDOWN
        push_plain(e, TAKING)
        push_go_to_cell(e, here)
        push_plain(e, DROPPING)
        push_go_to_cell(e, there)
        push_plain(e, TAKING)
        push_go_to_cell(e, front)
    push_plain(e, DROPPING)
    push_go_to_cell(e, here)
    return CHANGED if s.carrying else push_plain(e, TAKING)


@njit
def _open(s, e, f):
    front = front_of(s)
    cell = int(s.cells[front])
    kind = cell & KIND_MASK
    if kind != DOOR and kind != LOCKED_DOOR:
        return BREAKDOWN
    if kind == LOCKED_DOOR and not _has_key(s, cell):
        e.depth -= 1
        here = find_drop_cell(s, e, f, NOWHERE) if s.carrying else NOWHERE
        if s.carrying:
            if here == NOWHERE:
                return BREAKDOWN
            push_plain(e, TAKING)
            push_go_to_cell(e, here)
        push_plain(e, OPENING)
        push_go_to_cell(e, front)
        push_plain(e, TAKING)
        push(e, GO_NEXT_TO, NO_REASON, KEY_OF_COLOR, (cell >> 4) & 7)
        if s.carrying:
            push_plain(e, DROPPING)
            push_go_to_cell(e, here)
        return CHANGED
    if kind == DOOR and not cell & OPAQUE:
        return push_plain(e, CLOSING)
    if kind == LOCKED_DOOR and e.reasons[e.depth - 1] == NO_REASON:
        e.depth -= 1
        return push(e, OPENING, TO_UNLOCK, NO_TARGET, 0)
    return TOGGLE


@njit
def _explore(s, e, f):
    p = nearest(f, s, e, UNSEEN_CELL)
    if p:
        return push(e, GO_NEXT_TO, TO_EXPLORE, CELL, p)
    p = nearest(f, s, e, CLOSED_DOOR)
    if not p:
        p = nearest(f, s, e, CLOSED_OR_LOCKED_DOOR)
    if not p:
        return BREAKDOWN
    cell = int(s.cells[p])
    keep = cell & KIND_MASK == LOCKED_DOOR and _has_key(s, cell)
    e.depth -= 1
    push(e, OPENING, KEEPING_KEY if keep else NO_REASON, NO_TARGET, 0)
    return push(e, GO_NEXT_TO, TO_OPEN, DOOR_AT, p)


@njit
def _ask_top(s, e, f):
    kind = e.kinds[e.depth - 1]
    if kind == GO_NEXT_TO:
        return _go_next_to(s, e, f)
    if kind == OPENING:
        return _open(s, e, f)
    if kind == EXPLORING:
        return _explore(s, e, f)
    front = int(s.cells[front_of(s)])
    if kind == CLOSING:
        return TOGGLE if front & (OPAQUE | KIND_MASK) == DOOR else BREAKDOWN
    if kind == TAKING:
        return BREAKDOWN if s.carrying else PICKUP
    return DROP if s.carrying and front == EMPTY else BREAKDOWN


@njit
def plan(s, e, f):
    """The next action of the stack, DONE when it is empty, or BREAKDOWN."""
    for _ in range(MAX_REPLANNING):
        if e.depth == 0:
            return DONE
        if e.depth > MAX_STACK:
            return BREAKDOWN
        action = _ask_top(s, e, f)
        if action != CHANGED:
            return action
    return BREAKDOWN
