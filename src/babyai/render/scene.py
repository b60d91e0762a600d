"""A scene: everything that a picture, a terminal or a notebook shows of one moment of an episode."""

from dataclasses import dataclass

import numpy as np

from babyai.engine import Engine
from babyai.text.plan import Outcome, read_outcome
from babyai.text.view import name_object
from babyai.world.codes import TRIPLES, Action
from babyai.world.language import detokenize


@dataclass(frozen=True, eq=False)
class Scene:
    """One moment of an episode, independent of the engine that it was taken from."""

    world: np.record
    """The world record, a copy."""
    view: np.ndarray
    """(n, n, 3) uint8, the agent's symbolic view, a copy."""
    mission: str
    """The mission in English."""
    level: str
    """The level's name."""
    action: Action | None = None
    """The action that led here; None at the start."""
    outcome: Outcome = "playing"
    """Whether the episode goes on, or how it ended."""
    reward: float = 0.0
    """The reward of the last action."""

    @property
    def seed(self) -> int:
        """Random seed of the episode."""
        return int(self.world.seed)

    @property
    def step(self) -> int:
        """Number of actions taken."""
        return int(self.world.step_count)

    @property
    def max_steps(self) -> int:
        """Time limit of the episode."""
        return int(self.world.max_steps)

    @property
    def carried(self) -> str:
        """The carried object with its article, or "nothing"."""
        return name_object(TRIPLES[self.world.carrying]) if self.world.carrying else "nothing"

    @property
    def verdict(self) -> str:
        """The judge's verdict in a few words; empty while the episode goes on."""
        success = f"success, reward {self.reward:.2f}"
        return {"playing": "", "success": success, "failure": "failed", "timeout": "out of steps"}[self.outcome]


def take_scene(engine: Engine, index: int = 0, action: int | None = None) -> Scene:
    """The current moment of one of the engine's worlds.

    Args:
        engine: The engine, after a reset or a step.
        index: The world.
        action: The action that led here, if any.
    """
    return Scene(
        world=engine.worlds[index : index + 1].copy()[0],
        view=engine.images[index].copy(),
        mission=detokenize(engine.missions[index]),
        level=engine.levels[engine.worlds[index].level].name,
        action=None if action is None else Action(action),
        outcome=read_outcome(engine, index),
        reward=float(engine.rewards[index]) if engine.done[index] else 0.0,
    )
