"""A model over many steps at once: everything that learns gives it T steps x N lanes, and the memory from before.

What does not depend on memory (the tiles, the convolutions, the words) runs once over all steps of the chunk; only the
rest runs step by step. Truncated backpropagation through time then needs no code: gradients end where a chunk began.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.captured import beside, compile_part, join
from babyai.agents.language import AttentiveReader
from babyai.agents.model import Model
from babyai.agents.recurrence import remember_all

Statistics = Literal["chunk", "step"]


@dataclass
class Steps:
    """T steps of N lanes, as tensors on the model's device; M missions occur in them.

    Attributes:
        images: (T, N, 7, 7, 3) uint8, or pixels.
        directions: (T, N).
        last_actions: (T, N), what was done on the step before; -1 where an episode begins.
        first: (T, N) bool, where an episode begins.
        missions: (M, L) token ids.
        mission_index: (T, N), the row of `missions` that holds.
    """

    images: Tensor
    directions: Tensor
    last_actions: Tensor
    first: Tensor
    missions: Tensor
    mission_index: Tensor

    def tensors(self) -> list[Tensor]:
        """All of them, in order."""
        return [getattr(self, field.name) for field in fields(self)]

    def observation(self, step: int) -> dict[str, Tensor]:
        """What a model is shown at one step, as its `forward` takes it."""
        return {
            "image": self.images[step],
            "mission": self.missions[self.mission_index[step].long()],
            "direction": self.directions[step],
            "last_action": self.last_actions[step],
        }


class Unrolled(NamedTuple):
    """logits (T, N, 7), values (T, N), and the memory after the last step (N, D), all float32."""

    logits: Tensor
    values: Tensor
    memory: Tensor


def unroll_plainly(model: nn.Module, steps: Steps, memory: Tensor) -> Unrolled:
    """Runs any model step by step. Batch norm sees one time step at a time, as in the authors' code."""
    logits, values = [], []
    for step, first in enumerate(steps.first):
        memory = memory * ~first[:, None]
        at_step = model(steps.observation(step), memory)
        logits.append(at_step[0].float())
        values.append(at_step[1].float())
        memory = at_step[2].float()
    return Unrolled(torch.stack(logits), torch.stack(values), memory)


class Unroller:
    """Runs a model over chunks: the paper's as fast as it goes, others step by step.

    Args:
        model: The paper's `Model`, or one of your own.
        statistics: What batch norm takes its averages over: the whole chunk, or one time step, as the authors did.
            Layers that wait for the memory because attention does see one time step in any case.
        compiled: Have torch compile the parts that cost most; worth it on a GPU.
    """

    def __init__(self, model: nn.Module, statistics: Statistics = "chunk", compiled: bool = False) -> None:
        self.model, self.statistics, self.compiled = model, statistics, compiled
        if isinstance(model, Model):
            wrap: Any = compile_part if compiled else lambda part: part
            self._see, self._look, self._prepare = wrap(model.see), wrap(model.look), wrap(model.first_film.prepare)
            self._step = wrap(self._attend_once)

    def __call__(self, steps: Steps, memory: Tensor) -> Unrolled:
        """Logits, values, and the memory after the chunk."""
        model = self.model
        if self.statistics == "step" or not isinstance(model, Model):
            return unroll_plainly(model, steps, memory)
        words, seen = self._read_and_see(model, steps)
        extras = model.extras(
            {"direction": steps.directions.flatten(), "last_action": steps.last_actions.flatten()}
        )  # (T * N, E) or None
        unroll = self._attend if isinstance(model.read, AttentiveReader) else self._recall
        features, memory = unroll(model, steps, words, seen, extras, memory)  # (T, N, D)
        return Unrolled(*model.decide(features), memory)

    def _read_and_see(self, model: Model, steps: Steps) -> tuple[Tensor, Tensor]:
        """Gives words (M, D), or (M, L, D) to attend to; seen (T * N, 128, H, W)."""
        # Reading is a chain of small kernels, for which a GPU has room beside the convolutions.
        with beside():
            words = model.read(steps.missions)
        seen = self._see(steps.images.flatten(0, 1))
        join()
        return words, seen

    def _recall(
        self, model: Model, steps: Steps, words: Tensor, seen: Tensor, extras: Tensor | None, memory: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Only the LSTM runs step by step."""
        words = words.index_select(0, steps.mission_index.flatten())  # (T * N, D)
        features = self._look(seen, model.listen(words, steps.missions, memory))  # (T * N, 128)
        if extras is not None:
            features = torch.cat([features, extras], 1)
        features = features.unflatten(0, steps.first.shape)  # (T, N, 128)
        if model.memory is None:
            return features, memory
        cell = model.memory
        inputs = functional.linear(features, cell.weight_ih, cell.bias_ih + cell.bias_hh)  # (T, N, 4 * D)
        return remember_all(inputs, steps.first, memory, cell.weight_hh, self.compiled)

    def _attend(
        self, model: Model, steps: Steps, words: Tensor, seen: Tensor, extras: Tensor | None, memory: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Everything runs step by step that comes after the first modulation, which attention delays."""
        assert model.memory is not None
        cell, shape, index = model.memory, steps.first.shape, steps.mission_index.flatten()
        # Input and state enter the LSTM by one product instead of two.
        weights = torch.cat([cell.weight_ih, cell.weight_hh], 1), cell.bias_ih + cell.bias_hh
        by_step = [seen.unflatten(0, shape), self._prepare(seen).unflatten(0, shape)]  # (T, N, 128, H, W)
        # Narrowed after the choice, so that gradients of a mission's many steps add up in float32.
        by_step.append(words.index_select(0, index).to(model.dtype).unflatten(0, shape))  # (T, N, L, D)
        by_step += [steps.missions.index_select(0, index).unflatten(0, shape), steps.first]  # (T, N, L), (T, N)
        if extras is not None:
            by_step.append(extras.unflatten(0, shape))
        h, c = memory.chunk(2, 1)
        states = []
        for at_step in zip(*(part.unbind(0) for part in by_step), strict=True):
            h, c = self._step(h, c, weights, *at_step)
            states.append(h)
        return torch.stack(states), torch.cat([h, c], 1)

    def _attend_once(
        self,
        h: Tensor,
        c: Tensor,
        weights: tuple[Tensor, Tensor],
        seen: Tensor,
        prepared: Tensor,
        words: Tensor,
        tokens: Tensor,
        first: Tensor,
        *extras: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """One step: listen, look, remember; h and c, (N, D) float32."""
        model, keep = self.model, ~first[:, None]
        assert isinstance(model, Model)
        h, c = h * keep, c * keep
        instruction = model.listen(words, tokens, torch.cat([h, c], 1))
        features = model.finish_looking(seen, prepared, instruction)  # (N, 128)
        gates = functional.linear(torch.cat([features, *extras, h.to(features.dtype)], 1), *weights).float()
        enter, forget, candidate, leave = gates.chunk(4, 1)
        c = forget.sigmoid() * c + enter.sigmoid() * candidate.tanh()
        return leave.sigmoid() * c.tanh(), c
