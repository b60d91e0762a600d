"""The teacher's subgoals: what to do next, given what has been seen of the world.

A subgoal is a tuple (rank, thing, goal, action, keep): pick up the object at cell `thing` (0: none), then face cell
`goal` and play `action`. `keep` is set if the carried object is part of the subgoal. A lower rank is closer to the end
of the mission. The choice depends on the agent's position within its free region only to break ties by distance, so
walking never changes the subgoal.
"""

from babyai._jit import njit
from babyai.expert.teacher_search import (
    CLOSED_DOOR,
    FREE,
    FREE_NEXT_TO,
    KEY_OF_COLOR,
    LOCKED,
    OCCUPIED_NEXT_TO,
    OPEN_DOOR,
    TRACKED,
    TRACKED_OBJECT,
    UNSEEN,
    UNSEEN_HERE,
    UNWANTED_BOX,
    WANTED_BOX,
    active_side,
    find,
    find_from,
    is_key_for,
    is_next_to_tracked,
    is_object,
    is_strict,
)
from babyai.world.codes import (
    BOX,
    DONE,
    DROP,
    EMPTY,
    FORWARD,
    GO_TO,
    KIND_MASK,
    NO_CLAUSE,
    OPEN,
    PICK_UP,
    PICKUP,
    TOGGLE,
)
from babyai.world.state import ORIGIN

# Ranks of subgoals.
TARGET, EXPLORE, UNLOCK, OPEN_BOX, NOTHING = range(5)
# Pseudo-action: drop the carried object on a safe cell.
PUT_DOWN = 7


@njit
def choose_subgoal(f, s, e):
    """Returns the current subgoal; its rank is NOTHING if there is none."""
    first = active_side(s)
    chosen = (NOTHING, 0, 0, DONE, False)
    for k in range(first, first + 2):
        if s.verbs[k] == NO_CLAUSE or (int(s.clauses_done) >> k) & 1:
            continue
        verb = int(s.verbs[k])
        bit = 1 << (2 * k)
        if verb == GO_TO:
            subgoal = _go_to(f, s, e, bit)
        elif verb == OPEN:
            subgoal = _open(f, s, e, bit)
        elif verb == PICK_UP:
            subgoal = _pick_up(f, s, e, bit)
        else:
            subgoal = _put_next(f, s, e, bit)
        if subgoal[0] == TARGET:
            if chosen[0] != TARGET or (subgoal[4] and not chosen[4]):
                chosen = subgoal
        elif chosen[0] != TARGET and not chosen[1] and not chosen[4]:
            # The target has not been seen yet, but an object to be moved can already be carried along.
            chosen = subgoal
    if chosen[0] == TARGET:
        return chosen
    return _exploration_subgoal(f, s, e, chosen[1], chosen[4])


@njit
def _go_to(f, s, e, bit):
    """Returns the subgoal of a "go to" clause."""
    if int(s.carried_tracks) & bit:
        # After a drop the agent faces the object.
        return _drop_here(f, s, e)
    goal = find(f, s, e, TRACKED, bit)
    if goal == 0 and int(s.tracks[int(s.agent) - ORIGIN]) & bit:
        goal = int(s.agent)
    return TARGET if goal else NOTHING, 0, goal, DONE, False


@njit
def _open(f, s, e, bit):
    """Returns the subgoal of an "open" clause."""
    goal = find(f, s, e, CLOSED_DOOR, bit)
    if goal == 0 and not is_strict(s, OPEN):
        # A door that is already open is closed first.
        goal = find(f, s, e, OPEN_DOOR, bit)
        if goal == 0 and int(s.tracks[int(s.agent) - ORIGIN]) & bit:
            goal = int(s.agent)
    if goal:
        return TARGET, 0, goal, TOGGLE, False
    return _unlock(f, s, e, bit, TARGET)


@njit
def _unlock(f, s, e, bit, rank):
    """Returns a subgoal for the nearest locked door (tracked by `bit`, if not 0) whose key is carried or reachable."""
    held = int(s.carrying)
    k = 1
    thing = 0
    goal = 0
    while True:
        door = find_from(f, s, e, LOCKED, bit, k, True)
        if door == 0:
            return rank if goal else NOTHING, thing, goal, TOGGLE, False
        if is_key_for(held, int(s.cells[door])):
            return rank, 0, door, TOGGLE, True
        if goal == 0:
            thing = find(f, s, e, KEY_OF_COLOR, (int(s.cells[door]) >> 4) & 7)
            goal = door if thing else 0
        while int(f.order[k]) != door:
            k += 1
        k += 1


