"""An agent at play, and an expert that labels each state it comes to, as chunks beside demonstrations."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from babyai.agents.actor import Actor, observe_for
from babyai.agents.device import Precision
from babyai.demos.replay import Chunk, Replay
from babyai.demos.sources import RESERVED, Mixture
from babyai.engine import Engine
from babyai.evaluation.players import draw_uniforms, evaluation_mode
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import Level, Rules
from babyai.render.blit import rgb_views

# How often in a row a world may be given another mission because the expert knows no way.
MOST_ABANDONED = 1000


class LabeledPlay:
    """The agent at play in A worlds, and beside it the expert, which says what it would do.

    A mission that can no longer be carried out is abandoned, since there is no right action any more.

    Args:
        model: On its device already. It acts in evaluation mode, so that what acts is what will be judged.
        count: A.
        levels: What is played.
        rules: "paper" or "minigrid".
        weights: How often each level comes up; None: equally often.
        first_seed: Of the missions; the others follow. Those kept for validation and test are never reached.
        seed: Decides which level comes when, and what is drawn from the policy.
        precision: In which the model acts.
        greedy: Take the likeliest action, rather than draw one from the policy.

    Attributes:
        frames: How many states have been labeled.
    """

    def __init__(
        self,
        model: nn.Module,
        count: int,
        levels: Sequence[Level],
        *,
        rules: Rules = "paper",
        weights: Sequence[float] | None = None,
        first_seed: int = 0,
        seed: int = 0,
        precision: Precision = "float32",
        greedy: bool = False,
    ) -> None:
        self.model, self.count, self.first_seed, self.seed = model, count, first_seed, seed
        device = next(model.parameters()).device
        self.actor = Actor(model, count, device=device, precision=precision, sample=not greedy)
        self.engine, self.frames = Engine(levels, count, rules=rules), 0
        self._pixels = observe_for(model) == "rgb"
        self._mixture, self._begun = Mixture(weights or [1.0] * len(levels), seed), 0
        self._first = np.zeros(count, dtype=bool)
        # Episodes since they were last told of: ended, carried out, abandoned.
        self._tally = np.zeros(3, dtype=np.int64)
        self.engine.reset(first_seed)
        self.expert = ExpertBatch(self.engine, "teacher")
        self._begin(np.ones(count, dtype=bool))

    # ------------------------------------------------------------ play

    def fill(self, chunk: Chunk, lane: int) -> None:
        """Plays on, in the lanes of a chunk from number `lane` on.

        The chunk holds the missions of its other lanes already; the rows `lane`, `lane` + 1, ... are left for these.
        """
        self.actor.refresh()
        lanes, numbers = slice(lane, lane + self.count), lane + np.arange(self.count)
        with evaluation_mode(self):
            for step in range(len(chunk.first)):
                labels = self._label()
                new = np.flatnonzero(self._first) if step else np.arange(self.count)
                if step:
                    numbers[new] = chunk.count + np.arange(len(new))
                    chunk.count += len(new)
                self._copy_names(chunk, new, numbers[new])
                chunk.actions[step, lanes], chunk.mission_index[step, lanes] = labels, numbers
                self._act(chunk, (step, lanes))
        self.frames += len(chunk.first) * self.count

    def measures(self) -> dict[str, Any]:
        """What is to be told of the play since the last call."""
        ended, succeeded, abandoned = self._tally.tolist()
        self._tally[:] = 0
        told = {"labelled_frames": self.frames, "played_episodes": ended, "played_success": succeeded / max(1, ended)}
        return told | {"abandoned_episodes": abandoned}

    def _label(self) -> np.ndarray:
        """(A,) what the expert would do; where it could do nothing, another episode has begun."""
        for _ in range(MOST_ABANDONED):
            labels = self.expert.advise()
            lost = labels < 0
            if not lost.any():
                return labels
            self._tally[2] += np.count_nonzero(lost)
            self._begin(lost)
        names = ", ".join(level.name for level in self.engine.levels)
        raise RuntimeError(f"the expert found no way in {MOST_ABANDONED} missions in a row; the levels are {names}")

    def _act(self, chunk: Chunk, cells: tuple[int, slice]) -> None:
        """One step of all worlds, written down."""
        engine, first = self.engine, self._first
        images = rgb_views(engine.images) if self._pixels else engine.images
        chances = draw_uniforms(engine, self.seed) if self.actor.sample else None
        taken = self.actor.act(images, engine.missions, engine.directions, first, chances)
        chunk.images[cells], chunk.directions[cells], chunk.first[cells] = images, engine.directions, first
        assert chunk.taken is not None
        chunk.taken[cells] = taken
        engine.step(taken)
        first[:] = False
        if engine.done.any():
            self._tally[:2] += np.count_nonzero(engine.done), np.count_nonzero(engine.rewards > 0)
            self._begin(engine.done.copy())

    def _begin(self, chosen: np.ndarray) -> None:
        """Begins the next episodes, in the chosen worlds."""
        count = int(np.count_nonzero(chosen))
        seeds = np.zeros(self.count, dtype=np.int64)
        seeds[chosen] = self.first_seed + (self._begun + np.arange(count)) % (RESERVED - self.first_seed)
        self._begun += count
        self.engine.worlds.level[chosen] = self._mixture.take(count)
        self.engine.reset(seeds, chosen)
        self.expert.begin(chosen)
        self._first |= chosen

    def _copy_names(self, chunk: Chunk, lanes: np.ndarray, numbers: np.ndarray) -> None:
        worlds = self.engine.worlds
        chunk.mission_table[numbers] = self.engine.missions[lanes]
        chunk.levels[numbers], chunk.seeds[numbers] = worlds["level"][lanes], worlds["seed"][lanes]

    # ------------------------------------------------------------ positions

    def state_dict(self) -> dict[str, Any]:
        """Where it stands, in the types of JSON; weights are not part of it."""
        arrays = {name: base64.b64encode(array.tobytes()).decode() for name, array in self._arrays().items()}
        counts = {"begun": self._begun, "drawn": self._mixture.position, "frames": self.frames}
        return {"count": self.count, **arrays, **counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where another one was, of the same levels and as many worlds."""
        if state["count"] != self.count:
            raise ValueError(f"this position is one of {state['count']} worlds, and here are {self.count}")
        kept = {
            name: np.frombuffer(base64.b64decode(state[name]), dtype=like.dtype).reshape(like.shape)
            for name, like in self._arrays().items()
        }
        for index, world in enumerate(kept["worlds"]):
            self.engine.restore(index, world.tobytes())
        # In some levels the first thing seen is not what the world would show.
        self.engine.images[:], self._first[:] = kept["images"], kept["first"]
        self.expert.experts[:] = kept["experts"]
        self.actor.memory.copy_(torch.from_numpy(kept["memory"].copy()))
        self.actor.last_actions.copy_(torch.from_numpy(kept["last_actions"].copy()))
        self._begun, self._mixture.position, self.frames = state["begun"], state["drawn"], state["frames"]

    def _arrays(self) -> dict[str, np.ndarray]:
        return {
            "worlds": self.engine.worlds,
            "images": self.engine.images,
            "experts": self.expert.experts,
            "first": self._first,
            "memory": self.actor.memory.cpu().numpy(),
            "last_actions": self.actor.last_actions.cpu().numpy(),
        }


