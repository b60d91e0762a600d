"""The teacher: advice that depends only on the world, the cells seen so far and the judge's progress.

At each step the teacher chooses a subgoal: optionally pick up an object, then go to a cell and act there. The blockers
of a subgoal are the objects on the path to the object and on the path to the cell. Blockers are removed first, one at a
time, and each is dropped where it blocks as little as possible; the object is picked up only when all paths are free.
So the number of blockers decreases first, then the number of steps, and advice is never reversed. This is why the
teacher needs no memory.
"""

from babyai._jit import njit
from babyai.expert.search import NEIGHBORS, RELATIVE_ORDER, is_seen
from babyai.expert.state import NO_ADVICE
from babyai.expert.teacher_blockers import choose_blocker, next_blocker
from babyai.expert.teacher_drop_cells import choose_drop_cell
from babyai.expert.teacher_search import (
    LOCKED,
    UNSEEN,
    UNSEEN_HERE,
    UNWANTED_BOX,
    active_side,
    can_enter,
    expand_unblocked,
    find_from,
    first_step_toward,
    is_object,
    is_strict,
    start_teacher_search,
)
from babyai.expert.teacher_subgoals import NOTHING, choose_subgoal, count_blockers, must_drop_first
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

# Unseen cells within this distance are explored before blockers are removed.
LOOK_AROUND_DISTANCE = 6

# Why there is no advice.
NOTHING_LEFT, LOCKED_OUT, FORBIDDEN, NO_ROOM = range(1, 5)
FAILURE_MESSAGES = {
    NOTHING_LEFT: "every reachable cell has been seen, but an object that the mission needs is missing or destroyed",
    LOCKED_OUT: "an object that the mission needs may be behind a locked door whose key cannot be reached",
    FORBIDDEN: "every possible action would fail this strict mission",
    NO_ROOM: "an object blocks the way and there is no cell to move it to",
}


@njit
def advise_as_teacher(s, e, f):
    """Returns the next action, or NO_ADVICE with the reason in `e.failure`."""
    e.failure = 0
    f.goal = 0
    if s.status == ENDED or _should_play_done(s):
        return DONE
    start_teacher_search(f, s)
    subgoal = choose_subgoal(f, s, e)
    if subgoal[0] == NOTHING:
        if is_strict(s, OPEN) or is_strict(s, PICK_UP):
            e.failure = FORBIDDEN
        else:
            e.failure = LOCKED_OUT if find_from(f, s, e, LOCKED, 0, 1, True) else NOTHING_LEFT
        return NO_ADVICE
    stand, p, action = _choose_step(f, s, e, subgoal)
    if p == 0:
        e.failure = NO_ROOM
        return NO_ADVICE
    f.goal = p if stand == 0 or stand == int(s.agent) else stand
    f.has_path = f.goal != int(s.agent) and stand != int(s.agent)
    return _act_toward(f, s, e, stand, p, action)


@njit
def _choose_step(f, s, e, subgoal):
    """Returns the next step of a subgoal: the cell to stand on (0: any), the cell to face, and the action."""
    _, thing, goal, action, _ = subgoal
    blockers = count_blockers(f, s, e, subgoal)
    if blockers == 0 and not (s.carrying and must_drop_first(subgoal, blockers)):
        return (0, thing, PICKUP) if thing else (0, goal, action)
    if blockers:
        # Exploring nearby may reveal a free path and is cheaper than removing blockers.
        unseen = find_from(f, s, e, UNSEEN_HERE, 0, 1, False)
        if unseen and f.distance[unseen] <= LOOK_AROUND_DISTANCE:
            return 0, unseen, FORWARD
    if is_strict(s, PICK_UP):
        # Only the target may be picked up, but boxes can be opened.
        return 0, next_blocker(f, s, e, subgoal), TOGGLE
    if s.carrying:
        stand, p, good = choose_drop_cell(f, s, e, subgoal)
    else:
        stand = 0
        p = choose_blocker(f, s, e, subgoal)
        good = p != 0
    start_teacher_search(f, s)
    expand_unblocked(f, s, e)
    unseen = 0 if good else find_from(f, s, e, UNSEEN, 0, 1, False)
    if unseen:
        # There is no good cell to drop it on among the cells seen, but there may be elsewhere.
        return 0, unseen, FORWARD
    if p:
        return stand, p, DROP if s.carrying else PICKUP
    # Opening a box that the mission does not need frees its cell.
    return 0, 0 if s.carrying else find_from(f, s, e, UNWANTED_BOX, 0, 1, False), TOGGLE


