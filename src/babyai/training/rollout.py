"""What an agent lived through: T steps in N worlds, as the chunk that learning eats, and what came of it."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from babyai.agents.actor import Packer, draw_actions, observe_for
from babyai.agents.captured import Captured, compile_part
from babyai.agents.unroll import Unroller
from babyai.demos.replay import TILE_PIXELS, Chunk
from babyai.engine import Engine
from babyai.render.blit import blit_views, view_tiles
from babyai.training.turns import Turns, finish


@dataclass
class Rollout:
    """T steps in N worlds.

    Attributes:
        chunk: What was seen, told and done.
        last_actions: (T, N) int8, what was done on the step before; -1 where an episode begins.
        rewards: (T, N) float32, as the world gave them.
        ended: (T, N) bool, where the step was an episode's last.
        values: (T + 1, N) float32, what the critic expected before each step, and after the last one.
        log_probs: (T, N) float32, of the actions that were done.
        memories: Every so many steps, the (N, D) memory before the step.
        returns, lengths: Of the episodes that ended, in the order of time.
    """

    chunk: Chunk
    last_actions: np.ndarray
    rewards: np.ndarray
    ended: np.ndarray
    values: np.ndarray
    log_probs: np.ndarray
    memories: list[Tensor]
    returns: list[float]
    lengths: list[int]


class Collector:
    """A model that acts in the worlds of an engine, drawing its actions, and remembers all of it.

    Args:
        model: On its device; it acts in the mode it is in.
        engine: Worlds, reset once already.
        steps: T.
        recurrence: How often memories are kept.
        seed: Decides what is drawn.
        fast: Compile and record on a GPU.
        exact: See `Captured`.
    """

    def __init__(
        self,
        model: nn.Module,
        engine: Engine,
        steps: int,
        recurrence: int,
        *,
        seed: int = 0,
        fast: bool = True,
        exact: bool = False,
    ) -> None:
        self.model, self.engine, self.steps, self.recurrence = model, engine, steps, recurrence
        self.device = next(model.parameters()).device
        count, on_gpu = engine.num_worlds, fast and self.device.type == "cuda"
        self.memory: Tensor = model.initial_memory(count, self.device)  # pyright: ignore[reportCallIssue]
        self.last_actions = torch.full((count,), -1, dtype=torch.long, device=self.device)
        self.first = np.ones(count, dtype=bool)
        self.generator = np.random.default_rng(seed)
        self._before = np.full(count, -1)
        self._episode = np.zeros(count), np.zeros(count, dtype=np.int64)
        self._packer, self._unroll = Packer(count, self.device), Unroller(model, compiled=on_gpu)
        self._draw = compile_part(draw_and_tell) if on_gpu else draw_and_tell
        self._act = Captured(self._decide, self.device, self._changes, enabled=fast, exact=exact)
        self._answered = torch.cuda.Event() if self.device.type == "cuda" else None
        self._answer = torch.empty((3, count), pin_memory=self._answered is not None)
        self._pixels = observe_for(model) == "rgb"
        side = engine.view_size * TILE_PIXELS
        self._frames = np.empty((count, side, side, 3), dtype=np.uint8) if self._pixels else engine.images

    def collect(self) -> Rollout:
        """Plays T steps."""
        return finish(self.collecting())

    def collecting(self) -> Turns[Rollout]:
        """Plays T steps, giving way whenever the device has something to do first."""
        steps, count = self.steps, self.engine.num_worlds
        rollout = Rollout(
            chunk=Chunk.empty(steps, count, self.engine.view_size, "rgb" if self._pixels else "symbolic"),
            last_actions=np.empty((steps, count), dtype=np.int8),
            rewards=np.empty((steps, count), dtype=np.float32),
            ended=np.empty((steps, count), dtype=bool),
            values=np.empty((steps + 1, count), dtype=np.float32),
            log_probs=np.empty((steps, count), dtype=np.float32),
            memories=[],
            returns=[],
            lengths=[],
        )
        chances = self.generator.random((steps + 1, count), dtype=np.float32)
        numbers = np.arange(count)
        rollout.chunk.count = count
        rollout.chunk.mission_table[:count] = self.engine.missions
        for step in range(steps):
            if step % self.recurrence == 0:
                rollout.memories.append(self.memory.clone())
            decided = self._decide_soon(chances[step])
            # While the device decides, the host notes what it has seen so far.
            if step:
                self._note_outcome(rollout, step - 1, numbers)
            self._note_seen(rollout, step, numbers)
            yield
            actions, rollout.values[step], rollout.log_probs[step] = self._decided(decided)
            rollout.chunk.actions[step] = self._before = actions
            self.engine.step(actions.astype(np.int64))
            self.first = self.engine.reset_done()
        # What the critic expects after the last step; the agent sees that again when it goes on.
        before = self.memory.clone(), self.last_actions.clone()
        decided = self._decide_soon(chances[steps])
        self.memory.copy_(before[0])
        self.last_actions.copy_(before[1])
        self._note_outcome(rollout, steps - 1, numbers)
        yield
        rollout.values[steps] = self._decided(decided)[1]
        return rollout

    def _note_seen(self, rollout: Rollout, step: int, numbers: np.ndarray) -> None:
        """Keeps what the worlds show before a step; numbers: (N,), which of the chunk's missions holds."""
        chunk = rollout.chunk
        chunk.images[step], chunk.directions[step], chunk.first[step] = self._frames, self.engine.directions, self.first
        chunk.mission_index[step] = numbers
        rollout.last_actions[step] = np.where(self.first, -1, self._before)

    def _note_outcome(self, rollout: Rollout, step: int, numbers: np.ndarray) -> None:
        """Keeps what came of a step, and the missions that begin after it."""
        engine, chunk = self.engine, rollout.chunk
        rollout.rewards[step], rollout.ended[step] = engine.rewards, self.first
        returns, lengths = self._episode
        returns += engine.rewards
        lengths += 1
        over = np.flatnonzero(self.first)
        if len(over):
            rollout.returns += returns[over].tolist()
            rollout.lengths += lengths[over].tolist()
            returns[over], lengths[over] = 0, 0
            if step + 1 < self.steps:
                numbers[over] = np.arange(chunk.count, chunk.count + len(over))
                chunk.mission_table[numbers[over]] = engine.missions[over]
                chunk.count += len(over)

    def _decide_soon(self, chances: np.ndarray) -> Tensor:
        """Starts to decide; (3, N), which may not be read before `_decided`: actions, values, log probabilities."""
        engine = self.engine
        if self._pixels:
            blit_views(engine.images, *view_tiles(TILE_PIXELS), self._frames, 0, engine.num_worlds)
        rows = self._packer.pack(self._frames, engine.missions, engine.directions, self.first, chances)
        with torch.no_grad():
            answer = self._act(rows)
        if self._answered is None:
            return answer
        self._answer.copy_(answer, non_blocking=True)
        self._answered.record()
        return self._answer

    def _decided(self, answer: Tensor) -> np.ndarray:
        """Waits until it is decided."""
        if self._answered is not None:
            self._answered.synchronize()
        # The next answer is written to the same place.
        return answer.numpy().copy()

    def _decide(self, rows: Tensor) -> Tensor:
        steps, chances = self._packer.unpack(rows, self.last_actions)
        logits, values, memory = self._unroll(steps, self.memory)
        actions, answer = self._draw(logits[0], values[0], chances)
        self.memory.copy_(memory)
        self.last_actions.copy_(actions)
        return answer

    def _changes(self) -> list[Tensor]:
        return [self.memory, self.last_actions, *self.model.buffers()]

    def tensors(self) -> dict[str, Tensor]:
        """What has to be kept, beside the worlds and `state`, to go on later."""
        return {"acting.memory": self.memory, "acting.last_actions": self.last_actions}

    def state(self) -> dict[str, Any]:
        """The rest of it, in the types of JSON."""
        returns, lengths = self._episode
        return {
            "generator": self.generator.bit_generator.state,
            "first": self.first.tolist(),
            "returns": returns.tolist(),
            "lengths": lengths.tolist(),
        }

    def load(self, tensors: dict[str, Tensor], state: dict[str, Any]) -> None:
        """Goes on where another collector was; the worlds are restored by the caller."""
        for name, tensor in self.tensors().items():
            tensor.copy_(tensors[name])
        self.generator.bit_generator.state = state["generator"]
        self.first, self._before = np.array(state["first"], dtype=bool), tensors["acting.last_actions"].numpy()
        self._episode = np.array(state["returns"], dtype=float), np.array(state["lengths"], dtype=np.int64)


def draw_and_tell(logits: Tensor, values: Tensor, chances: Tensor) -> tuple[Tensor, Tensor]:
    """Actions (N,), and what the host needs to know, (3, N): actions, values, the actions' log probabilities."""
    actions = draw_actions(logits, chances)
    log_probs = logits.log_softmax(1).gather(1, actions[:, None])[:, 0]
    return actions, torch.stack([actions.float(), values, log_probs])
