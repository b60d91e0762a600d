"""The choice of the blocker to remove: one whose removal lowers the cost, wherever it is dropped."""

from babyai._jit import njit
from babyai.expert.teacher_drop_cells import choose_drop_cell, cost_after, cost_of
from babyai.expert.teacher_search import (
    UNSEEN,
    expand_unblocked,
    find_from,
    first_blocker,
    is_object,
    start_teacher_search,
)
from babyai.expert.teacher_subgoals import choose_subgoal, count_blockers, must_drop_first
from babyai.world.codes import BOX, EMPTY, KIND_MASK, MARKED
from babyai.world.state import ORIGIN
from babyai.world.view import STEPS

# The maximum number of objects considered if the first blocker cannot be moved.
MAX_CANDIDATES = 24


@njit
def choose_blocker(f, s, e, subgoal):
    """Returns the object to pick up so that a blocked subgoal can proceed, with nothing carried; 0 if none helps.

    This is the first object on the path if there is a cell to drop it on, else the nearest object that helps.
    """
    cost = cost_of(f, s, e, subgoal)
    blocker = next_blocker(f, s, e, subgoal)
    k = 0
    for trial in range(MAX_CANDIDATES):
        p = blocker
        if trial:
            start_teacher_search(f, s)
            expand_unblocked(f, s, e)
            k += 1
            while k < f.count and not is_object(s, e, int(f.order[k])):
                k += 1
            if k == f.count:
                break
            p = int(f.order[k])
        if _helps(f, s, e, p, int(f.parent[p]), cost):
            return p
    return 0


@njit
def next_blocker(f, s, e, subgoal):
    """Returns the first object that blocks a subgoal."""
    _, thing, goal, _, _ = subgoal
    blocker = first_blocker(f, s, e, thing) if thing else 0
    if blocker == 0 and goal != int(s.agent):
        blocker = first_blocker(f, s, e, goal)
        if blocker == 0:
            blocker = goal
    return blocker


@njit
def _helps(f, s, e, p, stand, cost):
    """Returns whether picking up the object at `p` from `stand` and dropping it lowers the cost below `cost`.

    The world is changed for the evaluation and restored afterwards.
    """
    agent = int(s.agent)
    heading = int(s.agent_dir)
    cell = int(s.cells[p])
    tracks = int(s.tracks[p - ORIGIN])
    s.agent = stand
    s.cells[p] = EMPTY
    s.carrying = cell
    s.carried_tracks = 0 if cell & MARKED and cell & KIND_MASK != BOX else tracks
    for direction in range(4):
        if stand + STEPS[direction] == p:
            s.agent_dir = direction
    start_teacher_search(f, s)
    subgoal = choose_subgoal(f, s, e)
    if must_drop_first(subgoal, count_blockers(f, s, e, subgoal)):
        new_stand, drop_cell, good = choose_drop_cell(f, s, e, subgoal)
        helps = drop_cell != 0 and cost_after(f, s, e, new_stand, drop_cell) < cost
        if not helps and not good:
            # There may be a cell for it among those not seen yet.
            start_teacher_search(f, s)
            helps = find_from(f, s, e, UNSEEN, 0, 1, False) != 0
    else:
        helps = True
    s.agent = agent
    s.agent_dir = heading
    s.cells[p] = cell
    s.carrying = 0
    s.carried_tracks = 0
    return helps
