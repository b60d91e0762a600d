"""An agent that watches a game: the probabilities of its actions, its value estimate, its attention, its map."""

import re
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from babyai.demos.record import Recorder
from babyai.engine import Engine
from babyai.render.blit import rgb_views
from babyai.web.cell_text import TEXT_BY_CELL, text_rows
from babyai.world.codes import VOCABULARY, Action

if TYPE_CHECKING:
    from torch import nn

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# How many of the last value estimates the page gets.
MAX_VALUES = 300


class Mind:
    """Follows an episode with an agent's recurrent state.

    Args:
        model: The policy, in evaluation mode.
    """

    def __init__(self, model: "nn.Module") -> None:
        self._model: Any = model
        self._pixels = bool(getattr(model, "pixels", False))
        self.forget()

    def forget(self) -> None:
        """Forgets the episode so far: the next state is the first of another one."""
        self._state: Any = None
        self._values: list[float] = []
        self._probs = np.zeros(len(Action))
        self._attention: list[tuple[str, float]] = []

    def follow(self, recorder: Recorder) -> dict[str, Any]:
        """What the agent thinks of the current state; its memory is that of the whole episode, whoever has played."""
        actions = recorder.actions
        seen = len(self._values)
        if seen > len(actions) + 1 or seen < len(actions):
            # After an undo, the memory is built again from the states of the episode.
            self.forget()
            past = Engine(recorder.level, rules=recorder.rules)
            for step, snapshot in enumerate(recorder.snapshots):
                past.restore(0, snapshot)
                self._observe(past, actions[step - 1] if step else -1)
        if len(self._values) == len(actions):
            self._observe(recorder.engine, actions[-1] if actions else -1)
        return {
            "probs": {action.name: round(float(self._probs[action]), 4) for action in Action},
            "values": [round(value, 4) for value in self._values[-MAX_VALUES:]],
            "attention": self._attention,
            "map": self._draw_map(),
        }

    @property
    def choice(self) -> int:
        """The most probable action."""
        return int(self._probs.argmax())

    def _observe(self, engine: Engine, last_action: int) -> None:
        """Takes in one state."""
        import torch

        from babyai.agents.policy import new_state

        if self._state is None:
            self._state = new_state(self._model, 1)
        words = int(np.count_nonzero(engine.missions[0]))
        images = rgb_views(engine.images) if self._pixels else engine.images.copy()
        observation = {
            "image": torch.from_numpy(images),
            "mission": torch.from_numpy(engine.missions[:, :words].copy()),
            "direction": torch.from_numpy(engine.directions.copy()),
            "last_action": torch.tensor([last_action]),
        }
        with torch.no_grad():
            self._attention = self._attend(observation["mission"])
            logits, value, self._state = self._model(observation, self._state)
        self._probs = logits[0].float().softmax(0).numpy()
        self._values.append(float(value[0]))

    def _attend(self, tokens: Any) -> list[tuple[str, float]]:
        """Each word of the mission with its weight; empty for agents without attention."""
        import torch

        if not getattr(getattr(self._model, "config", None), "attention", False):
            return []
        encoder = self._model.instruction_encoder
        weights = encoder.attention_weights(encoder(tokens), tokens, torch.cat(tuple(self._state), 1))
        return [
            (VOCABULARY[token], round(weight, 4))
            for token, weight in zip(tokens[0].tolist(), weights[0].tolist(), strict=True)
        ]

    def _draw_map(self) -> dict[str, Any] | None:
        """The map of an agent that draws one: its cells as text, and where the agent is; the start faced up."""
        from babyai.agents.map.memory import Memory
        from babyai.agents.map.picture import map_cells

        if not isinstance(self._state, Memory):
            return None
        cells, (x, y, heading) = map_cells(self._state)
        return {"grid": text_rows(TEXT_BY_CELL[cells]), "agent": [x, y, heading]}


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
    if not path.resolve().is_relative_to(folder.resolve()):
        raise ValueError(f"{path} leads out of the folder {folder}")
    try:
        from babyai.agents.checkpoint import find_checkpoint

        checkpoint = find_checkpoint(path)
        return Mind(_load(checkpoint, checkpoint.stat().st_mtime_ns))
    except FileNotFoundError as error:
        raise ValueError(str(error)) from None
    except ModuleNotFoundError:
        raise ValueError("watching an agent needs torch: pip install 'babyai[agents]'") from None


@lru_cache(maxsize=4)
def _load(checkpoint: Path, _changed: int) -> "nn.Module":
    """The policy in a checkpoint; several sessions can share it, because acting does not change it."""
    from babyai.agents.checkpoint import load_policy

    return load_policy(checkpoint)[0].eval()
