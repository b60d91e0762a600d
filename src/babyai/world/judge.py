"""The judge: decides after each step whether the mission has succeeded, failed, or is still in progress.

At the start of an episode every descriptor of the mission is matched to its objects. From then on it tracks these
objects by identity, with one bit per descriptor in `tracks`. A mission has one or two sides of one or two clauses:
`first` (clauses 0 and 1) and `second` (clauses 2 and 3). The clauses of a side may be fulfilled in any order; the
mission's `order` says which side comes first.
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

ONGOING, SUCCESS, FAILURE = range(3)
# `matches` relies on this.
assert DOOR == LOCKED_DOOR + 1


@njit
def matches(cell, noun, color):
    """Returns whether a cell has the noun and color of a descriptor."""
    kind = cell & KIND_MASK
    kind += kind == LOCKED_DOOR
    # No short-circuit evaluation: these branches are hard to predict.
    return bool(((noun == ANY_NOUN) | (noun == kind)) & ((color == ANY_COLOR) | (color == (cell >> 4) & 7)))


@njit
def matches_place(s, p, place):
    """Returns whether cell `p` is in the agent's room, on the given side of the agent."""
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
    """Returns whether (x, y) is in the agent's room, walls included."""
    if s.width == s.room_width and s.height == s.room_height:
        return True
    inner_width = int(s.room_width) - 1
    inner_height = int(s.room_height) - 1
    left = agent_x // inner_width * inner_width
    top = agent_y // inner_height * inner_height
    return left <= x <= left + inner_width and top <= y <= top + inner_height


@njit
def has_descriptor(s, k):
    """Returns whether the mission uses descriptor k."""
    verb = s.verbs[k >> 1]
    return verb == PUT_NEXT or (verb != NO_CLAUSE and k & 1 == 0)


@njit
def begin_tracking(s, things, count):
    """Matches every descriptor to its objects among `things`; returns the bits of descriptors without a match.

    A carried object is in no place, so only descriptors without a place match it.
    """
    for k in range(int(s.height) * STRIDE):
        s.tracks[k] = 0
    s.carried_tracks = 0
    missing = 0
    definite = 0
    for k in range(MAX_DESCRIPTORS):
        if not has_descriptor(s, k):
            continue
        noun = int(s.nouns[k])
        color = int(s.colors[k])
        place = int(s.places[k])
        found = 0
        if s.carrying and place == ANYWHERE and matches(int(s.carrying), noun, color):
            s.carried_tracks |= 1 << k
            found += 1
        for i in range(count):
            p = int(things[i])
            cell = int(s.cells[p])
            if not (matches(cell, noun, color) and matches_place(s, p, place)):
                continue
            if cell & MARKED == 0 or cell & KIND_MASK == BOX:
                s.tracks[p - ORIGIN] |= 1 << k
                found += 1
        if found == 0:
            missing |= 1 << k
        # In the reference, "grey object" also matches the walls, so the article is never "the".
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
    """Returns whether a descriptor tracks an object on one of the four neighbors of `p`."""
    k = p - ORIGIN
    return bool((s.tracks[k - 1] | s.tracks[k + 1] | s.tracks[k - STRIDE] | s.tracks[k + STRIDE]) & bit)


@njit
def can_be_put(s, things, count, clause):
    """Returns whether a put clause is valid.

    It is invalid if an object matches both descriptors, or if an object to move is already next to a target.
    """
    moved = 1 << (2 * clause)
    fixed = 2 << (2 * clause)
    if s.carried_tracks & moved and s.carried_tracks & fixed:
        return False
    for i in range(count):
        p = int(things[i])
        tracked = int(s.tracks[p - ORIGIN])
        if tracked & moved and (tracked & fixed or _next_to_tracked(s, p, fixed)):
            return False
    return True


@njit
def count_trips(s):
    """Returns how many trips the mission takes; the time limit is proportional to it."""
    total = 0
    for k in range(MAX_CLAUSES):
        if s.verbs[k] != NO_CLAUSE:
            total += 2 if s.verbs[k] == PUT_NEXT else 1
    return total


@njit
def _check_clause(s, k, action, held, held_tracks):
    """Returns whether the last action fulfilled or failed clause k.

    `held` and `held_tracks` are what the agent carried before the action.
    """
    verb = s.verbs[k]
    bit = 1 << (2 * k)
    strict = (int(s.strict) >> k) & 1
    if not (int(s.clauses_checked) >> k) & 1:
        # As in the reference, a clause knows what was carried only after it has been checked once.
        held = 0
        held_tracks = 0
        s.clauses_checked |= 1 << k
    front = front_of(s)
    if verb == GO_TO:
        return SUCCESS if s.tracks[front - ORIGIN] & bit else ONGOING
    if verb == OPEN:
        kind = s.cells[front] & KIND_MASK
        if action != TOGGLE or (kind != DOOR and kind != LOCKED_DOOR):
            return ONGOING
        if s.tracks[front - ORIGIN] & bit and s.cells[front] & OPAQUE == 0:
            return SUCCESS
        return FAILURE if strict else ONGOING
    if verb == PICK_UP:
        if action != PICKUP or not s.carrying:
            return ONGOING
        if not held and s.carried_tracks & bit:
            return SUCCESS
        return FAILURE if strict else ONGOING
    if action == DROP and held_tracks & bit and not s.carrying and _next_to_tracked(s, front, bit << 1):
        return SUCCESS
    return ONGOING


@njit
def _judge_clause(s, k, action, held, held_tracks):
    """Like `_check_clause`; with done actions, a clause succeeds by `done` on the step after it was fulfilled."""
    if not s.options & DONE_ACTIONS:
        return _check_clause(s, k, action, held, held_tracks)
    if action == DONE:
        return SUCCESS if (int(s.clauses_matched) >> k) & 1 else FAILURE
    if _check_clause(s, k, action, held, held_tracks) == SUCCESS:
        s.clauses_matched |= 1 << k
    else:
        s.clauses_matched &= 255 ^ (1 << k)
    return ONGOING


@njit
def _judge_side(s, first, action, held, held_tracks):
    """Judges one side: a single clause, or two clauses joined by `and`, each of which stays done once fulfilled."""
    if s.verbs[first + 1] == NO_CLAUSE:
        return _judge_clause(s, first, action, held, held_tracks)
    both = 3 << first
    for k in range(first, first + 2):
        if not (int(s.clauses_done) >> k) & 1 and _judge_clause(s, k, action, held, held_tracks) == SUCCESS:
            s.clauses_done |= 1 << k
    return SUCCESS if s.clauses_done & both == both else ONGOING


@njit
def judge(s, action, held, held_tracks):
    """Returns ONGOING, SUCCESS or FAILURE after an action.

    `held` and `held_tracks` are what the agent carried before the action.
    """
    if s.order == SINGLE:
        return _judge_side(s, 0, action, held, held_tracks)
    earlier, later = (2, 0) if s.order == AFTER else (0, 2)
    if s.first_side_done:
        return _judge_side(s, later, action, held, held_tracks)
    verdict = _judge_side(s, earlier, action, held, held_tracks)
    if verdict != SUCCESS:
        return verdict
    s.first_side_done = 1
    # The other side is judged by the same action. In the reference that action can fail it, which makes some strict
    # missions impossible; under the paper's rules it can only fulfill it.
    verdict = _judge_side(s, later, action, held, held_tracks)
    return ONGOING if verdict == FAILURE and s.options & LENIENT else verdict
