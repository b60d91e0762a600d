"""Eight hand-placed worlds from the original BabyAI that once broke its bot. Only the door positions are random."""

from babyai._jit import njit
from babyai.levels.blocks import ANY, DOWN_SIDE, RIGHT_SIDE, UP_SIDE, add_door, at, place_agent, put
from babyai.levels.instruct import set_clause, set_descriptor, set_order
from babyai.world.codes import (
    ANY_COLOR,
    ANYWHERE,
    BALL,
    BEFORE,
    BLUE,
    BOX,
    DOOR,
    EMPTY,
    GO_TO,
    GREEN,
    KEY,
    OPEN,
    PUT_NEXT,
    RED,
    YELLOW,
)
from babyai.world.state import STRIDE

YELLOW_BALL, BLUE_BALL, RED_BALL = (BALL | color << 4 for color in (YELLOW, BLUE, RED))
YELLOW_BOX = BOX | YELLOW << 4
GREEN_BOX = BOX | GREEN << 4
BLUE_KEY = KEY | BLUE << 4


@njit
def _set_agent(s, x, y, heading):
    s.agent = at(x, y)
    s.agent_dir = heading
    return True


@njit
def _set_put_clause(s, clause, kind, color, target_kind, target_color):
    s.verbs[clause] = PUT_NEXT
    set_descriptor(s, 2 * clause, kind, color, ANYWHERE)
    set_descriptor(s, 2 * clause + 1, target_kind, target_color, ANYWHERE)
    return True


@njit
def go_to_blocked(s, d, level):
    """A yellow ball in a corner, blocked by red balls."""
    if not (place_agent(s, d, ANY, ANY) and _set_agent(s, 3, 3, 0) and put(s, d, at(1, 1), YELLOW_BALL)):
        return False
    for x in range(1, 4):
        for y in range(1, 4):
            if s.cells[at(x, y)] == EMPTY and at(x, y) != s.agent:
                put(s, d, at(x, y), RED_BALL)
    return set_clause(s, 0, GO_TO, BALL, YELLOW, ANYWHERE)


@njit
def put_next_to_blocked(s, d, level):
    return (
        place_agent(s, d, ANY, ANY)
        and _set_agent(s, 3, 3, 0)
        and put(s, d, at(4, 4), YELLOW_BALL)
        and put(s, d, at(1, 1), BLUE_BALL)
        and put(s, d, at(1, 2), RED_BALL)
        and put(s, d, at(2, 1), RED_BALL)
        and _set_put_clause(s, 0, BALL, YELLOW, BALL, BLUE)
    )


@njit
def put_next_close_to_closed_door(s, d, level):
    """A blue ball right behind a red door; with `variant` 1 the door must be opened first."""
    if not (place_agent(s, d, ANY, ANY) and _set_agent(s, 3, 3, 0) and add_door(s, d, 0, 0, ANY, RED, 0)):
        return False
    if not (put(s, d, at(4, 4), YELLOW_BALL) and put(s, d, int(d.things[0]) + STRIDE, BLUE_BALL)):
        return False
    if level.variant == 0:
        return _set_put_clause(s, 0, BALL, YELLOW, BALL, BLUE)
    set_clause(s, 0, OPEN, DOOR, RED, ANYWHERE)
    return _set_put_clause(s, 2, BALL, YELLOW, BALL, BLUE) and set_order(s, BEFORE, 0)


@njit
def put_next_to_identical(s, d, level):
    return (
        place_agent(s, d, ANY, ANY)
        and _set_agent(s, 3, 3, 0)
        and put(s, d, at(1, 1), YELLOW_BOX)
        and put(s, d, at(4, 4), BLUE_BALL)
        and put(s, d, at(2, 2), RED_BALL)
        and _set_put_clause(s, 0, BALL, BLUE, BOX, YELLOW)
        and _set_put_clause(s, 2, BOX, YELLOW, BALL, ANY_COLOR)
        and set_order(s, BEFORE, 0)
    )


@njit
def _add_three_doors(s, d):
    return (
        add_door(s, d, 0, 0, DOWN_SIDE, RED, 0)
        and add_door(s, d, 0, 1, RIGHT_SIDE, RED, 0)
        and add_door(s, d, 1, 1, UP_SIDE, BLUE, 0)
    )


@njit
def unblocking_loop(s, d, level):
    if not (place_agent(s, d, ANY, ANY) and _set_agent(s, 15, 4, 2) and _add_three_doors(s, d)):
        return False
    _set_put_clause(s, 0, KEY, BLUE, DOOR, BLUE)
    set_clause(s, 2, GO_TO, BALL, YELLOW, ANYWHERE)
    set_clause(s, 3, GO_TO, BOX, YELLOW, ANYWHERE)
    return (
        put(s, d, at(9, 1), YELLOW_BOX)
        and put(s, d, at(5, 3), BLUE_BALL)
        and put(s, d, at(6, 2), YELLOW_BALL)
        and put(s, d, at(15, 15), BLUE_KEY)
        and set_order(s, BEFORE, 0)
    )


@njit
def put_next_close_to_door(s, d, level):
    """Balls and boxes surround the inner side of a door."""
    if not (place_agent(s, d, ANY, ANY) and _set_agent(s, 5, 10, 2) and _add_three_doors(s, d)):
        return False
    door = int(d.things[0])
    above = door - STRIDE
    if not (put(s, d, above, BLUE_BALL) and put(s, d, above - STRIDE, BLUE_BALL)):
        return False
    if s.cells[above - 1] == EMPTY and not put(s, d, above - 1, GREEN_BOX):
        return False
    if s.cells[above + 1] == EMPTY and not put(s, d, above + 1, GREEN_BOX):
        return False
    return put(s, d, at(3, 15), YELLOW_BOX) and _set_put_clause(s, 0, BOX, YELLOW, BALL, BLUE)


@njit
def lots_of_blockers(s, d, level):
    return (
        place_agent(s, d, ANY, ANY)
        and _set_agent(s, 5, 5, 0)
        and put(s, d, at(2, 1), YELLOW_BOX)
        and put(s, d, at(2, 2), YELLOW_BOX)
        and put(s, d, at(2, 3), YELLOW_BOX)
        and put(s, d, at(3, 4), YELLOW_BOX)
        and put(s, d, at(2, 6), YELLOW_BOX)
        and put(s, d, at(1, 3), YELLOW_BOX)
        and put(s, d, at(1, 2), BLUE_BALL)
        and put(s, d, at(3, 6), RED_BALL)
        and _set_put_clause(s, 0, BALL, RED, BALL, BLUE)
    )
