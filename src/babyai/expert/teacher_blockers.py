"""Which object to take out of the way: one whose removal leaves less to do, wherever it will be put."""

from babyai._jit import njit
from babyai.expert.teacher_places import choose_place, cost_after, cost_of
from babyai.expert.teacher_subgoals import choose_errand, count_blockers, needs_hands
from babyai.expert.teacher_ways import UNSEEN, find_from, first_blocker, is_object, spread_freely, start_ways
from babyai.world.codes import BOX, EMPTY, KIND_MASK, MARKED
from babyai.world.state import ORIGIN
from babyai.world.view import STEPS

# How many objects are weighed up at most when the one in the way has nowhere to go.
MAX_OBJECTS = 24


@njit
def choose_blocker(f, s, e, errand):
    """The object to pick up so that a blocked errand can go on, hands being empty; 0 if none helps.

    It is the first one on the way, if there is a place for it; else the nearest that makes some room.
    """
    cost = cost_of(f, s, e, errand)
    blocker = next_blocker(f, s, e, errand)
    k = 0
    for trial in range(MAX_OBJECTS):
        p = blocker
        if trial:
            start_ways(f, s)
            spread_freely(f, s, e)
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
def next_blocker(f, s, e, errand):
    """The first object in the way of an errand."""
    _, thing, goal, _, _ = errand
    blocker = first_blocker(f, s, e, thing) if thing else 0
    if blocker == 0 and goal != int(s.agent):
        blocker = first_blocker(f, s, e, goal)
        if blocker == 0:
            blocker = goal
    return blocker


@njit
def _helps(f, s, e, p, stand, cost):
    """Whether less than `cost` is left to do after picking up the object at `p` from `stand` and putting it down."""
    agent, heading, cell, tracks = int(s.agent), int(s.agent_dir), int(s.cells[p]), int(s.tracks[p - ORIGIN])
    s.agent, s.cells[p], s.carrying = stand, EMPTY, cell
    s.carried_tracks = 0 if cell & MARKED and cell & KIND_MASK != BOX else tracks
    for way in range(4):
        if stand + STEPS[way] == p:
            s.agent_dir = way
    start_ways(f, s)
    errand = choose_errand(f, s, e)
    if needs_hands(errand, count_blockers(f, s, e, errand)):
        new_stand, place, good = choose_place(f, s, e, errand)
        helps = place != 0 and cost_after(f, s, e, new_stand, place) < cost
        if not helps and not good:
            # There may be room for it where nobody has looked yet.
            start_ways(f, s)
            helps = find_from(f, s, e, UNSEEN, 0, 1, False) != 0
    else:
        helps = True
    s.agent, s.agent_dir, s.cells[p], s.carrying, s.carried_tracks = agent, heading, cell, 0, 0
    return helps
