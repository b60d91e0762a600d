"""Updates the stack of subgoals after an action, which may differ from the advice."""

from babyai._jit import njit
from babyai.expert.planner import (
    CLOSING,
    DROPPING,
    EXPLORING,
    GO_NEXT_TO,
    NOWHERE,
    OPENING,
    PICKING_UP,
    TO_EXPLORE,
    TO_UNLOCK,
    find_drop_cell,
    push_go_to_cell,
    push_plain,
)
from babyai.world.actions import front_of
from babyai.world.codes import DOOR, DROP, FORWARD, KIND_MASK, LEFT, LOCKED_DOOR, OPAQUE, PICKUP, RIGHT, TOGGLE
from babyai.world.view import STEPS


@njit
def _push_undo(s, e, action):
    """Pushes subgoals that undo an action other than the one the top of the stack had planned."""
    right = STEPS[(int(s.agent_dir) + 1) & 3]
    if action == FORWARD:
        if s.agent != e.agent:
            push_go_to_cell(e, int(s.agent))
    elif action == LEFT:
        push_go_to_cell(e, int(s.agent) + right)
    elif action == RIGHT:
        push_go_to_cell(e, int(s.agent) - right)
    elif action == DROP and e.carrying and not s.carrying:
        push_plain(e, PICKING_UP)
    elif action == PICKUP and s.carrying and not e.carrying:
        push_plain(e, DROPPING)
    elif action == TOGGLE:
        cell = int(s.cells[front_of(s)])
        kind = cell & KIND_MASK
        if cell != e.front_cell and (kind == DOOR or kind == LOCKED_DOOR):
            push_plain(e, OPENING if cell & OPAQUE else CLOSING)


@njit
def update_stack(s, e, f, action):
    """Updates the stack after an action; returns False where the reference would find no cell to drop a key."""
    top = e.depth - 1
    if top < 0:
        return True
    kind = e.kinds[top]
    if kind == GO_NEXT_TO:
        if action in (PICKUP, DROP, TOGGLE):
            _push_undo(s, e, action)
    elif kind == OPENING:
        if action != TOGGLE:
            _push_undo(s, e, action)
        else:
            unlocking = e.reasons[top] == TO_UNLOCK
            e.depth -= 1
            if unlocking:
                p = find_drop_cell(s, e, f, NOWHERE)
                if p == NOWHERE:
                    return False
                push_plain(e, DROPPING)
                push_go_to_cell(e, p)
    elif kind == CLOSING or kind == DROPPING:
        if action == (TOGGLE if kind == CLOSING else DROP):
            e.depth -= 1
        elif action in (FORWARD, LEFT, RIGHT):
            _push_undo(s, e, action)
    elif kind == PICKING_UP:
        if action == PICKUP:
            e.depth -= 1
        elif action in (LEFT, RIGHT):
            _push_undo(s, e, action)
    # Exploration is replanned at every step.
    while e.depth > 0 and (e.kinds[e.depth - 1] == EXPLORING or e.reasons[e.depth - 1] == TO_EXPLORE):
        e.depth -= 1
    return True
