"""What agents decide: one forward pass for the games of several sessions; runs in the processes of `agent_pool.py`."""

import pickle
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from babyai.render.blit import rgb_views
from babyai.tree import tree_map
from babyai.web.cell_text import TEXT_BY_CELL, text_rows
from babyai.world.codes import VOCABULARY

# How many agents are kept in memory; others are read again when they are needed.
MAX_AGENTS = 8


class Checkpoint(NamedTuple):
    """An agent as it was when it was chosen."""

    path: Path
    changed: int
    """When the file was written, in nanoseconds."""


class Situation(NamedTuple):
    """What an agent decides on: one state of a game."""

    image: np.ndarray
    """(7, 7, 3) uint8"""
    mission: np.ndarray
    """(72,) uint8 token ids"""
    direction: int
    last_action: int
    """-1 at the start of the episode"""
    memory: bytes | None
    """`Decision.memory` of the state before; None at the start of the episode."""


class Decision(NamedTuple):
    """What an agent makes of a situation."""

    probs: list[float]
    """Of the seven actions."""
    value: float
    attention: list[tuple[str, float]]
    """Each word of the mission with its weight; empty for agents without attention."""
    map: dict[str, Any] | None
    """The map of an agent that draws one: its cells as text, and where the agent is; the start faced up."""
    memory: bytes
    """The recurrent state afterwards, pickled, because unpickling it imports torch, which the server does without."""


def import_torch() -> None:
    """Imports what loading an agent needs, which takes seconds."""
    import babyai.agents.checkpoint  # noqa: F401


def find_agent(path: Path) -> Checkpoint:
    """Loads the agent of a checkpoint or a run; returns which one it is.

    Raises:
        ValueError: It cannot be loaded.
        FileNotFoundError: There is none.
        ModuleNotFoundError: Torch is not installed.
    """
    from babyai.agents.checkpoint import find_checkpoint

    file = find_checkpoint(path)
    checkpoint = Checkpoint(file, file.stat().st_mtime_ns)
    _load(checkpoint)
    return checkpoint


@lru_cache(maxsize=MAX_AGENTS)
def _load(checkpoint: Checkpoint) -> Any:
    """The policy; loading never runs code that a checkpoint names."""
    from babyai.agents.checkpoint import load_policy

    file, changed = checkpoint
    # A run that is being trained replaces its checkpoints.
    if not file.is_file() or file.stat().st_mtime_ns != changed:
        raise ValueError(f"{file} has changed since this agent was chosen; choose it again")
    return load_policy(file)[0].eval()


def decide(checkpoint: Checkpoint, situations: list[Situation]) -> list[Decision]:
    """The decisions of one agent in several games, which are those it would make in each of them alone."""
    import torch

    model = _load(checkpoint)
    observation = _stack(situations, bool(getattr(model, "pixels", False)))
    with torch.inference_mode():
        memory = _join([each.memory for each in situations], model)
        attention = _attend(model, observation["mission"], memory)
        logits, values, memory = model(observation, memory)
        probs = logits.float().softmax(1).tolist()
    lanes = range(len(situations))
    memories = [pickle.dumps(tree_map(lambda leaf, k=k: leaf[k : k + 1].numpy(), memory)) for k in lanes]
    maps = [_draw_map(memory, k) for k in lanes]
    return [Decision(*each) for each in zip(probs, values.tolist(), attention, maps, memories, strict=True)]


def _stack(situations: list[Situation], pixels: bool) -> dict[str, Any]:
    """The observation of several lanes."""
    import torch

    images = np.stack([each.image for each in situations])
    missions = np.stack([each.mission for each in situations])
    words = max(1, int(np.count_nonzero(missions.any(0))))
    return {
        "image": torch.from_numpy(rgb_views(images) if pixels else images),
        "mission": torch.from_numpy(missions[:, :words].copy()),
        "direction": torch.tensor([each.direction for each in situations]),
        "last_action": torch.tensor([each.last_action for each in situations]),
    }


def _join(memories: list[bytes | None], model: Any) -> Any:
    """The recurrent state of several lanes."""
    import torch

    from babyai.agents.policy import new_state

    first = tree_map(lambda leaf: leaf.numpy(), new_state(model, 1))
    lanes = [first if memory is None else pickle.loads(memory) for memory in memories]
    return tree_map(lambda *leaves: torch.from_numpy(np.concatenate(leaves)), *lanes)


def _attend(model: Any, tokens: Any, memory: Any) -> list[list[tuple[str, float]]]:
    """For each lane, each word with its weight."""
    import torch

    if not getattr(getattr(model, "config", None), "attention", False):
        return [[] for _ in tokens]
    encoder = model.instruction_encoder
    weights = encoder.attention_weights(encoder(tokens), tokens, torch.cat(tuple(memory), 1))
    return [
        [(VOCABULARY[token], round(weight, 4)) for token, weight in zip(*lane, strict=True) if token]
        for lane in zip(tokens.tolist(), weights.tolist(), strict=True)
    ]


def _draw_map(memory: Any, lane: int) -> dict[str, Any] | None:
    from babyai.agents.map.memory import Memory
    from babyai.agents.map.picture import map_cells

    if not isinstance(memory, Memory):
        return None
    cells, (x, y, heading) = map_cells(memory, lane)
    return {"grid": text_rows(TEXT_BY_CELL[cells]), "agent": [x, y, heading]}
