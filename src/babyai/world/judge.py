"""The judge: says after each step whether the instruction has been followed, failed, or goes on.

At the start of an episode every descriptor of the mission finds its objects; from then on it knows them by identity,
one bit of `tracks` for each. A mission has at most two sides of at most two clauses: `first` (clauses 0 and 1) and
`second` (2 and 3); within a side the clauses may come in any order, and the sides are put in order by the mission.
"""

from babyai._jit import njit
from babyai.world.actions import front_of
from babyai.world.codes import (
    AFTER,
    ANY_COLOR,
    ANY_NOUN,
    ANYWHERE,
    BEHIND,
    BOX,
    DONE,
    DOOR,
    DROP,
    GO_TO,
    GREY,
    IN_FRONT,
    KIND_MASK,
    LOCKED_DOOR,
    MARKED,
    NO_CLAUSE,
    ON_LEFT,
    OPAQUE,
    OPEN,
    PICK_UP,
    PICKUP,
    PUT_NEXT,
    SINGLE,
    TOGGLE,
)
from babyai.world.state import DONE_ACTIONS, LENIENT, MAX_CLAUSES, MAX_DESCRIPTORS, ORIGIN, STRIDE
from babyai.world.view import VECTOR_X, VECTOR_Y

GOES_ON, SUCCESS, FAILURE = range(3)
# `fits` counts on this.
assert DOOR == LOCKED_DOOR + 1


@njit
def fits(cell, noun, color):
    """Whether a thing is of the noun and color that a descriptor names."""
    kind = cell & KIND_MASK
    kind += kind == LOCKED_DOOR
    # Without short cuts, since a processor cannot guess which of the four it will be.
    return bool(((noun == ANY_NOUN) | (noun == kind)) & ((color == ANY_COLOR) | (color == (cell >> 4) & 7)))


@njit
def lies_in(s, p, place):
    """Whether cell `p` is in the agent's room, on the named side of it."""
    if place == ANYWHERE:
        return True
    y, x = divmod(p - ORIGIN, STRIDE)
    agent_y, agent_x = divmod(int(s.agent) - ORIGIN, STRIDE)
    dx, dy = VECTOR_X[int(s.agent_dir)], VECTOR_Y[int(s.agent_dir)]
    ahead = (x - agent_x) * dx + (y - agent_y) * dy
    rightward = (y - agent_y) * dx - (x - agent_x) * dy
    offset = (
        ahead if place == IN_FRONT else -ahead if place == BEHIND else -rightward if place == ON_LEFT else rightward
    )
    return offset > 0 and _in_same_room(s, x, y, agent_x, agent_y)


@njit
def _in_same_room(s, x, y, agent_x, agent_y):
    """Whether (x, y) lies in the square of the agent's room, walls included."""
    if s.width == s.room_width and s.height == s.room_height:
        return True
    across, down = int(s.room_width) - 1, int(s.room_height) - 1
    left, top = agent_x // across * across, agent_y // down * down
    return left <= x <= left + across and top <= y <= top + down


@njit
def has_descriptor(s, k):
    """Whether the mission uses descriptor k."""
    verb = s.verbs[k >> 1]
    return verb == PUT_NEXT or (verb != NO_CLAUSE and k & 1 == 0)


@njit
def begin_tracking(s, things, count):
    """Lets every descriptor find its objects among `things`; returns the bits of the descriptors that found none.

    What the agent carries belongs to nowhere, so it is found by descriptors that do not say where.
    """
    for k in range(int(s.height) * STRIDE):
        s.tracks[k] = 0
    s.carried_tracks = 0
    missing = 0
    definite = 0
    for k in range(MAX_DESCRIPTORS):
        if not has_descriptor(s, k):
            continue
        noun, color, place = int(s.nouns[k]), int(s.colors[k]), int(s.places[k])
        found = 0
        if s.carrying and place == ANYWHERE and fits(int(s.carrying), noun, color):
            s.carried_tracks |= 1 << k
            found += 1
        for i in range(count):
            p = int(things[i])
            cell = int(s.cells[p])
            if fits(cell, noun, color) and lies_in(s, p, place) and (cell & MARKED == 0 or cell & KIND_MASK == BOX):
                s.tracks[p - ORIGIN] |= 1 << k
                found += 1
        if found == 0:
            missing |= 1 << k
        # The reference's "grey object" matches the walls as well, so that it is never "the" grey object.
        if found == 1 and not (noun == ANY_NOUN and color == GREY):
            definite |= 1 << k
    s.definite = definite
    s.stale = 0
    s.first_side_done = 0
    s.clauses_done = 0
    s.clauses_checked = 0
    s.clauses_matched = 0
    return missing


