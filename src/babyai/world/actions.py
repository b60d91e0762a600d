"""How actions change a world. Whether an action fulfills the instruction is decided in `judge`."""

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
    """Returns the flat index of the cell in front of the agent."""
    return int(s.agent) + STEPS[int(s.agent_dir)]


# By action: how many quarter turns to the right it turns the agent.
TURNS = np.array([3, 1, 0, 0, 0, 0, 0], dtype=np.int64)


@njit
def act(s, action):
    """Applies one action and returns whether the agent's view may have changed."""
    front = front_of(s)
    # Moving and turning are branch-free: the branches of an exploring agent are hard to predict.
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
    """Picks up the key, ball or box in front; returns whether anything was picked up.

    The judge's tracks still show the object in its old cell until the next drop.
    """
    cell = int(s.cells[front])
    if s.carrying or cell & KIND_MASK < KEY:
        return False
    s.cells[front] = EMPTY
    s.carrying = cell
    s.stale = 1
    came_from_box = cell & KIND_MASK != BOX and cell & MARKED
    s.carried_tracks = 0 if came_from_box else s.tracks[front - ORIGIN]
    return True


@njit
def drop(s, front):
    """Drops the carried object if the front cell is empty; returns whether it was dropped.

    The judge's tracks are brought up to date in either case.
    """
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
    """Clears the tracks of cells that no longer hold a tracked object."""
    for k in range(int(s.height) * STRIDE):
        if s.tracks[k]:
            cell = int(s.cells[ORIGIN + k])
            came_from_box = cell & KIND_MASK != BOX and cell & MARKED
            if cell == EMPTY or came_from_box:
                s.tracks[k] = 0
    s.stale = 0


@njit
def toggle(s, front):
    """Opens, closes or unlocks a door, or replaces a box by its content; returns whether the cell changed."""
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
