"""What a plan achieves: a list of actions in, the outcome, the final state and the progress of the mission out."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from babyai.engine import Engine
from babyai.text.actions import list_actions, read_action
from babyai.text.effect import describe_effect, has_effect
from babyai.text.view import name_object
from babyai.text.world import HEADINGS, find_engine, find_world
from babyai.world.codes import AFTER, SINGLE, TRIPLES, Action
from babyai.world.language import Mission
from babyai.world.state import ENDED, position_of

Outcome = Literal["success", "failure", "timeout", "playing"]
# In a plan that is a text, actions are separated by these, and may be numbered or in a list.
_SEPARATORS = re.compile(r"[,;\n]|(?<=[a-z])\. ")
_BULLET = re.compile(r"^\s*(?:\d+[.):]|[-*])\s+(?=\S)")


@dataclass(frozen=True)
class PlanResult:
    """What a plan achieves."""

    outcome: Outcome
    """success; failure, if an action has failed the mission; timeout; or playing, if the episode is not over."""
    reward: float
    """The reward of the last action, 0 unless the mission succeeded."""
    plan: tuple[Action, ...]
    """The actions."""
    steps: int
    """How many of them were taken; fewer than there are if the episode ended before."""
    effects: tuple[str, ...]
    """What each of them did."""
    first_without_effect: int | None
    """The index of the first action that changed nothing; None if there is none."""
    clauses: tuple[tuple[str, bool], ...]
    """The clauses of the mission in their order in the sentence, and whether each is done."""
    position: tuple[int, int]
    """The agent's (x, y) at the end."""
    direction: int
    """Its heading at the end: 0 right, 1 down, 2 left, 3 up."""
    carrying: str | None
    """What it carries at the end, such as "a red ball"; None for nothing."""

    @property
    def success(self) -> bool:
        """Whether the plan fulfills the mission."""
        return self.outcome == "success"

    def __str__(self) -> str:
        lines = [f"{self.outcome} after {self.steps} of {len(self.plan)} actions"]
        lines += [f"  {'done' if is_done else 'to do'}: {clause}" for clause, is_done in self.clauses]
        if (first := self.first_without_effect) is not None:
            lines.append(f"action {first + 1}, {list_actions(done=True)[self.plan[first]]}: {self.effects[first]}")
        x, y = self.position
        lines.append(f"at ({x}, {y}), facing {HEADINGS[self.direction]}, carrying {self.carrying or 'nothing'}")
        return "\n".join(lines)


def check_plan(env: Any, plan: str | Sequence[int | str], index: int = 0) -> PlanResult:
    """Tries a plan in a copy of the world, which is not changed itself.

    Args:
        env: A babyai environment, single or vector, wrapped or not; or an engine.
        plan: Actions, as numbers, names or one text; see `read_plan`.
        index: Number of the world, in a vector environment.

    Raises:
        ValueError: An element of the plan is not an action.
        RuntimeError: The environment has not been reset, or its episode is over.
    """
    return follow_plan(copy_world(env, index), read_plan(plan))


def read_plan(plan: str | Sequence[int | str]) -> list[Action]:
    """The actions of a plan.

    Args:
        plan: Numbers or names of actions; or a text with actions separated by commas, semicolons, full stops or new
            lines. Each is read as an answer: see `babyai.text.actions`.

    Raises:
        ValueError: One of them is not an action; the message says which.
    """
    if isinstance(plan, str):
        plan = [_BULLET.sub("", part) for part in _SEPARATORS.split(plan) if part.strip(" \t\r[]().")]
    if isinstance(plan, bytes) or not isinstance(plan, Sequence | np.ndarray):
        raise ValueError(f"a plan is a list of actions, or a text, not {plan!r}")
    actions = []
    for number, part in enumerate(plan, start=1):
        action = read_action(part) if isinstance(part, int | np.integer | str) else None
        if action is None:
            names = ", ".join(list_actions(done=True))
            raise ValueError(f"action {number} of the plan, {part!r}, is not an action; actions are {names}, or 0 to 6")
        actions.append(action)
    return actions


def copy_world(env: Any, index: int = 0) -> Engine:
    """An engine with a copy of one world, to try things in."""
    engine = find_engine(env)
    if find_world(engine, index).status == ENDED:
        raise RuntimeError(f"the episode of world {index} is over: call reset() before trying a plan")
    tried = Engine(engine.levels, rules=engine.rules, view_size=engine.view_size)
    tried.restore(0, engine.snapshot(index))
    return tried


def follow_plan(engine: Engine, plan: Sequence[Action]) -> PlanResult:
    """Takes the actions in the engine's first world, until the episode is over."""
    effects = []
    first_without_effect = None
    for action in plan:
        if engine.done[0]:
            break
        before = engine.worlds.copy()[0]
        engine.step([action])
        after = engine.worlds[0]
        effects.append(describe_effect(before, action, after))
        if first_without_effect is None and not has_effect(before, after):
            first_without_effect = len(effects) - 1
    world = engine.worlds[0]
    outcome = read_outcome(engine)
    return PlanResult(
        outcome=outcome,
        reward=float(engine.rewards[0]) if effects else 0.0,
        plan=tuple(plan),
        steps=len(effects),
        effects=tuple(effects),
        first_without_effect=first_without_effect,
        clauses=read_progress(world, outcome == "success"),
        position=position_of(world.agent),
        direction=int(world.agent_dir),
        carrying=name_object(TRIPLES[world.carrying]) if world.carrying else None,
    )


def read_outcome(engine: Engine, index: int = 0) -> Outcome:
    """How the episode of a world has ended, or that it is still being played."""
    if not engine.done[index]:
        return "playing"
    return "success" if engine.rewards[index] > 0 else "failure" if engine.terminated[index] else "timeout"


def read_progress(world: np.record, success: bool) -> tuple[tuple[str, bool], ...]:
    """The clauses of a mission, and whether the judge counts each as done.

    Args:
        world: World record.
        success: Whether the mission has succeeded.
    """
    mission = Mission.read(world)
    earlier = {SINGLE: None, AFTER: mission.second}.get(mission.order, mission.first)
    progress = []
    for number, side in ((0, mission.first), (2, mission.second)):
        side_done = success or (side is earlier and bool(world.first_side_done))
        for k, clause in enumerate(side, start=number):
            progress.append((str(clause), side_done or bool(world.clauses_done >> k & 1)))
    return tuple(progress)