@njit
def _drop_here(f, s, e):
    """Returns a subgoal to drop the carried object on the nearest empty cell."""
    goal = find_from(f, s, e, FREE, 0, 1, False)
    return TARGET if goal else NOTHING, 0, goal, DROP, True


@njit
def _pick_up(f, s, e, bit):
    """Returns the subgoal of a "pick up" clause."""
    if int(s.carried_tracks) & bit:
        # An object that is already carried counts only after it has been dropped and picked up again.
        return _drop_here(f, s, e)
    goal = find(f, s, e, TRACKED_OBJECT, bit)
    return TARGET if goal else NOTHING, 0, goal, PICKUP, False


@njit
def _put_next(f, s, e, bit):
    """Returns the subgoal of a "put next to" clause."""
    keep = int(s.carried_tracks) & bit != 0
    thing = 0 if keep else find(f, s, e, TRACKED_OBJECT, bit)
    if thing == 0 and not keep:
        return NOTHING, 0, 0, DROP, False
    goal = _find_drop_cell_next_to(f, s, e, bit << 1, thing)
    if goal:
        return TARGET, thing, goal, DROP, keep
    if int(s.carried_tracks) & bit << 1:
        return TARGET, 0, 0, PUT_DOWN, False
    return NOTHING, thing, 0, DROP, keep


@njit
def _find_drop_cell_next_to(f, s, e, bit, thing):
    """Returns a cell next to an object of the descriptor; it may be occupied by an object."""
    free = find(f, s, e, FREE_NEXT_TO, bit)
    agent = int(s.agent)
    if (free == 0 or f.place[free]) and s.cells[agent] == EMPTY and is_next_to_tracked(s, e, agent, bit):
        return agent
    occupied = find(f, s, e, OCCUPIED_NEXT_TO, bit)
    if free == 0 or occupied == 0:
        return free | occupied
    return free if int(f.place[free]) <= int(f.place[occupied]) + (occupied != thing) else occupied


@njit
def _exploration_subgoal(f, s, e, thing, keep):
    """Returns a subgoal that reveals more of the world: unseen cells, locked doors, or boxes that may contain a key."""
    goal = find_from(f, s, e, UNSEEN_HERE, 0, 1, False)
    if goal == 0:
        goal = find(f, s, e, UNSEEN, 0)
    if goal:
        if thing and (f.place[thing] or f.place[goal]):
            # The object is carried along only if no path is blocked.
            thing = 0
        return EXPLORE, thing, goal, FORWARD, keep
    if is_strict(s, OPEN) or is_strict(s, PICK_UP) or find(f, s, e, LOCKED, 0) == 0:
        return NOTHING, 0, 0, DONE, False
    subgoal = _unlock(f, s, e, 0, UNLOCK)
    if subgoal[0] == UNLOCK:
        return subgoal
    goal = find(f, s, e, UNWANTED_BOX, 0)
    if goal == 0 and int(s.carrying) & KIND_MASK == BOX:
        return OPEN_BOX, 0, 0, PUT_DOWN, False
    if goal == 0:
        goal = find(f, s, e, WANTED_BOX, 0)
    return OPEN_BOX if goal else NOTHING, 0, goal, TOGGLE, False


@njit
def count_blockers(f, s, e, subgoal):
    """Returns the number of objects that block a subgoal."""
    _, thing, goal, action, _ = subgoal
    blockers = int(f.place[thing]) if thing else 0
    if goal and goal != int(s.agent):
        blockers += int(f.place[goal])
        if action == DROP and goal != thing and is_object(s, e, goal):
            blockers += 1
    return blockers


@njit
def must_drop_first(subgoal, blockers):
    """Returns whether the carried object must be dropped before the subgoal can proceed."""
    _, thing, _, action, keep = subgoal
    return action == PUT_DOWN or blockers > 0 or (not keep and (thing > 0 or action == PICKUP))
