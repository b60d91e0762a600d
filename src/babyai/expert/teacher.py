"""The teacher: advice that depends on nothing but the world, the cells seen so far and the judge's progress.

Whatever there is to do is an errand: fetch a thing (perhaps), go to a cell, do something there. An errand is blocked
by so many objects: those on the way to the thing and on the way to the cell. While any are left, they are cleared one
by one with empty hands, each put down where it leaves no more of them than there need be; the thing itself is fetched
only when all ways are free. So the number of blockers falls, then the number of steps, and no advice is ever taken
back: that is what lets the teacher do without a memory.
"""

from babyai._jit import njit
from babyai.expert.search import NEIGHBORS, RELATIVE_ORDER, is_seen
from babyai.expert.state import NO_ADVICE
from babyai.expert.teacher_blockers import choose_blocker, next_blocker
from babyai.expert.teacher_places import choose_place
from babyai.expert.teacher_subgoals import NOTHING, choose_errand, count_blockers, needs_hands
from babyai.expert.teacher_ways import (
    LOCKED,
    UNSEEN,
    UNSEEN_HERE,
    UNWANTED_BOX,
    active_side,
    can_enter,
    find_from,
    is_object,
    is_strict,
    spread_freely,
    start_ways,
    step_toward,
)
from babyai.world.codes import (
    DONE,
    DOOR,
    DROP,
    FORWARD,
    KEY,
    KIND_MASK,
    LEFT,
    LOCKED_DOOR,
    OPAQUE,
    OPEN,
    PICK_UP,
    PICKUP,
    PUT_NEXT,
    RIGHT,
    TOGGLE,
    WALL,
)
from babyai.world.state import DONE_ACTIONS, ENDED, ORIGIN, STRIDE
from babyai.world.view import STEPS, VIEW_SIZE

# How far one goes to look around before clearing the way.
NEARBY = 6

# Why there is no advice.
NOTHING_LEFT, LOCKED_OUT, FORBIDDEN, NO_ROOM = range(1, 5)
TROUBLE = {
    NOTHING_LEFT: "everything in reach has been seen, and what the mission needs is not there: it is lost or destroyed",
    LOCKED_OUT: "what the mission needs may be behind a locked door, and the key is nowhere in reach",
    FORBIDDEN: "whatever could be done now would fail the mission at once",
    NO_ROOM: "something is in the way, and there is no room to put it anywhere else",
}


@njit
def teach(s, e, f):
    """The next action, or NO_ADVICE with the reason in `e.trouble`."""
    e.trouble = 0
    if s.status == ENDED or _should_say_done(s):
        return DONE
    start_ways(f, s)
    errand = choose_errand(f, s, e)
    if errand[0] == NOTHING:
        if is_strict(s, OPEN) or is_strict(s, PICK_UP):
            e.trouble = FORBIDDEN
        else:
            e.trouble = LOCKED_OUT if find_from(f, s, e, LOCKED, 0, 1, True) else NOTHING_LEFT
        return NO_ADVICE
    stand, p, action = _choose_deed(f, s, e, errand)
    if p == 0:
        e.trouble = NO_ROOM
        return NO_ADVICE
    return _advance(f, s, e, stand, p, action)


@njit
def _choose_deed(f, s, e, errand):
    """The next part of an errand: where to stand (0: anywhere), which cell to face, and the action there."""
    _, thing, goal, action, _ = errand
    blockers = count_blockers(f, s, e, errand)
    if blockers == 0 and not (s.carrying and needs_hands(errand, blockers)):
        return (0, thing, PICKUP) if thing else (0, goal, action)
    if blockers:
        # A look around may show a free way, and is cheaper than clearing this one.
        unseen = find_from(f, s, e, UNSEEN_HERE, 0, 1, False)
        if unseen and f.distance[unseen] <= NEARBY:
            return 0, unseen, FORWARD
    if is_strict(s, PICK_UP):
        # Nothing but the target may be picked up, but boxes can be opened.
        return 0, next_blocker(f, s, e, errand), TOGGLE
    if s.carrying:
        stand, p, good = choose_place(f, s, e, errand)
    else:
        stand, p = 0, choose_blocker(f, s, e, errand)
        good = p != 0
    start_ways(f, s)
    spread_freely(f, s, e)
    unseen = 0 if good else find_from(f, s, e, UNSEEN, 0, 1, False)
    if unseen:
        # There is no room for it where it is known; perhaps there is elsewhere.
        return 0, unseen, FORWARD
    if p:
        return stand, p, DROP if s.carrying else PICKUP
    # A box that nobody asks for can be opened: that makes room where there is none.
    return 0, 0 if s.carrying else find_from(f, s, e, UNWANTED_BOX, 0, 1, False), TOGGLE


