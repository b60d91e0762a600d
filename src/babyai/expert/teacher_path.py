"""Where the teacher's advice leads: its current goal and the path to it, as auxiliary labels for learning."""

from babyai._jit import njit
from babyai.expert.search import is_seen
from babyai.world.state import ORIGIN, STRIDE
from babyai.world.view import STEPS

# Cells are numbered in a square around the agent, which faces up: WINDOW * (REACH + ahead) + REACH + right.
REACH = 25
WINDOW = 2 * REACH + 1
# The length of a path's row; longer paths are cut at the far end.
PATH_LENGTH = 32
NO_CELL = -1


@njit
def trace_path(s, e, f, path):
    """Writes the path of the teacher's last advice: path[0] is the goal, path[d] the cell at distance d from the agent.

    Only cells that have been seen are written. If the goal has not been seen, the last cell before it takes its place.
    """
    if f.goal == 0:
        return
    p = f.goal
    if not f.has_path:
        if is_seen(e, p):
            path[0] = _number(s, p)
        return
    if not is_seen(e, p):
        p = int(f.parent[p])
    path[0] = _number(s, p)
    while p != int(s.agent):
        distance = int(f.distance[p])
        if distance < PATH_LENGTH:
            path[distance] = _number(s, p)
        p = int(f.parent[p])


@njit
def _number(s, p):
    """Returns the number of cell `p` in the square around the agent, or NO_CELL if it is outside."""
    down = (p - ORIGIN) // STRIDE - (int(s.agent) - ORIGIN) // STRIDE
    east = (p - ORIGIN) % STRIDE - (int(s.agent) - ORIGIN) % STRIDE
    heading = int(s.agent_dir)
    ahead = _along(heading, east, down)
    right = _along((heading + 1) & 3, east, down)
    if max(abs(ahead), abs(right)) > REACH:
        return NO_CELL
    return WINDOW * (REACH + ahead) + REACH + right


@njit
def _along(heading, east, down):
    """Returns how far an offset goes in the direction of a heading."""
    step = STEPS[heading]
    if step == 1 or step == -1:
        return east * step
    return down if step > 0 else -down