@njit
def _should_play_done(s):
    """Returns whether, with done actions, a clause has just been fulfilled and `done` is missing."""
    if not s.options & DONE_ACTIONS:
        return False
    first = active_side(s)
    pending = 3 << first & ~int(s.clauses_done)
    return int(s.clauses_matched) & pending != 0


@njit
def _act_toward(f, s, e, stand, p, action):
    """Returns the next action on the free path to `stand` (0: any cell), from which to face `p` and play `action`."""
    if stand and stand != int(s.agent):
        p = stand
        action = FORWARD
    elif p == int(s.agent):
        return _step_aside(s, e)
    step = p if stand == int(s.agent) else first_step_toward(f, s, p)
    if step != p or action == FORWARD:
        return _step_into(s, e, step)
    if action == DONE or (action == DROP and not _is_checked(s)):
        # The judge has not checked the clause yet, so play an action that changes nothing.
        action = _wait(s)
    return _face_and_act(s, e, p, action)


@njit
def _face_and_act(s, e, p, action):
    """Returns the action if the agent faces its neighbor `p`, else a turn toward it."""
    heading = int(s.agent_dir)
    agent = int(s.agent)
    left = STEPS[(heading + 3) & 3]
    right = STEPS[(heading + 1) & 3]
    if p == agent + STEPS[heading]:
        return action
    if p == agent + STEPS[(heading + 2) & 3]:
        # Turning around toward the side with more space reveals more cells.
        return LEFT if _free_distance_seen(s, e, left) > _free_distance_seen(s, e, right) else RIGHT
    return LEFT if p == agent + left else RIGHT


@njit
def _free_distance_seen(s, e, step):
    """Returns the distance to the first seen wall or door in a direction, VIEW_SIZE if there is none that near.

    A border that has not been seen does not count: advice must follow from what the agent can know.
    """
    p = int(s.agent) + step
    distance = 0
    while distance < VIEW_SIZE:
        y, x = divmod(p - ORIGIN, STRIDE)
        kind = int(s.cells[p]) & KIND_MASK
        if is_seen(e, p) and (kind == WALL or kind == DOOR or kind == LOCKED_DOOR):
            break
        if x == 0 or y == 0 or x == s.width - 1 or y == s.height - 1:
            return VIEW_SIZE
        distance += 1
        p += step
    return distance


@njit
def _step_into(s, e, p):
    """Returns the next action to enter the neighbor `p`, opening it if it is a closed door."""
    cell = int(s.cells[p])
    return _face_and_act(s, e, p, TOGGLE if cell & KIND_MASK == DOOR and cell & OPAQUE else FORWARD)


@njit
def _is_checked(s):
    """Returns whether the judge has checked the put clauses, so that it knows what is carried."""
    first = active_side(s)
    for k in range(first, first + 2):
        if s.verbs[k] == PUT_NEXT and not (int(s.clauses_checked) >> k) & 1:
            return False
    return True


@njit
def _wait(s):
    """Returns an action that changes nothing: `done`, or with done actions a blocked forward or an idle pickup."""
    if not s.options & DONE_ACTIONS:
        return DONE
    front = int(s.agent) + STEPS[int(s.agent_dir)]
    return FORWARD if int(s.cells[front]) & KIND_MASK >= KEY and not s.carrying else PICKUP


@njit
def _step_aside(s, e):
    """Returns an action to leave the cell that must be faced, if necessary by picking up an object in the way."""
    for attempt in range(2):
        for turn in range(4):
            p = int(s.agent) + STEPS[NEIGHBORS[RELATIVE_ORDER, int(s.agent_dir), turn]]
            if attempt == 0 and can_enter(s, e, p):
                return _step_into(s, e, p)
            if attempt == 1 and not s.carrying and is_object(s, e, p):
                return _face_and_act(s, e, p, PICKUP)
    e.failure = NO_ROOM
    return NO_ADVICE
