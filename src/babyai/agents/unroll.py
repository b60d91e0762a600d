"""A model over many steps at once: everything that learns gives it T steps x N lanes, and the memory from before.

What does not depend on memory (the tiles, the convolutions, the words) runs once over all steps of the chunk; only the
rest runs step by step. Truncated backpropagation through time then needs no code: gradients end where a chunk began.
"""

from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional

from babyai.agents.captured import beside, compile_part, join
from babyai.agents.language import AttentiveReader
from babyai.agents.model import Model, pass_gates
from babyai.agents.recurrence import SharedProduct, remember_all

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
            self._see, self._look, self._decide = wrap(self._see_all), wrap(model.finish_looking), wrap(model.decide)
            self._attend_once, self._remember_once = wrap(functional_call), wrap(self._remember)
            self._waiting = _Waiting(model)

    def __call__(self, steps: Steps, memory: Tensor) -> Unrolled:
        """Logits, values, and the memory after the chunk."""
        model = self.model
        if self.statistics == "step" or not isinstance(model, Model):
            return unroll_plainly(model, steps, memory)
        words, seen, prepared = self._read_and_see(model, steps)
        extras = model.extras(
            {"direction": steps.directions.flatten(), "last_action": steps.last_actions.flatten()}
        )  # (T * N, E) or None
        unroll = self._attend if isinstance(model.read, AttentiveReader) else self._recall
        features, memory = unroll(model, steps, words, seen, prepared, extras, memory)  # (T, N, D)
        return Unrolled(*self._decide(features), memory)

    def _read_and_see(self, model: Model, steps: Steps) -> tuple[Tensor, Tensor, Tensor]:
        """Gives words (M, D), or (M, L, D) to attend to; seen and prepared (T * N, 128, H, W)."""
        # Reading is a chain of small kernels, for which a GPU has room beside the convolutions.
        with beside():
            words = model.read(steps.missions)
        seen, prepared = self._see(steps.images.flatten(0, 1))
        join()
        return words, seen, prepared

    def _see_all(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """What needs neither words nor memory."""
        assert isinstance(self.model, Model)
        seen = self.model.see(images)
        return seen, self.model.first_film.prepare(seen)

    def _recall(
        self,
        model: Model,
        steps: Steps,
        words: Tensor,
        seen: Tensor,
        prepared: Tensor,
        extras: Tensor | None,
        memory: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Only the LSTM runs step by step."""
        words = words.index_select(0, steps.mission_index.flatten())  # (T * N, D)
        features = self._look(seen, prepared, model.listen(words, steps.missions, memory))  # (T * N, 128)
        if extras is not None:
            features = torch.cat([features, extras], 1)
        features = features.unflatten(0, steps.first.shape)  # (T, N, 128)
        if model.memory is None:
            return features, memory
        cell = model.memory
        inputs = functional.linear(features, cell.weight_ih, cell.bias_ih + cell.bias_hh)  # (T, N, 4 * D)
        return remember_all(inputs, steps.first, memory, cell.weight_hh, self.compiled)

    def _attend(
        self,
        model: Model,
        steps: Steps,
        words: Tensor,
        seen: Tensor,
        prepared: Tensor,
        extras: Tensor | None,
        memory: Tensor,
    ) -> tuple[Tensor, Tensor]:
        """Everything runs step by step that comes after the first modulation, which attention delays."""
        assert model.memory is not None
        cell, shape, index = model.memory, steps.first.shape, steps.mission_index.flatten()
        # Input and state enter the LSTM by one product instead of two.
        open_gates = SharedProduct(torch.cat([cell.weight_ih, cell.weight_hh], 1), cell.bias_ih + cell.bias_hh)
        by_step = [seen.unflatten(0, shape), prepared.unflatten(0, shape)]  # (T, N, 128, H, W)
        # Narrowed after the choice, so that gradients of a mission's many steps add up in float32.
        by_step.append(words.index_select(0, index).to(model.dtype).unflatten(0, shape))  # (T, N, L, D)
        by_step += [steps.missions.index_select(0, index).unflatten(0, shape)]  # (T, N, L)
        if extras is not None:
            by_step.append(extras.unflatten(0, shape))
        # What is cleared before each step; after the last one nothing is.
        keep = functional.pad(~steps.first, (0, 0, 0, 1), value=True)[..., None]  # (T + 1, N, 1)
        h, c = (memory * keep[0]).chunk(2, 1)
        states, parameters = [], self._waiting.parameters_by_step(len(steps.first))
        for own, keep_next, *at_step in zip(parameters, keep[1:], *(part.unbind(0) for part in by_step), strict=True):
            gates = open_gates(self._attend_once(self._waiting, own, (h, c, *at_step)))
            state, h, c = self._remember_once(gates, c, keep_next)
            states.append(state)
        return torch.stack(states), torch.cat([h, c], 1)

    @staticmethod
    def _remember(gates: Tensor, c: Tensor, keep_next: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The state after one step, and what of h and c enters the next."""
        h, c = pass_gates(gates, c)
        return h, h * keep_next, c * keep_next


class _Waiting(nn.Module):
    """The part of a model that has to wait for the memory, because attention does."""

    PARAMETERS = ("read.key", "first_film.scale_and_shift", "first_film.second_norm", "second_film")

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.model = model

    def forward(
        self, h: Tensor, c: Tensor, seen: Tensor, prepared: Tensor, words: Tensor, tokens: Tensor, *extras: Tensor
    ) -> Tensor:
        """What enters the LSTM at one step, its own state included: (N, 128 + E + D)."""
        instruction = self.model.listen(words, tokens, torch.cat([h, c], 1))
        features = self.model.finish_looking(seen, prepared, instruction)  # (N, 128)
        return torch.cat([features, *extras, h.to(features.dtype)], 1)

    def parameters_by_step(self, steps: int) -> list[dict[str, Tensor]]:
        """Parameters by name, anew for each step: their gradients are then summed once, and not after every step."""
        views = {
            name: parameter.expand(steps, *parameter.shape).unbind(0)
            for name, parameter in self.named_parameters()
            if name.removeprefix("model.").startswith(self.PARAMETERS)
        }
        return [{name: of_step[step] for name, of_step in views.items()} for step in range(steps)]
