"""An agent that watches a game: the probabilities of its actions, its value estimate, its attention, its map."""

import re
from pathlib import Path
from typing import Any

from babyai.demos.record import Recorder
from babyai.engine import Engine
from babyai.web.agent_pool import agent_pool
from babyai.web.decisions import Checkpoint, Decision, Situation
from babyai.world.codes import Action

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# How many of the last value estimates the page gets.
MAX_VALUES = 300
# How many steps can be undone without replaying the whole episode.
MAX_KEPT = 50


class Mind:
    """Follows an episode with an agent's recurrent state.

    Args:
        checkpoint: The agent.
    """

    def __init__(self, checkpoint: Checkpoint) -> None:
        self._checkpoint = checkpoint
        self.forget()

    def forget(self) -> None:
        """Forgets the episode so far: the next state is the first of another one."""
        # One for each state of the episode, and the last decisions.
        self._values: list[float] = []
        self._decisions: list[Decision] = []

    def follow(self, recorder: Recorder, *, urgent: bool = True) -> dict[str, Any]:
        """What the agent thinks of the current state; its memory is that of the whole episode, whoever has played.

        Args:
            recorder: The episode.
            urgent: Whether somebody has pressed a key and waits for the answer.
        """
        actions = recorder.actions
        self._undo(len(self._values) - len(actions) - 1)
        if len(self._values) < len(actions):
            past = Engine(recorder.level, rules=recorder.rules)
            for step, snapshot in list(enumerate(recorder.snapshots))[len(self._values) :]:
                past.restore(0, snapshot)
                self._observe(past, actions[step - 1] if step else -1, urgent)
        if len(self._values) == len(actions):
            self._observe(recorder.engine, actions[-1] if actions else -1, urgent)
        decision = self._decisions[-1]
        return {
            "probs": {action.name: round(decision.probs[action], 4) for action in Action},
            "values": [round(value, 4) for value in self._values[-MAX_VALUES:]],
            "attention": decision.attention,
            "map": decision.map,
        }

    @property
    def choice(self) -> int:
        """The most probable action."""
        probs = self._decisions[-1].probs
        return probs.index(max(probs))

    def _undo(self, steps: int) -> None:
        """Forgets the last steps, or everything if what came before them is no longer known."""
        if steps >= len(self._decisions):
            self.forget()
        elif steps > 0:
            del self._values[-steps:]
            del self._decisions[-steps:]

    def _observe(self, engine: Engine, last_action: int, urgent: bool) -> None:
        """Takes in one state."""
        memory = self._decisions[-1].memory if self._decisions else None
        situation = Situation(
            engine.images[0].copy(), engine.missions[0].copy(), int(engine.directions[0]), last_action, memory
        )
        decision = agent_pool().decide(self._checkpoint, situation, urgent=urgent)
        self._values.append(decision.value)
        self._decisions = [*self._decisions[1 - MAX_KEPT :], decision]


# ------------------------------------------------------------ agents in a folder


def list_agents(folder: Path) -> list[str]:
    """The names of the agents and runs in a folder."""
    if not folder.is_dir():
        return []
    return sorted(path.name for path in folder.iterdir() if NAME.fullmatch(path.name) and _holds_agent(path))


def _holds_agent(path: Path) -> bool:
    """Whether this is the folder of an agent or a run; found without torch, whose import takes seconds."""
    return (path / "model.safetensors").is_file() or any(path.glob("checkpoints/*/model.safetensors"))


def load_mind(folder: Path, name: Any) -> Mind:
    """The agent of this name in the folder; a name cannot lead out of it, and loading never runs code.

    Raises:
        ValueError: There is no such agent, or it cannot be loaded.
    """
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ValueError(f"an agent's name has 1 to 128 letters, digits, dots, - and _; got {str(name)[:80]!r}")
    path = folder / name
    _check_inside(path, folder)
    checkpoint = agent_pool().find_agent(path)
    # The checkpoints of a run may be links, too.
    _check_inside(checkpoint.path, folder)
    return Mind(checkpoint)


def _check_inside(path: Path, folder: Path) -> None:
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} leads out of the folder {folder}")
