"""The expert's plan in words: its stack of subgoals, as the paper's planner keeps it."""

import numpy as np

from babyai.expert import planner
from babyai.expert.state import MAX_STACK
from babyai.levels.layout import grid_cells
from babyai.world.codes import COLOR_SHIFT, COLORS
from babyai.world.language import Descriptor, Mission
from babyai.world.state import position_of

VERBS = {
    planner.OPENING: "open the door",
    planner.CLOSING: "close the door",
    planner.PICKING_UP: "pick it up",
    planner.DROPPING: "drop it",
    planner.EXPLORING: "explore",
}
REASONS = {
    planner.TO_OPEN: "to open it",
    planner.TO_PUT_NEXT: "to put something next to it",
    planner.TO_EXPLORE: "to explore",
    planner.TO_UNLOCK: "to unlock it",
}


def describe_plan(expert: np.record, world: np.record) -> list[str]:
    """The subgoals, the current one first; empty if there is no stack, because the teacher decides without one.

    Args:
        expert: Record of the expert.
        world: Record of its world.
    """
    if expert.handed_over:
        return []
    return [_describe(expert, world, place) for place in reversed(range(min(int(expert.depth), MAX_STACK)))]


def _describe(expert: np.record, world: np.record, place: int) -> str:
    """One subgoal."""
    kind = int(expert.kinds[place])
    reason = REASONS.get(int(expert.reasons[place]), "")
    if kind != planner.GO_NEXT_TO:
        return " ".join(filter(None, [VERBS[kind], reason]))
    return " ".join(filter(None, ["go to", _target(expert, world, place), reason]))


def _target(expert: np.record, world: np.record, place: int) -> str:
    """What to go to."""
    target = int(expert.targets[place])
    value = int(expert.values[place])
    if target == planner.DESCRIPTOR:
        return str(_descriptors(Mission.read(world))[value])
    if target == planner.KEY_OF_COLOR:
        return f"the {COLORS[value]} key"
    x, y = position_of(value)
    if target == planner.DOOR_AT:
        return f"the {COLORS[int(grid_cells(world)[y, x]) >> COLOR_SHIFT & 7]} door"
    return f"column {x}, row {y}"


def _descriptors(mission: Mission) -> dict[int, Descriptor]:
    """The descriptors of a mission by their number in the world record."""
    clauses = [*enumerate(mission.first), *enumerate(mission.second, start=2)]
    objects = {2 * k: clause.object for k, clause in clauses}
    return objects | {2 * k + 1: clause.target for k, clause in clauses if clause.target is not None}
