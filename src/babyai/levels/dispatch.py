"""Calls the recipe of a level by its number.

Compiled code that takes a function as an argument cannot be cached on disk, so recipes are dispatched by number.
"""

from babyai._jit import njit
from babyai.levels.catalog import RECIPES
from babyai.levels.generator import random_level
from babyai.levels.hand_placed import (
    go_to_blocked,
    lots_of_blockers,
    put_next_close_to_closed_door,
    put_next_close_to_door,
    put_next_to_blocked,
    put_next_to_identical,
    unblocking_loop,
)
from babyai.levels.recipes import (
    act_on_object_or_door,
    find_object,
    go_to_behind_locked_door,
    go_to_door,
    go_to_local,
    go_to_maze,
    go_to_object,
    go_to_object_or_door,
    go_to_red_ball,
    go_to_red_blue_ball,
    key_corridor,
    key_in_box,
    move_two_across,
    one_room,
    open_doors_in_order,
    open_maze,
    open_one_door,
    open_red_door,
    open_two_doors,
    pick_up_above,
    pick_up_distinct,
    pick_up_maze,
    put_next_across,
    put_next_local,
    put_next_maze,
    unlock,
    unlock_local,
    unlock_pickup,
    unlock_to_unlock,
)

(
    GO_TO_RED_BALL,
    GO_TO_OBJECT,
    GO_TO_LOCAL,
    GO_TO_MAZE,
    GO_TO_RED_BLUE_BALL,
    GO_TO_DOOR,
    GO_TO_OBJECT_OR_DOOR,
    OPEN_MAZE,
    OPEN_RED_DOOR,
    OPEN_ONE_DOOR,
    OPEN_TWO_DOORS,
    OPEN_DOORS_IN_ORDER,
    PICK_UP_MAZE,
    PICK_UP_DISTINCT,
    PICK_UP_ABOVE,
    ONE_ROOM,
    FIND_OBJECT,
    ACT_ON_OBJECT_OR_DOOR,
    PUT_NEXT_LOCAL,
    PUT_NEXT_MAZE,
    PUT_NEXT_ACROSS,
    MOVE_TWO_ACROSS,
    GO_TO_BEHIND_LOCKED_DOOR,
    UNLOCK,
    UNLOCK_LOCAL,
    KEY_IN_BOX,
    UNLOCK_PICKUP,
    UNLOCK_TO_UNLOCK,
    KEY_CORRIDOR,
    RANDOM_LEVEL,
    GO_TO_BLOCKED,
    PUT_NEXT_TO_BLOCKED,
    PUT_NEXT_CLOSE_TO_CLOSED_DOOR,
    PUT_NEXT_TO_IDENTICAL,
    UNBLOCKING_LOOP,
    PUT_NEXT_CLOSE_TO_DOOR,
    LOTS_OF_BLOCKERS,
) = range(len(RECIPES))


@njit
def follow_recipe(s, d, level):
    """Makes one attempt at the level's recipe; returns False if the attempt is rejected."""
    recipe = level.recipe
    if recipe == GO_TO_RED_BALL:
        return go_to_red_ball(s, d, level)
    if recipe == GO_TO_OBJECT:
        return go_to_object(s, d, level)
    if recipe == GO_TO_LOCAL:
        return go_to_local(s, d, level)
    if recipe == GO_TO_MAZE:
        return go_to_maze(s, d, level)
    if recipe == GO_TO_RED_BLUE_BALL:
        return go_to_red_blue_ball(s, d, level)
    if recipe == GO_TO_DOOR:
        return go_to_door(s, d, level)
    if recipe == GO_TO_OBJECT_OR_DOOR:
        return go_to_object_or_door(s, d, level)
    if recipe == OPEN_MAZE:
        return open_maze(s, d, level)
    if recipe == OPEN_RED_DOOR:
        return open_red_door(s, d, level)
    if recipe == OPEN_ONE_DOOR:
        return open_one_door(s, d, level)
    if recipe == OPEN_TWO_DOORS:
        return open_two_doors(s, d, level)
    if recipe == OPEN_DOORS_IN_ORDER:
        return open_doors_in_order(s, d, level)
    if recipe == PICK_UP_MAZE:
        return pick_up_maze(s, d, level)
    if recipe == PICK_UP_DISTINCT:
        return pick_up_distinct(s, d, level)
    if recipe == PICK_UP_ABOVE:
        return pick_up_above(s, d, level)
    if recipe == ONE_ROOM:
        return one_room(s, d, level)
    if recipe == FIND_OBJECT:
        return find_object(s, d, level)
    if recipe == ACT_ON_OBJECT_OR_DOOR:
        return act_on_object_or_door(s, d, level)
    if recipe == PUT_NEXT_LOCAL:
        return put_next_local(s, d, level)
    if recipe == PUT_NEXT_MAZE:
        return put_next_maze(s, d, level)
    if recipe == PUT_NEXT_ACROSS:
        return put_next_across(s, d, level)
    if recipe == MOVE_TWO_ACROSS:
        return move_two_across(s, d, level)
    if recipe == GO_TO_BEHIND_LOCKED_DOOR:
        return go_to_behind_locked_door(s, d, level)
    if recipe == UNLOCK:
        return unlock(s, d, level)
    if recipe == UNLOCK_LOCAL:
        return unlock_local(s, d, level)
    if recipe == KEY_IN_BOX:
        return key_in_box(s, d, level)
    if recipe == UNLOCK_PICKUP:
        return unlock_pickup(s, d, level)
    if recipe == UNLOCK_TO_UNLOCK:
        return unlock_to_unlock(s, d, level)
    if recipe == KEY_CORRIDOR:
        return key_corridor(s, d, level)
    if recipe == RANDOM_LEVEL:
        return random_level(s, d, level)
    if recipe == GO_TO_BLOCKED:
        return go_to_blocked(s, d, level)
    if recipe == PUT_NEXT_TO_BLOCKED:
        return put_next_to_blocked(s, d, level)
    if recipe == PUT_NEXT_CLOSE_TO_CLOSED_DOOR:
        return put_next_close_to_closed_door(s, d, level)
    if recipe == PUT_NEXT_TO_IDENTICAL:
        return put_next_to_identical(s, d, level)
    if recipe == UNBLOCKING_LOOP:
        return unblocking_loop(s, d, level)
    if recipe == PUT_NEXT_CLOSE_TO_DOOR:
        return put_next_close_to_door(s, d, level)
    if recipe == LOTS_OF_BLOCKERS:
        return lots_of_blockers(s, d, level)
    return False