@njit
def _should_say_done(s):
    """With done actions: whether a clause has just been fulfilled and only the word is missing."""
    if not s.options & DONE_ACTIONS:
        return False
    first = active_side(s)
    pending = 3 << first & ~int(s.clauses_done)
    return int(s.clauses_matched) & pending != 0


@njit
def _advance(f, s, e, stand, p, action):
    """The next step on the free way to `stand`, if that matters, to face cell `p` and play `action` there."""
    if stand and stand != int(s.agent):
        p, action = stand, FORWARD
    elif p == int(s.agent):
        return _step_aside(s, e)
    step = p if stand == int(s.agent) else step_toward(f, s, p)
    if step != p or action == FORWARD:
        return _walk(s, e, step)
    if action == DONE or (action == DROP and not _is_looked_at(s)):
        # The judge has not looked yet: any step does that leaves all as it is.
        action = _wait(s)
    return _face(s, e, p, action)


@njit
def _face(s, e, p, action):
    """The action if the agent faces its neighbor `p`, else a turn toward it."""
    ahead, agent = int(s.agent_dir), int(s.agent)
    if p == agent + STEPS[ahead]:
        return action
    if p == agent + STEPS[(ahead + 2) & 3]:
        # Turning round by way of the wider side shows more on the way.
        return LEFT if _width(s, e, STEPS[(ahead + 3) & 3]) > _width(s, e, STEPS[(ahead + 1) & 3]) else RIGHT
    return LEFT if p == agent + STEPS[(ahead + 3) & 3] else RIGHT


@njit
def _width(s, e, step):
    """How far it is to the first wall or door that has been seen in a direction, or to the border of the world."""
    p = int(s.agent) + step
    width = 0
    while width < VIEW_SIZE:
        y, x = divmod(p - ORIGIN, STRIDE)
        if x == 0 or y == 0 or x == s.width - 1 or y == s.height - 1:
            break
        kind = int(s.cells[p]) & KIND_MASK
        if is_seen(e, p) and (kind == WALL or kind == DOOR or kind == LOCKED_DOOR):
            break
        width += 1
        p += step
    return width


@njit
def _walk(s, e, p):
    """One step into the neighbor `p`, opening it if it is a closed door."""
    cell = int(s.cells[p])
    return _face(s, e, p, TOGGLE if cell & KIND_MASK == DOOR and cell & OPAQUE else FORWARD)


@njit
def _is_looked_at(s):
    """Whether the judge knows what is in hand; on the first step of an episode it does not."""
    first = active_side(s)
    for k in range(first, first + 2):
        if s.verbs[k] == PUT_NEXT and not (int(s.clauses_checked) >> k) & 1:
            return False
    return True


@njit
def _wait(s):
    """An action that changes nothing: `done`, or where that word counts, a bump or an idle grasp."""
    if not s.options & DONE_ACTIONS:
        return DONE
    front = int(s.agent) + STEPS[int(s.agent_dir)]
    return FORWARD if int(s.cells[front]) & KIND_MASK >= KEY and not s.carrying else PICKUP


@njit
def _step_aside(s, e):
    """A step off the cell that is to be faced; an object is picked up if it leaves no way out."""
    for wanted in range(2):
        for turn in range(4):
            p = int(s.agent) + STEPS[NEIGHBORS[RELATIVE_ORDER, int(s.agent_dir), turn]]
            if wanted == 0 and can_enter(s, e, p):
                return _walk(s, e, p)
            if wanted == 1 and not s.carrying and is_object(s, e, p):
                return _face(s, e, p, PICKUP)
    e.trouble = NO_ROOM
    return NO_ADVICE
