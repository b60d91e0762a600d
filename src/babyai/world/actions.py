"""What an action does to a world. Whether it carried out the instruction is for the judge to say."""

import numpy as np

from babyai._jit import njit
from babyai.world.codes import (
    BOX,
    DOOR,
    DROP,
    EMPTY,
    FORWARD,
    KEY,
    KIND_MASK,
    LOCKED_DOOR,
    MARKED,
    OPAQUE,
    PICKUP,
    TOGGLE,
)
from babyai.world.state import ORIGIN, STRIDE
from babyai.world.view import STEPS

COLOR_MASK = 7 << 4


@njit
def front_of(s):
    """The flat index of the cell before the agent."""
    return int(s.agent) + STEPS[int(s.agent_dir)]


# How each action turns the agent.
TURNS = np.array([3, 1, 0, 0, 0, 0, 0], dtype=np.int64)


@njit
def act(s, action):
    """Carries out one action; returns whether it changed anything that the agent could see."""
    front = front_of(s)
    # Moving and turning do without branches, which a processor cannot guess for an agent that explores.
    cell = int(s.cells[front])
    moves = action == FORWARD and (cell == EMPTY or cell & (OPAQUE | KIND_MASK) == DOOR)
    s.agent = front if moves else int(s.agent)
    s.agent_dir = (int(s.agent_dir) + TURNS[action]) & 3
    if action == PICKUP:
        return pick_up(s, front)
    if action == DROP:
        return drop(s, front)
    if action == TOGGLE:
        return toggle(s, front)
    return moves or TURNS[action] != 0


@njit
def pick_up(s, front):
    """Takes a key, ball or box in hand; the judge's tracks still show it in its old place until the next drop."""
    cell = int(s.cells[front])
    if s.carrying or cell & KIND_MASK < KEY:
        return False
    s.cells[front] = EMPTY
    s.carrying = cell
    s.stale = 1
    from_a_box = cell & KIND_MASK != BOX and cell & MARKED
    s.carried_tracks = 0 if from_a_box else s.tracks[front - ORIGIN]
    return True


@njit
def drop(s, front):
    """Puts down what is carried if there is room, and brings the judge's tracks up to date either way."""
    dropped = s.carrying != 0 and s.cells[front] == EMPTY
    if dropped:
        s.cells[front] = s.carrying
        s.carrying = 0
    if s.stale:
        refresh_tracks(s)
    if dropped:
        s.tracks[front - ORIGIN] = s.carried_tracks
        s.carried_tracks = 0
    return dropped


@njit
def refresh_tracks(s):
    """Forgets the places where no tracked object lies any more."""
    for k in range(int(s.height) * STRIDE):
        if s.tracks[k]:
            cell = int(s.cells[ORIGIN + k])
            from_a_box = cell & KIND_MASK != BOX and cell & MARKED
            if cell == EMPTY or from_a_box:
                s.tracks[k] = 0
    s.stale = 0


@njit
def toggle(s, front):
    """Opens, closes or unlocks a door; opens a box, which leaves only what it held."""
    cell = int(s.cells[front])
    kind = cell & KIND_MASK
    if kind == DOOR:
        s.cells[front] = cell ^ OPAQUE
    elif kind == LOCKED_DOOR:
        held = int(s.carrying)
        if held & KIND_MASK == KEY and (held ^ cell) & COLOR_MASK == 0:
            s.cells[front] = DOOR | cell & COLOR_MASK
    elif kind == BOX:
        s.cells[front] = int(s.hidden) | MARKED if cell & MARKED else EMPTY
        s.stale = 1
    return s.cells[front] != cell
