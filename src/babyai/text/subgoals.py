"""What a list of subgoals achieves: each is an instruction in the Baby Language, which the expert carries out."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch
from babyai.text.plan import PlanResult, copy_world, follow_plan
from babyai.world.codes import Action
from babyai.world.language import MissionError, parse_mission


@dataclass(frozen=True)
class SubgoalResult:
    """What a list of subgoals achieves."""

    result: PlanResult
    """What the expert's actions for the subgoals achieve, as one plan."""
    reached: int
    """How many of the subgoals were carried out, in their order."""
    problem: str | None
    """Why the next one could not be; None if all were, or if the mission was over before."""
    steps_left: int | None
    """How many more actions the expert needs to fulfill the mission: 0 after a success; None if it cannot."""

    @property
    def success(self) -> bool:
        """Whether the subgoals fulfill the mission."""
        return self.result.success


def check_subgoals(env: Any, subgoals: Sequence[str], index: int = 0) -> SubgoalResult:
    """Lets the expert carry out one subgoal after the other, in a copy of the world, which is not changed itself.

    Args:
        env: A babyai environment, single or vector, wrapped or not; or an engine.
        subgoals: Instructions, such as ["pick up the red key", "open the red door"]. Articles and places are
            understood as in the mission of an episode that starts where the subgoal before has ended.
        index: Number of the world, in a vector environment.

    Raises:
        MissionError: A subgoal is not in the Baby Language.
        RuntimeError: The environment has not been reset, or its episode is over.
    """
    if isinstance(subgoals, str):
        raise ValueError(f"expected a list of subgoals, not one text, {subgoals!r}; split it into instructions")
    for subgoal in subgoals:
        parse_mission(subgoal)
    tried = copy_world(env, index)
    plan: list[Action] = []
    reached = 0
    problem = None
    for subgoal in subgoals:
        if tried.done[0]:
            break
        actions, problem = _carry_out(tried, subgoal)
        if problem is not None:
            break
        follow_plan(tried, actions)
        plan += actions
        reached += 1
    result = follow_plan(copy_world(env, index), plan)
    return SubgoalResult(result, reached, problem, _count_steps_left(tried, result))


def _carry_out(engine: Engine, subgoal: str) -> tuple[list[Action], str | None]:
    """The expert's actions for a subgoal, or why there are none."""
    tried = copy_world(engine)
    try:
        tried.instruct(0, subgoal)
    except MissionError:
        raise
    except ValueError as error:
        return [], str(error)
    actions, lengths, rewards = ExpertBatch(tried, "teacher").demonstrate()
    if rewards[0] <= 0:
        return [], f"the expert cannot {subgoal!r} from here"
    return [Action(action) for action in actions[0, : lengths[0]].tolist()], None


def _count_steps_left(engine: Engine, result: PlanResult) -> int | None:
    if result.outcome != "playing":
        return 0 if result.success else None
    _, lengths, rewards = ExpertBatch(engine, "teacher").demonstrate()
    return int(lengths[0]) if rewards[0] > 0 else None
