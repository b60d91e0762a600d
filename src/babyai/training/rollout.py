"""Rollouts: a policy plays T steps in N worlds, recorded as the batch that PPO learns from."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from babyai.agents.actor import ObservationPacker, choose_actions
from babyai.agents.compilation import compilable
from babyai.agents.cuda_graph import CudaGraphFunction
from babyai.agents.policy import State, copy_state, new_state, observation_kind, reset_state
from babyai.agents.precision import MixedPrecision
from babyai.batch import TILE_PIXELS, Batch, ObservationKind
from babyai.engine import Engine
from babyai.render.blit import blit_views, view_tiles
from babyai.tree import iter_named_leaves, tree_leaves, tree_map
from babyai.world.validation import check_last_actions


@dataclass
class Rollout:
    """T steps in N worlds.

    Attributes:
        batch: The steps, with log probabilities and values.
        states: The recurrent state before every `recurrence`-th step.
        last_values: (N,) float32, the critic's value after the last step.
        returns: Of the episodes that ended, in order of time.
        lengths: Of the same episodes.
    """

    batch: Batch
    states: list[State]
    last_values: np.ndarray
    returns: list[float]
    lengths: list[int]


class Collector:
    """A policy that plays the worlds of an engine, sampling its actions, and records what happens.

    Args:
        mixed: The policy, on its device; it acts in the mode it is in.
        engine: Worlds that have been reset.
        steps: T.
        recurrence: How often the recurrent state is recorded.
        seed: Random seed for sampling.
        cuda_graphs: Whether a GPU uses CUDA graphs and torch.compile.
        exact: See `CudaGraphFunction`.
    """

    def __init__(
        self,
        mixed: MixedPrecision,
        engine: Engine,
        steps: int,
        recurrence: int,
        *,
        seed: int = 0,
        cuda_graphs: bool = True,
        exact: bool = False,
    ) -> None:
        self.mixed = mixed
        self.engine = engine
        self.steps = steps
        self.recurrence = recurrence
        policy: nn.Module = mixed.model
        self.device = next(policy.parameters()).device
        count = engine.num_worlds
        self.state: State = new_state(policy, count)  # pyright: ignore[reportArgumentType]
        self._initial: State = new_state(policy, count)  # pyright: ignore[reportArgumentType]
        self.last_actions = torch.full((count,), -1, dtype=torch.long, device=self.device)
        self.starts = np.ones(count, dtype=bool)
        self.generator = np.random.default_rng(seed)
        self._previous = np.full(count, -1)
        # Of the episodes in progress.
        self._returns = np.zeros(count)
        self._lengths = np.zeros(count, dtype=np.int64)
        self._packer = ObservationPacker(count, self.device)
        self._step = CudaGraphFunction(
            self._act, self.device, self.mutated, enabled=cuda_graphs, compiled=True, exact=exact
        )
        self._copied = torch.cuda.Event() if self.device.type == "cuda" else None
        self._host = torch.empty((3, count), pin_memory=self._copied is not None)
        self._kind: ObservationKind = observation_kind(policy)
        side = engine.view_size * TILE_PIXELS
        self._images = np.empty((count, side, side, 3), dtype=np.uint8) if self._kind == "rgb" else engine.images

    def collect(self) -> Rollout:
        """Plays T steps."""
        steps = self.steps
        engine = self.engine
        count = engine.num_worlds
        # The initial state may be learned.
        copy_state(self._initial, self.mixed.model.initial_state(count))  # pyright: ignore[reportCallIssue]
        batch = Batch.empty(steps, count, self._kind, engine.view_size, log_probs=np.float32, values=np.float32)
        rollout = Rollout(batch, states=[], last_values=np.empty(count, dtype=np.float32), returns=[], lengths=[])
        uniforms = self.generator.random((steps + 1, count), dtype=np.float32)
        rows = np.arange(count)
        num_missions = count
        batch.missions[:count] = engine.missions
        for step in range(steps):
            if step % self.recurrence == 0:
                rollout.states.append(tree_map(torch.clone, self.state))
            pending = self._launch(uniforms[step])
            # While the device computes, the host records what it knows already.
            if step:
                num_missions = self._record_outcome(rollout, step - 1, rows, num_missions)
            self._record_observation(batch, step, rows)
            actions, batch.values[step], batch.log_probs[step] = self._wait(pending)
            batch.actions[step] = actions
            self._previous = actions
            engine.step(actions.astype(np.int64))
            self.starts = engine.reset_done()
        # The value after the last step; the policy sees this observation again at the start of the next rollout.
        state = tree_map(torch.clone, self.state)
        last_actions = self.last_actions.clone()
        pending = self._launch(uniforms[steps])
        copy_state(self.state, state)
        self.last_actions.copy_(last_actions)
        num_missions = self._record_outcome(rollout, steps - 1, rows, num_missions)
        rollout.last_values = self._wait(pending)[1]
        batch.missions = batch.missions[:num_missions]
        return rollout

    def _record_observation(self, batch: Batch, step: int, rows: np.ndarray) -> None:
        """Records what the worlds show before a step; rows: (N,), each world's row of the missions."""
        worlds = self.engine.worlds
        batch.images[step] = self._images
        batch.directions[step] = self.engine.directions
        batch.starts[step] = self.starts
        batch.mission_index[step] = rows
        batch.last_actions[step] = np.where(self.starts, -1, self._previous)
        batch.levels[step] = worlds["level"]
        batch.seeds[step] = worlds["seed"]

    def _record_outcome(self, rollout: Rollout, step: int, rows: np.ndarray, num_missions: int) -> int:
        """Records the result of a step, and the missions that start after it; returns how many there are by now."""
        engine = self.engine
        batch = rollout.batch
        batch.rewards[step] = engine.rewards
        batch.terminated[step] = engine.terminated
        batch.truncated[step] = engine.truncated
        self._returns += engine.rewards
        self._lengths += 1
        ended = np.flatnonzero(self.starts)
        if not len(ended):
            return num_missions
        rollout.returns += self._returns[ended].tolist()
        rollout.lengths += self._lengths[ended].tolist()
        self._returns[ended] = 0
        self._lengths[ended] = 0
        if step + 1 == self.steps:
            return num_missions
        rows[ended] = np.arange(num_missions, num_missions + len(ended))
        batch.missions[rows[ended]] = engine.missions[ended]
        return num_missions + len(ended)

    # ------------------------------------------------------------ acting

    def _launch(self, uniforms: np.ndarray) -> Tensor:
        """Starts a step of the policy; returns (3, N) actions, values, log probabilities, to be read after `_wait`."""
        engine = self.engine
        if self._kind == "rgb":
            blit_views(engine.images, *view_tiles(TILE_PIXELS), self._images, 0, engine.num_worlds)
        rows = self._packer.pack(self._images, engine.missions, engine.directions, self.starts, uniforms)
        with torch.no_grad():
            output = self._step(rows)
        if self._copied is None:
            return output
        self._host.copy_(output, non_blocking=True)
        self._copied.record()
        return self._host

    def _wait(self, output: Tensor) -> np.ndarray:
        if self._copied is not None:
            self._copied.synchronize()
        # The next step writes to the same memory.
        return output.numpy().copy()

    def _act(self, rows: Tensor) -> Tensor:
        observation, starts, uniforms = self._packer.unpack(rows, self.last_actions)
        with self.mixed.autocast():
            logits, values, state = self.mixed.compute(observation, reset_state(self.state, self._initial, starts))
        actions, output = sample_actions(logits.float(), values.float(), uniforms)
        copy_state(self.state, state)
        self.last_actions.copy_(actions)
        return output

    def mutated(self) -> list[Tensor]:
        """The tensors that a step changes in place; in training mode, batch normalization updates its buffers."""
        return [*tree_leaves(self.state), self.last_actions, *self.mixed.model.buffers(), *self.mixed.compute.buffers()]

    # ------------------------------------------------------------ checkpoints

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of a checkpoint, besides the worlds."""
        return dict(iter_named_leaves(self.state, "rollout.state")) | {"rollout.last_actions": self.last_actions}

    def state_dict(self) -> dict[str, Any]:
        """The rest of a checkpoint, as JSON."""
        return {
            "generator": self.generator.bit_generator.state,
            "starts": self.starts.tolist(),
            "returns": self._returns.tolist(),
            "lengths": self._lengths.tolist(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a checkpoint; tensors and worlds have been restored already."""
        self.generator.bit_generator.state = state["generator"]
        self.starts = np.array(state["starts"], dtype=bool)
        self._returns = np.array(state["returns"], dtype=float)
        self._lengths = np.array(state["lengths"], dtype=np.int64)
        self._previous = check_last_actions(self.last_actions.cpu().numpy()).copy()


@compilable
def sample_actions(logits: Tensor, values: Tensor, uniforms: Tensor) -> tuple[Tensor, Tensor]:
    """Sampled actions (N,), and what the host needs, (3, N): actions, values, log probabilities."""
    actions = choose_actions(logits, uniforms)
    log_probs = logits.log_softmax(1).gather(1, actions[:, None])[:, 0]
    return actions, torch.stack([actions.float(), values, log_probs])
