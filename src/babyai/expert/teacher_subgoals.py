"""What the teacher sets out to do next: the errand that the world, as far as it has been seen, calls for.

An errand is (rank, thing, goal, action, keep): fetch the object at cell `thing` (0: nothing to fetch), then face cell
`goal` and play `action`; `keep` tells that what is in hand is part of it. A lower rank is nearer to the end of the
mission. Which errand is chosen does not depend on where in its free region the agent stands, but for the nearest of
several equals, so walking never changes the mind of the teacher.
"""

from babyai._jit import njit
from babyai.expert.teacher_ways import (
    FREE,
    FREE_BESIDE,
    KEY_LIKE,
    LOCKED,
    OPEN_DOOR,
    SHUT_DOOR,
    TAKEN_BESIDE,
    TRACKED,
    TRACKED_THING,
    UNSEEN,
    UNSEEN_HERE,
    UNWANTED_BOX,
    WANTED_BOX,
    active_side,
    beside_tracked,
    find,
    find_from,
    is_key_for,
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

# Ranks of errands.
TARGET, EXPLORE, UNLOCK, OPEN_BOX, NOTHING = range(5)
# An action that is none: put down what is in hand, wherever it does no harm.
SET_DOWN = 7


@njit
def choose_errand(f, s, e):
    """The errand of the moment; its rank is NOTHING if there is none left."""
    first = active_side(s)
    chosen = (NOTHING, 0, 0, DONE, False)
    for k in range(first, first + 2):
        if s.verbs[k] == NO_CLAUSE or (int(s.clauses_done) >> k) & 1:
            continue
        verb, bit = int(s.verbs[k]), 1 << (2 * k)
        if verb == GO_TO:
            errand = _go_to(f, s, e, bit)
        elif verb == OPEN:
            errand = _open(f, s, e, bit)
        elif verb == PICK_UP:
            errand = _pick_up(f, s, e, bit)
        else:
            errand = _put_next(f, s, e, bit)
        if errand[0] == TARGET:
            if chosen[0] != TARGET or (errand[4] and not chosen[4]):
                chosen = errand
        elif chosen[0] != TARGET and not chosen[1] and not chosen[4]:
            # Nothing to be done about it yet; but what is to be put somewhere can be taken along.
            chosen = errand
    if chosen[0] == TARGET:
        return chosen
    return _search_errand(f, s, e, chosen[1], chosen[4])


@njit
def _go_to(f, s, e, bit):
    if int(s.carried_tracks) & bit:
        # Dropped anywhere, it lies before the agent.
        return _drop_here(f, s, e)
    goal = find(f, s, e, TRACKED, bit)
    if goal == 0 and int(s.tracks[int(s.agent) - ORIGIN]) & bit:
        goal = int(s.agent)
    return TARGET if goal else NOTHING, 0, goal, DONE, False


@njit
def _open(f, s, e, bit):
    goal = find(f, s, e, SHUT_DOOR, bit)
    if goal == 0 and not is_strict(s, OPEN):
        # A door that is open already is closed first.
        goal = find(f, s, e, OPEN_DOOR, bit)
        if goal == 0 and int(s.tracks[int(s.agent) - ORIGIN]) & bit:
            goal = int(s.agent)
    if goal:
        return TARGET, 0, goal, TOGGLE, False
    return _unlock(f, s, e, bit, TARGET)


@njit
def _unlock(f, s, e, bit, rank):
    """Unlocks the nearest locked door (tracked by `bit`, if not 0) whose key is in hand or in reach."""
    held = int(s.carrying)
    k = 1
    thing, goal = 0, 0
    while True:
        door = find_from(f, s, e, LOCKED, bit, k, True)
        if door == 0:
            return rank if goal else NOTHING, thing, goal, TOGGLE, False
        if is_key_for(held, int(s.cells[door])):
            return rank, 0, door, TOGGLE, True
        if goal == 0:
            thing = find(f, s, e, KEY_LIKE, (int(s.cells[door]) >> 4) & 7)
            goal = door if thing else 0
        while int(f.order[k]) != door:
            k += 1
        k += 1


@njit
def _drop_here(f, s, e):
    """Drops what is in hand at once, wherever that may be."""
    goal = find_from(f, s, e, FREE, 0, 1, False)
    return TARGET if goal else NOTHING, 0, goal, DROP, True


@njit
def _pick_up(f, s, e, bit):
    if int(s.carried_tracks) & bit:
        # What is in hand already does not count until it has been put down and picked up again.
        return _drop_here(f, s, e)
    goal = find(f, s, e, TRACKED_THING, bit)
    return TARGET if goal else NOTHING, 0, goal, PICKUP, False


@njit
def _put_next(f, s, e, bit):
    keep = int(s.carried_tracks) & bit != 0
    thing = 0 if keep else find(f, s, e, TRACKED_THING, bit)
    if thing == 0 and not keep:
        return NOTHING, 0, 0, DROP, False
    goal = _place_beside(f, s, e, bit << 1, thing)
    if goal:
        return TARGET, thing, goal, DROP, keep
    if int(s.carried_tracks) & bit << 1:
        return TARGET, 0, 0, SET_DOWN, False
    return NOTHING, thing, 0, DROP, keep


@njit
def _place_beside(f, s, e, bit, thing):
    """Where to drop something so that it lies next to an object of the descriptor; an object may be in the place."""
    free = find(f, s, e, FREE_BESIDE, bit)
    own = int(s.agent)
    if (free == 0 or f.place[free]) and s.cells[own] == EMPTY and beside_tracked(s, e, own, bit):
        return own
    taken = find(f, s, e, TAKEN_BESIDE, bit)
    if free == 0 or taken == 0:
        return free | taken
    return free if int(f.place[free]) <= int(f.place[taken]) + (taken != thing) else taken


@njit
def _search_errand(f, s, e, thing, keep):
    """What may show more of the world: unseen cells, then locked doors, then boxes that may hold a key."""
    goal = find_from(f, s, e, UNSEEN_HERE, 0, 1, False)
    if goal == 0:
        goal = find(f, s, e, UNSEEN, 0)
    if goal:
        if thing and (f.place[thing] or f.place[goal]):
            # It is taken along only where nothing is in the way.
            thing = 0
        return EXPLORE, thing, goal, FORWARD, keep
    if is_strict(s, OPEN) or is_strict(s, PICK_UP) or find(f, s, e, LOCKED, 0) == 0:
        return NOTHING, 0, 0, DONE, False
    errand = _unlock(f, s, e, 0, UNLOCK)
    if errand[0] == UNLOCK:
        return errand
    goal = find(f, s, e, UNWANTED_BOX, 0)
    if goal == 0 and int(s.carrying) & KIND_MASK == BOX:
        return OPEN_BOX, 0, 0, SET_DOWN, False
    if goal == 0:
        goal = find(f, s, e, WANTED_BOX, 0)
    return OPEN_BOX if goal else NOTHING, 0, goal, TOGGLE, False


@njit
def count_blockers(f, s, e, errand):
    """How many objects are in the way of an errand."""
    _, thing, goal, action, _ = errand
    blockers = int(f.place[thing]) if thing else 0
    if goal and goal != int(s.agent):
        blockers += int(f.place[goal])
        if action == DROP and goal != thing and is_object(s, e, goal):
            blockers += 1
    return blockers


@njit
def needs_hands(errand, blockers):
    """Whether what is in hand must be put down before the errand can go on."""
    _, thing, _, action, keep = errand
    return action == SET_DOWN or blockers > 0 or (not keep and (thing > 0 or action == PICKUP))