@njit
def _next_to_tracked(s, p, bit):
    """Whether one of the four neighbors of `p` is where a descriptor has an object."""
    k = p - ORIGIN
    return bool((s.tracks[k - 1] | s.tracks[k + 1] | s.tracks[k - STRIDE] | s.tracks[k + STRIDE]) & bit)


@njit
def can_be_put(s, things, count, clause):
    """Whether a put clause makes sense: no object is on both sides of it, or already lies where it should go."""
    moved, fixed = 1 << (2 * clause), 2 << (2 * clause)
    if s.carried_tracks & moved and s.carried_tracks & fixed:
        return False
    for i in range(count):
        p = int(things[i])
        tracked = int(s.tracks[p - ORIGIN])
        if tracked & moved and (tracked & fixed or _next_to_tracked(s, p, fixed)):
            return False
    return True


@njit
def count_navigations(s):
    """How many trips the mission takes, by which the time limit grows."""
    total = 0
    for k in range(MAX_CLAUSES):
        if s.verbs[k] != NO_CLAUSE:
            total += 2 if s.verbs[k] == PUT_NEXT else 1
    return total


@njit
def _condition(s, k, action, held, held_tracks):
    """Whether clause k is fulfilled by what just happened; `held` and its tracks were in hand before the step."""
    verb, bit, strict = s.verbs[k], 1 << (2 * k), (int(s.strict) >> k) & 1
    if not (int(s.clauses_checked) >> k) & 1:
        # A clause remembers what was carried only from the first step on that it is looked at.
        held, held_tracks = 0, 0
        s.clauses_checked |= 1 << k
    front = front_of(s)
    if verb == GO_TO:
        return SUCCESS if s.tracks[front - ORIGIN] & bit else GOES_ON
    if verb == OPEN:
        kind = s.cells[front] & KIND_MASK
        if action != TOGGLE or (kind != DOOR and kind != LOCKED_DOOR):
            return GOES_ON
        if s.tracks[front - ORIGIN] & bit and s.cells[front] & OPAQUE == 0:
            return SUCCESS
        return FAILURE if strict else GOES_ON
    if verb == PICK_UP:
        if action != PICKUP or not s.carrying:
            return GOES_ON
        if not held and s.carried_tracks & bit:
            return SUCCESS
        return FAILURE if strict else GOES_ON
    if action == DROP and held_tracks & bit and not s.carrying and _next_to_tracked(s, front, bit << 1):
        return SUCCESS
    return GOES_ON


@njit
def _judge_clause(s, k, action, held, held_tracks):
    """Like `_condition`; with done actions, a clause counts once the agent says so on the step after."""
    if not s.options & DONE_ACTIONS:
        return _condition(s, k, action, held, held_tracks)
    if action == DONE:
        return SUCCESS if (int(s.clauses_matched) >> k) & 1 else FAILURE
    if _condition(s, k, action, held, held_tracks) == SUCCESS:
        s.clauses_matched |= 1 << k
    else:
        s.clauses_matched &= 255 ^ (1 << k)
    return GOES_ON


@njit
def _judge_side(s, first, action, held, held_tracks):
    """One side: a clause alone, or two of which each stays done once it is."""
    if s.verbs[first + 1] == NO_CLAUSE:
        return _judge_clause(s, first, action, held, held_tracks)
    both = 3 << first
    for k in range(first, first + 2):
        if not (int(s.clauses_done) >> k) & 1 and _judge_clause(s, k, action, held, held_tracks) == SUCCESS:
            s.clauses_done |= 1 << k
    return SUCCESS if s.clauses_done & both == both else GOES_ON


@njit
def judge(s, action, held, held_tracks):
    """GOES_ON, SUCCESS or FAILURE after a step; `held` and its tracks are what was in hand before it."""
    if s.order == SINGLE:
        return _judge_side(s, 0, action, held, held_tracks)
    earlier, later = (2, 0) if s.order == AFTER else (0, 2)
    if s.first_side_done:
        return _judge_side(s, later, action, held, held_tracks)
    verdict = _judge_side(s, earlier, action, held, held_tracks)
    if verdict != SUCCESS:
        return verdict
    s.first_side_done = 1
    # The other side is judged by the same action at once. The reference lets that action fail it, which makes strict
    # missions impossible; under the paper's rules it can only succeed.
    verdict = _judge_side(s, later, action, held, held_tracks)
    return GOES_ON if verdict == FAILURE and s.options & LENIENT else verdict