class MixedChunks:
    """Chunks without end, of which the first lanes are demonstrations, and the others the agent's own play.

    Args:
        replay: The demonstrations; closed with this.
        play: The agent.
        chunk: Arrays to fill, in page-locked memory for instance; None: own ones. They are used again each time.
    """

    def __init__(self, replay: Replay, play: LabeledPlay, chunk: Chunk | None = None) -> None:
        self.replay, self.play = replay, play
        self.chunk = chunk or Chunk.empty(replay.steps, replay.lanes + play.count, kind=replay.kind)
        self.chunk.taken = np.empty_like(self.chunk.actions)

    def __next__(self) -> Chunk:
        shown, chunk, lanes = next(self.replay), self.chunk, self.replay.lanes
        assert chunk.taken is not None
        for name in ("images", "directions", "actions", "first"):
            getattr(chunk, name)[:, :lanes] = getattr(shown, name)
        chunk.taken[:, :lanes] = shown.actions
        # The missions of the first step come first, and the agent's are among them.
        rows = np.arange(shown.count)
        rows[lanes:] += self.play.count
        for name in ("mission_table", "levels", "seeds"):
            getattr(chunk, name)[rows] = getattr(shown, name)[: shown.count]
        chunk.mission_index[:, :lanes] = rows[shown.mission_index]
        chunk.count = shown.count + self.play.count
        self.play.fill(chunk, lanes)
        return chunk

    def state_dict(self) -> dict[str, Any]:
        """Where the last chunk ended, in the types of JSON."""
        return {"replay": self.replay.state_dict(), "play": self.play.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to where others stood, with the same source and as many lanes."""
        self.replay.load_state_dict(state["replay"])
        self.play.load_state_dict(state["play"])

    def close(self) -> None:
        """Ends all threads."""
        self.replay.close()
