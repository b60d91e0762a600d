"""One player's game: a world, the actions so far, and what the page shows of them. No network in here."""

from pathlib import Path
from typing import Any

import numpy as np

from babyai.demos.record import Recorder
from babyai.expert.expert import Expert, UnsolvableError
from babyai.levels.layout import cell_text, grid_cells
from babyai.render.frame import visible_cells
from babyai.render.scene import Scene, take_scene
from babyai.text.view import describe_view
from babyai.web.cell_text import TEXT_BY_CELL, TEXT_BY_TRIPLE, text_rows
from babyai.web.mind import Mind
from babyai.world.codes import Action
from babyai.world.state import position_of


class Game:
    """An episode that a person plays, with undo, missions of their own, and help from the expert.

    Args:
        level: Level's name.
        seed: Random seed of the episode.
        mission: A mission in the Baby Language; default: the level's own.
    """

    def __init__(self, level: str, seed: int, mission: str | None = None) -> None:
        self.recorder = Recorder(level, seed)
        self.own_mission = False
        self.helped = False
        self.saved = False
        self._expert: Expert | None = None
        self._plan: list[str] = []
        self._mind: Mind | None = None
        if mission is not None:
            self.instruct(mission)

    @property
    def success(self) -> bool:
        """Whether the episode has ended successfully."""
        return self.recorder.success

    def act(self, action: int) -> None:
        """Takes an action; does nothing if the episode is over."""
        if self.recorder.done:
            return
        # The expert must know every action in order to go on from any state.
        if self._expert is not None:
            try:
                self._advise()
            except UnsolvableError:
                self._expert = None
        self.recorder.act(action)

    def undo(self) -> bool:
        """Undoes the last action; returns False if there is none."""
        self._expert = None
        self._plan = []
        return self.recorder.undo()

    def instruct(self, mission: str) -> None:
        """Starts a new episode in the world as it is now, with another mission.

        Raises:
            ValueError: The sentence is not in the Baby Language, or does not fit this world.
        """
        self.recorder.engine.instruct(0, mission)
        self.recorder.forget()
        self.own_mission = True
        self.saved = False
        self._expert = None
        self._plan = []
        if self._mind is not None:
            self._mind.forget()

    def let_expert_act(self) -> None:
        """Takes the action that the expert advises.

        Raises:
            UnsolvableError: There is none.
        """
        if not self.recorder.done:
            self.recorder.act(self._advise())
            self.helped = True

    def watch_with(self, mind: Mind | None) -> None:
        """Shows what an agent thinks from now on; None shows no agent."""
        self._mind = mind

    def let_agent_act(self) -> None:
        """Takes the most probable action of the agent that watches.

        Raises:
            ValueError: No agent watches.
        """
        if self._mind is None:
            raise ValueError("no agent has been chosen")
        if not self.recorder.done:
            self._mind.follow(self.recorder, urgent=False)
            self.act(self._mind.choice)
            self.helped = True

    def _advise(self) -> int:
        """The expert's advice in the current state."""
        recorder = self.recorder
        if self._expert is None:
            self._expert = Expert(recorder.engine)
            advice = self._expert.advise()
        else:
            advice = self._expert.advise(recorder.actions[-1] if recorder.actions else None)
        self._plan = self._expert.plan()
        return advice

    def save(self, path: Path, person: str) -> int:
        """Appends the finished episode to a file of demonstrations, once; returns the file's number of rows.

        Raises:
            ValueError: The mission is not the one that level and seed give, so replaying would not reproduce it; or the
                expert or an agent has played a part of it, so it is not a person's.
        """
        if self.helped:
            raise ValueError("not recorded: the expert or an agent has played a part of it")
        if self.own_mission:
            raise ValueError("not recorded: a demonstration is a seed and actions, and your own mission is in neither")
        rows = self.recorder.save(path, person)
        self.saved = True
        return rows

    def state(self, *, urgent: bool = True) -> dict[str, Any]:
        """What the page shows.

        Args:
            urgent: Whether somebody has pressed a key. Those who only watch an agent let it pass.
        """
        actions = self.recorder.actions
        scene = take_scene(self.recorder.engine, action=actions[-1] if actions else None)
        page = {"type": "state", "own_mission": self.own_mission, "can_undo": bool(actions), "mind": None}
        if self._mind is not None:
            try:
                page["mind"] = self._mind.follow(self.recorder, urgent=urgent)
            except ValueError as problem:
                # The game goes on without the agent.
                page["note"] = str(problem)
        return page | {"plan": self._plan} | describe_scene(scene)


def describe_scene(scene: Scene) -> dict[str, Any]:
    """A scene as JSON types; cells are pairs of characters, as in layouts."""
    world = scene.world
    x, y = position_of(world.agent)
    return {
        "level": scene.level,
        "seed": scene.seed,
        "mission": scene.mission,
        "step": scene.step,
        "max_steps": scene.max_steps,
        "action": None if scene.action is None else scene.action.name,
        "carrying": cell_text(world.carrying) if world.carrying else None,
        "carried": scene.carried,
        "outcome": scene.outcome,
        "verdict": scene.verdict,
        "reward": scene.reward,
        "agent": [x, y, int(world.agent_dir)],
        "grid": text_rows(TEXT_BY_CELL[grid_cells(world)]),
        "visible": text_rows(np.where(visible_cells(world, scene.view), b"1", b"0")),
        # From the farthest row to the agent's own.
        "view": text_rows(TEXT_BY_TRIPLE[tuple(scene.view.transpose(2, 1, 0))]),
        "description": describe_view(scene.view),
    }


def check_action(action: Any) -> int:
    """The action as an int.

    Raises:
        ValueError: It is not the number or the name of an action.
    """
    if isinstance(action, str) and action in Action.__members__:
        return int(Action[action])
    if isinstance(action, int) and not isinstance(action, bool) and 0 <= action < len(Action):
        return action
    names = ", ".join(each.name for each in Action)
    raise ValueError(f"unknown action {action!r}; expected 0..{len(Action) - 1} or one of {names}")
