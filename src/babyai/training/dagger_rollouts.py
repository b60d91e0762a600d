"""DAgger's roll-ins: the agent plays, and the expert labels every state it visits."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn

from babyai.agents.actor import Actor
from babyai.agents.device import Precision
from babyai.agents.policy import observation_kind
from babyai.batch import Batch, ObservationKind, concatenate_lanes
from babyai.demos.replay import Replay
from babyai.demos.sources import Mixture
from babyai.engine import Engine
from babyai.evaluation.players import draw_uniforms, evaluation_mode
from babyai.expert.expert import ExpertBatch
from babyai.levels.catalog import Level, Rules
from babyai.render.blit import rgb_views
from babyai.seeds import VALIDATION_SEED
from babyai.tree import iter_named_leaves
from babyai.world.validation import check_images, check_last_actions

# How often in a row a world may be reset because the expert has no advice.
MAX_ABANDONED = 1000


class LabeledRollouts:
    """The agent plays A worlds, and the expert labels each state with its own action.

    An episode in which the expert has no advice left is abandoned.

    Args:
        policy: On its device already. It acts in evaluation mode, so that what acts is what will be evaluated.
        count: A.
        levels: The levels to play.
        rules: "paper" or "minigrid".
        weights: Sampling weight of each level; default: equal.
        first_seed: Seed of the first episode; the others follow, and never reach the reserved seeds.
        seed: Random seed of the sequence of levels and of sampled actions.
        precision: The policy's precision.
        greedy: Play the argmax action, rather than sample from the policy.

    Attributes:
        frames: Number of labeled states.
    """

    def __init__(
        self,
        policy: nn.Module,
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
        self.model = policy
        self.count = count
        self.first_seed = first_seed
        self.seed = seed
        self.frames = 0
        device = next(policy.parameters()).device
        self.actor = Actor(policy, count, device=device, precision=precision, sample=not greedy)
        self.engine = Engine(levels, count, rules=rules)
        self._kind: ObservationKind = observation_kind(policy)
        self._mixture = Mixture(weights or [1.0] * len(levels), seed)
        self._num_started = 0
        self._starts = np.zeros(count, dtype=bool)
        self._last_actions = np.full(count, -1, dtype=np.int8)
        # Episodes since the last call of `metrics`: ended, succeeded, abandoned.
        self._tally = np.zeros(3, dtype=np.int64)
        self.engine.reset(first_seed)
        self.expert = ExpertBatch(self.engine, "teacher")
        self._start_episodes(np.ones(count, dtype=bool))

    def play(self, steps: int) -> Batch:
        """The next T steps of all worlds."""
        batch = Batch.empty(steps, self.count, self._kind, labels=np.uint8)
        rows = np.arange(self.count)
        num_missions = self.count
        with evaluation_mode(self):
            self.actor.update_weights()
            for step in range(steps):
                batch.labels[step] = self._label()
                started = np.flatnonzero(self._starts) if step else np.arange(self.count)
                if step:
                    rows[started] = num_missions + np.arange(len(started))
                    num_missions += len(started)
                batch.missions[rows[started]] = self.engine.missions[started]
                batch.mission_index[step] = rows
                self._step(batch, step)
        self.frames += steps * self.count
        batch.missions = batch.missions[:num_missions]
        return batch

    def metrics(self) -> dict[str, Any]:
        """Statistics of the episodes since the last call."""
        ended, succeeded, abandoned = self._tally.tolist()
        self._tally[:] = 0
        return {
            "labeled_frames": self.frames,
            "played_episodes": ended,
            "played_success": succeeded / max(1, ended),
            "abandoned_episodes": abandoned,
        }

    def _label(self) -> np.ndarray:
        """(A,) the expert's actions; worlds in which it has none have been reset."""
        for _ in range(MAX_ABANDONED):
            labels = self.expert.advise()
            lost = labels < 0
            if not lost.any():
                return labels
            self._tally[2] += np.count_nonzero(lost)
            self._start_episodes(lost)
        names = ", ".join(level.name for level in self.engine.levels)
        raise RuntimeError(f"the expert has no advice in {MAX_ABANDONED} episodes in a row; the levels are {names}")

    def _step(self, batch: Batch, step: int) -> None:
        """One step of all worlds, recorded."""
        engine = self.engine
        worlds = engine.worlds
        images = rgb_views(engine.images) if self._kind == "rgb" else engine.images
        uniforms = draw_uniforms(engine, self.seed) if self.actor.sample else None
        actions = self.actor.act(images, engine.missions, engine.directions, self._starts, uniforms)
        batch.images[step] = images
        batch.directions[step] = engine.directions
        batch.last_actions[step] = np.where(self._starts, -1, self._last_actions)
        batch.starts[step] = self._starts
        batch.actions[step] = actions
        batch.levels[step] = worlds["level"]
        batch.seeds[step] = worlds["seed"]
        engine.step(actions)
        batch.rewards[step] = engine.rewards
        batch.terminated[step] = engine.terminated
        batch.truncated[step] = engine.truncated
        self._last_actions[:] = actions
        self._starts[:] = False
        if engine.done.any():
            self._tally[:2] += np.count_nonzero(engine.done), np.count_nonzero(engine.rewards > 0)
            self._start_episodes(engine.done.copy())

    def _start_episodes(self, chosen: np.ndarray) -> None:
        """Starts the next episodes in the chosen worlds."""
        count = int(np.count_nonzero(chosen))
        seeds = np.zeros(self.count, dtype=np.int64)
        numbers = self._num_started + np.arange(count)
        seeds[chosen] = self.first_seed + numbers % (VALIDATION_SEED - self.first_seed)
        self._num_started += count
        self.engine.worlds.level[chosen] = self._mixture.take(count)
        self.engine.reset(seeds, chosen)
        self.expert.reset(chosen)
        self._starts |= chosen

    # ------------------------------------------------------------ checkpoints

    def state_dict(self) -> dict[str, Any]:
        """Where the worlds are, as JSON; weights are not part of it."""
        arrays = {name: base64.b64encode(array.tobytes()).decode() for name, array in self._arrays().items()}
        counts = {"started": self._num_started, "drawn": self._mixture.position, "frames": self.frames}
        return {"count": self.count, **arrays, **counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where others of the same levels and as many worlds were."""
        if state["count"] != self.count or not 0 <= state["started"] < VALIDATION_SEED:
            raise ValueError(f"the saved position has {state['count']} worlds, and these are {self.count}")
        saved = {
            name: np.frombuffer(base64.b64decode(state[name]), dtype=like.dtype).reshape(like.shape)
            for name, like in self._arrays().items()
        }
        for index, world in enumerate(saved["worlds"]):
            self.engine.restore(index, world.tobytes())
        # In some levels the first image differs from what the world would show later.
        self.engine.images[:] = check_images(saved["images"])
        self.expert.load_records(saved["experts"])
        self._starts[:] = saved["starts"]
        self._last_actions[:] = check_last_actions(saved["last_actions"])
        self._tally[:] = saved["tally"]
        self.actor.last_actions.copy_(torch.from_numpy(self._last_actions.astype(np.int64)))
        for name, tensor in iter_named_leaves(self.actor.state, "state"):
            tensor.copy_(torch.from_numpy(saved[name].copy()))
        self._num_started = state["started"]
        self._mixture.position = state["drawn"]
        self.frames = state["frames"]

    def _arrays(self) -> dict[str, np.ndarray]:
        recurrent = {name: tensor.cpu().numpy() for name, tensor in iter_named_leaves(self.actor.state, "state")}
        return recurrent | {
            "worlds": self.engine.worlds,
            "images": self.engine.images,
            "experts": self.expert.experts,
            "starts": self._starts,
            "last_actions": self._last_actions,
            "tally": self._tally,
        }


class DaggerBatches:
    """Endless batches whose first lanes are demonstrations and whose other lanes are the agent's roll-ins.

    Args:
        replay: The demonstrations; closed with this.
        rollouts: The roll-ins.
        buffer: Arrays to write to, in page-locked memory for instance; default: new ones each time.
    """

    def __init__(self, replay: Replay, rollouts: LabeledRollouts, buffer: Batch | None = None) -> None:
        self.replay = replay
        self.rollouts = rollouts
        self._buffer = buffer

    def __iter__(self) -> "DaggerBatches":
        return self

    def __next__(self) -> Batch:
        return concatenate_lanes([next(self.replay), self.rollouts.play(self.replay.steps)], self._buffer)

    def state_dict(self) -> dict[str, Any]:
        """The position after the last batch, as JSON."""
        return {"replay": self.replay.state_dict(), "rollouts": self.rollouts.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continues where others with the same source and as many lanes were."""
        self.replay.load_state_dict(state["replay"])
        self.rollouts.load_state_dict(state["rollouts"])

    def close(self) -> None:
        """Stops the replay's threads."""
        self.replay.close()
