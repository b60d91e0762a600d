"""Steps of a reset: start an attempt at a recipe, validate the result, and start the episode."""

from babyai._jit import njit
from babyai.levels.blocks import build_rooms
from babyai.levels.instruct import clear_mission
from babyai.world.codes import EMPTY, KEY, KIND_MASK, PUT_NEXT
from babyai.world.judge import begin_tracking, can_be_put, count_trips
from babyai.world.state import LENIENT, MAX_CLAUSES, ORIGIN, RUNNING

# The reference retries forever; we raise an error after this many rejected attempts.
MAX_ATTEMPTS = 100_000


@njit
def begin_attempt(s, d, level):
    """Builds the empty rooms and clears the mission."""
    build_rooms(s, d, level.room_size, level.rows, level.columns)
    clear_mission(s)


@njit
def accept(s, d):
    """Starts tracking the objects of the mission; returns False if one of its clauses is invalid in this world."""
    if begin_tracking(s, d.things, d.count):
        return False
    for clause in range(MAX_CLAUSES):
        if s.verbs[clause] == PUT_NEXT and not can_be_put(s, d.things, d.count, clause):
            return False
    return True


@njit
def begin_episode(s, level):
    """Sets step count, time limit and status of an accepted world; returns the time limit implied by the mission."""
    s.step_count = 0
    rooms = (int(s.width) - 1) // (int(s.room_width) - 1) * ((int(s.height) - 1) // (int(s.room_height) - 1))
    limit = int(s.room_width) * int(s.room_height) * rooms * count_trips(s)
    s.max_steps = level.max_steps if level.max_steps else limit
    s.options = (int(s.options) & ~LENIENT) | (0 if level.minigrid else LENIENT)
    s.status = RUNNING
    return limit


@njit
def take_in_hand(s, d):
    """Moves the object of the first clause into the agent's hand, as in the Carrying levels."""
    for k in range(d.count):
        p = int(d.things[k])
        if s.tracks[p - ORIGIN] & 1 and s.cells[p] & KIND_MASK >= KEY:
            s.carrying = s.cells[p]
            s.carried_tracks = s.tracks[p - ORIGIN]
            s.cells[p] = EMPTY
            s.stale = 1
            return
