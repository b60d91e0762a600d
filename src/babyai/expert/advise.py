"""Advice: the two styles of the expert behind one function, and the compiled loops over batches of worlds."""

from babyai._jit import entry, njit
from babyai.engine_kernels import step_world
from babyai.expert.followup import follow_up
from babyai.expert.planner import BREAKDOWN, begin_plan, plan
from babyai.expert.search import begin_search, look
from babyai.expert.state import NO_ADVICE
from babyai.expert.teacher import teach
from babyai.expert.teacher_ways import active_side, is_strict
from babyai.world.actions import front_of
from babyai.world.codes import BOX, DONE, DROP, KIND_MASK, OPAQUE, OPEN, PICK_UP, PICKUP, TOGGLE
from babyai.world.judge import GOES_ON, SUCCESS
from babyai.world.state import ENDED, ORIGIN, RUNNING

PAPER, TEACHER = range(2)
NOTHING_TAKEN = -1
# The reference sometimes carries the same blockers to and fro until time runs out. Missions that it wins take a few
# drops, and hardly ever as many as this.
MANY_DROPS = 12


@njit
def begin_advising(s, e):
    """Forgets everything: nothing has been seen, and the plan is the whole mission."""
    e.seen[:] = 0
    e.advice = NOTHING_TAKEN
    e.handed_over = 0
    e.trouble = 0
    e.drops = 0
    begin_plan(s, e)


@njit
def _advise_as_paper(s, e, f, taken):
    """The stack's next action after `taken`, or BREAKDOWN."""
    begin_search(f, s)
    if taken != NOTHING_TAKEN:
        opened_a_box = taken == TOGGLE and e.front_cell & KIND_MASK == BOX
        if opened_a_box or not follow_up(s, e, f, taken):
            return BREAKDOWN
    action = plan(s, e, f)
    # An empty stack while the mission goes on: something that was done has been undone since.
    return BREAKDOWN if action == DONE or _fails_at_once(s, action) else action


@njit
def _fails_at_once(s, action):
    """Whether the mission is strict about such actions, and what the agent faces is not what it asks for."""
    if not ((action == PICKUP and is_strict(s, PICK_UP)) or (action == TOGGLE and is_strict(s, OPEN))):
        return False
    front = front_of(s)
    asked_for = int(s.tracks[front - ORIGIN]) & 1 << (2 * active_side(s))
    is_open = action == TOGGLE and s.cells[front] & OPAQUE == 0
    return not asked_for or is_open


@njit
def advise(s, e, f, taken, style):
    """The next action for a world, or NO_ADVICE; `taken` is what was done since the last advice."""
    look(s, e)
    action = BREAKDOWN
    if style == PAPER and not e.handed_over and e.drops <= MANY_DROPS and not 4 * s.step_count > 3 * s.max_steps:
        action = _advise_as_paper(s, e, f, taken)
    if action == BREAKDOWN:
        e.handed_over = 1
        action = teach(s, e, f)
    e.agent, e.carrying, e.front_cell = s.agent, s.carrying, s.cells[front_of(s)]
    e.advice = action
    e.drops += action == DROP
    return action


@entry
def begin_advising_batch(worlds, experts, chosen):
    """Begins anew in the chosen worlds."""
    for i in range(len(worlds)):
        if chosen[i]:
            begin_advising(worlds[i], experts[i])


@entry
def advise_batch(worlds, experts, search, taken, style, advice, first, last):
    """Advice for each world of [first, last) whose episode is under way; elsewhere `done`."""
    f = search[0]
    for i in range(first, last):
        advice[i] = DONE
        if worlds[i].status == RUNNING:
            advice[i] = advise(worlds[i], experts[i], f, taken[i], style)


@njit
def _play(s, e, f, style, actions):
    """Plays a world to the end of its episode, or until there is no advice; returns the length and the reward."""
    begin_advising(s, e)
    length, taken = 0, NOTHING_TAKEN
    while s.status == RUNNING:
        taken = advise(s, e, f, taken, style)
        if taken == NO_ADVICE:
            break
        actions[length] = taken
        length += 1
        verdict, _ = step_world(s, taken)
        if verdict != GOES_ON or s.step_count >= s.max_steps:
            s.status = ENDED
        if verdict == SUCCESS:
            return length, 1.0 - 0.9 * (s.step_count / s.max_steps)
    return length, 0.0


@entry
def demonstrate_batch(worlds, experts, search, start, style, actions, lengths, rewards, first, last):
    """Plays each world of [first, last) from where it stands to the end of its episode, on the expert's advice.

    Row i of `actions` receives what was done, `lengths` how much that is. Where the reference's plan and what the
    teacher made of it came to nothing, the teacher plays the whole episode. A world for which there is no advice any
    more is left where it got stuck, with reward 0 and status RUNNING. `start` is scratch for one world.
    """
    f = search[0]
    for i in range(first, last):
        start[0] = worlds[i]
        lengths[i], rewards[i] = _play(worlds[i], experts[i], f, style, actions[i])
        if style == PAPER and rewards[i] == 0.0:
            worlds[i] = start[0]
            lengths[i], rewards[i] = _play(worlds[i], experts[i], f, TEACHER, actions[i])
