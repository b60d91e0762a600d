"""Advice in both styles of the expert, and kernels over batches of worlds."""

from babyai._jit import entry, njit
from babyai.engine_kernels import step_world
from babyai.expert.followup import update_stack
from babyai.expert.planner import PLAN_FAILED, plan, reset_plan
from babyai.expert.search import start_search, update_seen
from babyai.expert.state import NO_ADVICE
from babyai.expert.teacher import advise_as_teacher
from babyai.expert.teacher_path import NO_CELL, trace_path
from babyai.expert.teacher_search import active_side, is_strict
from babyai.world.actions import front_of
from babyai.world.codes import BOX, DONE, DROP, KIND_MASK, OPAQUE, OPEN, PICK_UP, PICKUP, TOGGLE
from babyai.world.state import ENDED, ORIGIN, RUNNING

PAPER, TEACHER = range(2)
NO_ACTION = -1
# The reference sometimes moves the same blockers back and forth until time runs out. Missions that it wins rarely
# take this many drops.
MAX_DROPS = 12


@njit
def reset_expert(s, e):
    """Resets the expert: nothing has been seen, and the plan is the whole mission."""
    e.seen[:] = 0
    e.advice = NO_ACTION
    e.handed_over = 0
    e.failure = 0
    e.drops = 0
    reset_plan(s, e)


@njit
def _advise_from_plan(s, e, f, taken):
    """Returns the next action of the stack after `taken`, or PLAN_FAILED."""
    start_search(f, s)
    if taken != NO_ACTION:
        opened_box = taken == TOGGLE and e.front_cell & KIND_MASK == BOX
        if opened_box or not update_stack(s, e, f, taken):
            return PLAN_FAILED
    action = plan(s, e, f)
    # DONE means that the stack is empty although the mission is not finished: something has been undone.
    return PLAN_FAILED if action == DONE or _would_fail_mission(s, action) else action


@njit
def _would_fail_mission(s, action):
    """Returns whether the action would fail a strict mission."""
    if not ((action == PICKUP and is_strict(s, PICK_UP)) or (action == TOGGLE and is_strict(s, OPEN))):
        return False
    front = front_of(s)
    is_target = int(s.tracks[front - ORIGIN]) & 1 << (2 * active_side(s))
    is_open = action == TOGGLE and s.cells[front] & OPAQUE == 0
    return not is_target or is_open


@njit
def advise(s, e, f, taken, style):
    """Returns the next action for a world, or NO_ADVICE; `taken` is the action taken since the last advice."""
    update_seen(s, e)
    action = PLAN_FAILED
    if style == PAPER and not e.handed_over and e.drops <= MAX_DROPS and not 4 * s.step_count > 3 * s.max_steps:
        action = _advise_from_plan(s, e, f, taken)
    if action == PLAN_FAILED:
        e.handed_over = 1
        action = advise_as_teacher(s, e, f)
    e.agent = s.agent
    e.carrying = s.carrying
    e.front_cell = s.cells[front_of(s)]
    e.advice = action
    e.drops += action == DROP
    return action


@entry
def reset_batch(worlds, experts, chosen):
    """Resets the experts of the chosen worlds."""
    for i in range(len(worlds)):
        if chosen[i]:
            reset_expert(worlds[i], experts[i])


@entry
def advise_batch(worlds, experts, search, taken, style, advice, first, last):
    """Writes advice for worlds first..last - 1; `done` for worlds whose episode is not running."""
    f = search[0]
    for i in range(first, last):
        advice[i] = DONE
        if worlds[i].status == RUNNING:
            advice[i] = advise(worlds[i], experts[i], f, taken[i], style)


@entry
def advise_and_trace_batch(worlds, experts, search, advice, paths, first, last):
    """Like `advise_batch` in style TEACHER, and writes where the advice leads: see `trace_path`."""
    f = search[0]
    for i in range(first, last):
        advice[i] = DONE
        paths[i] = NO_CELL
        if worlds[i].status == RUNNING:
            advice[i] = advise(worlds[i], experts[i], f, NO_ACTION, TEACHER)
            trace_path(worlds[i], experts[i], f, paths[i])


@njit
def _play(s, e, f, style, actions):
    """Plays a world until its episode ends or there is no advice; returns the number of steps and the reward."""
    reset_expert(s, e)
    length = 0
    taken = NO_ACTION
    while s.status == RUNNING:
        taken = advise(s, e, f, taken, style)
        if taken == NO_ADVICE:
            break
        actions[length] = taken
        length += 1
        reward, terminated, truncated, _ = step_world(s, taken)
        if terminated or truncated:
            s.status = ENDED
            return length, reward
    return length, 0.0


@entry
def demonstrate_batch(worlds, experts, search, start, style, actions, lengths, rewards, first, last):
    """Plays worlds first..last - 1 from their current state to the end of their episodes with the expert.

    Row i of `actions` receives the actions of world i, `lengths` their number. If style PAPER fails, including the
    teacher's attempt to finish its episode, the teacher plays the whole episode again. A world without further advice
    keeps its last state, with reward 0 and status RUNNING. `start` is scratch memory for one world.
    """
    f = search[0]
    for i in range(first, last):
        start[0] = worlds[i]
        lengths[i], rewards[i] = _play(worlds[i], experts[i], f, style, actions[i])
        if style == PAPER and rewards[i] == 0.0:
            worlds[i] = start[0]
            lengths[i], rewards[i] = _play(worlds[i], experts[i], f, TEACHER, actions[i])
