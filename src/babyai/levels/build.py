"""From a generator and a level to a world that is ready to be played: attempts at a recipe until one is accepted."""

from babyai._jit import njit
from babyai.levels.blocks import build_rooms
from babyai.levels.instruct import clear_mission
from babyai.world.codes import EMPTY, PUT_NEXT
from babyai.world.judge import begin_tracking, can_be_put, count_navigations
from babyai.world.state import LENIENT, MAX_CLAUSES, ORIGIN, RUNNING

# Where the reference would try for ever, we give up and say so.
MAX_ATTEMPTS = 100_000


@njit
def begin_attempt(s, d, level):
    """Builds the empty rooms and clears the mission."""
    build_rooms(s, d, level.room_size, level.rows, level.columns)
    clear_mission(s)


@njit
def accept(s, d):
    """Lets the judge find the objects of the mission; False if one of its clauses makes no sense in this world."""
    if begin_tracking(s, d.things, d.count):
        return False
    for clause in range(MAX_CLAUSES):
        if s.verbs[clause] == PUT_NEXT and not can_be_put(s, d.things, d.count, clause):
            return False
    return True


@njit
def begin_episode(s, level):
    """Sets clock, limit and status of a world that has been accepted; returns the limit that its mission implies."""
    s.step_count = 0
    rooms = (int(s.width) - 1) // (int(s.room_width) - 1) * ((int(s.height) - 1) // (int(s.room_height) - 1))
    limit = int(s.room_width) * int(s.room_height) * rooms * count_navigations(s)
    s.max_steps = level.max_steps if level.max_steps else limit
    s.options = (int(s.options) & ~LENIENT) | (0 if level.minigrid else LENIENT)
    s.status = RUNNING
    return limit


@njit
def take_in_hand(s, d):
    """Gives the agent the object that its first clause is to move, as the Carrying levels do."""
    for k in range(d.count):
        p = int(d.things[k])
        if s.tracks[p - ORIGIN] & 1:
            s.carrying = s.cells[p]
            s.carried_tracks = s.tracks[p - ORIGIN]
            s.cells[p] = EMPTY
            s.stale = 1
            return
