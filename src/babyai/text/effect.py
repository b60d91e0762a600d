"""What an action did, as a sentence: the world before and after it are compared."""

import numpy as np

from babyai.text.view import name_kind, name_object
from babyai.world.codes import (
    BOX,
    COLOR_SHIFT,
    COLORS,
    DOOR,
    EMPTY,
    KIND_MASK,
    LOCKED_DOOR,
    OPAQUE,
    TRIPLES,
    VECTORS,
    WALL,
    Action,
)
from babyai.world.state import DONE_ACTIONS, STRIDE

# How a sentence about an action without effect begins.
NOTHING = "Nothing happened"


def describe_effect(before: np.record, action: int, after: np.record) -> str:
    """What an action did, such as "You picked up the red ball." or "Nothing happened: a wall is ahead.".

    Args:
        before: The world before the action.
        action: 0 to 6.
        after: The world after it.
    """
    ahead = _cell_ahead(before)
    match Action(action):
        case Action.left:
            return "You turned left."
        case Action.right:
            return "You turned right."
        case Action.forward:
            return "You moved forward." if after.agent != before.agent else f"{NOTHING}: {_name(ahead)} is ahead."
        case Action.pickup:
            return _describe_pickup(before, ahead, after)
        case Action.drop:
            return _describe_drop(before, ahead, after)
        case Action.toggle:
            return _describe_toggle(before, ahead, after)
        case Action.done:
            return "You said that you are done." if before.options & DONE_ACTIONS else f"{NOTHING}."


def has_effect(before: np.record, after: np.record) -> bool:
    """Whether the agent or anything in the grid is different."""
    same_agent = (before.agent, before.agent_dir, before.carrying) == (after.agent, after.agent_dir, after.carrying)
    return not (same_agent and np.array_equal(before.cells, after.cells))


def _describe_pickup(before: np.record, ahead: int, after: np.record) -> str:
    if after.carrying != before.carrying:
        return f"You picked up the {_noun(ahead)}."
    if before.carrying:
        return f"{NOTHING}: you already carry {_name(before.carrying)}."
    if ahead == EMPTY:
        return f"{NOTHING}: there is nothing ahead to pick up."
    return f"{NOTHING}: {_name(ahead)} cannot be picked up."


def _describe_drop(before: np.record, ahead: int, after: np.record) -> str:
    if after.carrying != before.carrying:
        return f"You dropped the {_noun(before.carrying)}."
    if not before.carrying:
        return f"{NOTHING}: you carry nothing."
    return f"{NOTHING}: {_name(ahead)} is ahead, and things can only be dropped into an empty cell."


def _describe_toggle(before: np.record, ahead: int, after: np.record) -> str:
    kind = ahead & KIND_MASK
    color = COLORS[ahead >> COLOR_SHIFT & 7]
    if kind == DOOR:
        return f"You {'opened' if ahead & OPAQUE else 'closed'} the {color} door."
    if kind == LOCKED_DOOR:
        if has_effect(before, after):
            return f"You unlocked and opened the {color} door."
        return f"{NOTHING}: the {color} door is locked, and you do not carry a {color} key."
    if kind == BOX:
        content = _cell_ahead(after)
        found = "It was empty" if content == EMPTY else f"There was {_name(content)} in it"
        return f"You opened the {color} box. {found}, and the box is gone."
    if kind == WALL:
        return f"{NOTHING}: a wall cannot be toggled."
    if ahead == EMPTY:
        return f"{NOTHING}: there is nothing ahead to toggle."
    return f"{NOTHING}: {_name(ahead)} cannot be toggled."


def _cell_ahead(world: np.record) -> int:
    """The cell in front of the agent."""
    dx, dy = VECTORS[world.agent_dir]
    return int(world.cells[int(world.agent) + dy * STRIDE + dx])


def _name(cell: int) -> str:
    """What a cell holds, with its article: "a closed red door"."""
    return name_object(TRIPLES[cell])


def _noun(cell: int) -> str:
    """What a cell holds, without an article: "red ball"."""
    return name_kind(TRIPLES[cell])
