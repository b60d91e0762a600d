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
from babyai.agents.model import Model, Perceived, pass_gates
from babyai.agents.recurrence import SharedProduct, remember_all, what_to_keep

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
            self._view, self._look, self._decide = wrap(model.view), wrap(model.look), wrap(model.decide)
            self._respond, self._waiting = wrap(model.respond), _Waiting(model)
            self._attend_once, self._remember_once = wrap(functional_call), wrap(self._remember)

    def __call__(self, steps: Steps, memory: Tensor) -> Unrolled:
        """Logits, values, and the memory after the chunk."""
        model = self.model
        if self.statistics == "step" or not isinstance(model, Model):
            return unroll_plainly(model, steps, memory)
        perceived = self._perceive(model, steps)
        if len(steps.first) == 1 and not torch.is_grad_enabled():
            # Who only acts has nothing to unroll.
            logits, values, memory = self._respond(perceived, memory * ~steps.first[0, :, None])
            return Unrolled(logits[None], values[None], memory)
        unroll = self._attend if isinstance(model.read, AttentiveReader) else self._recall
        features, memory = unroll(model, perceived, steps.first, memory)  # (T, N, D)
        logits, values = self._decide(features)
        return Unrolled(logits, values, memory)

    def _perceive(self, model: Model, steps: Steps) -> Perceived:
        """For all T * N steps at once."""
        index = steps.mission_index.flatten()
        # Reading is a chain of small kernels, for which a GPU has room beside the convolutions.
        with beside():
            words = model.read(steps.missions).index_select(0, index)
            tokens = steps.missions.index_select(0, index)
        seen, prepared = self._view(steps.images.flatten(0, 1))
        join()
        told = {"direction": steps.directions.flatten(), "last_action": steps.last_actions.flatten()}
        return Perceived(seen, prepared, words, tokens, model.extras(told))

    def _recall(self, model: Model, perceived: Perceived, first: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Only the LSTM runs step by step."""
        features = self._look(perceived, model.listen(perceived, memory)).unflatten(0, first.shape)  # (T, N, 128 + E)
        if model.memory is None:
            return features, memory
        cell = model.memory
        inputs = functional.linear(features, cell.weight_ih, cell.bias_ih + cell.bias_hh)  # (T, N, 4 * D)
        return remember_all(inputs, first, memory, cell.weight_hh, self.compiled)

    def _attend(self, model: Model, perceived: Perceived, first: Tensor, memory: Tensor) -> tuple[Tensor, Tensor]:
        """Everything runs step by step that comes after the first modulation, which attention delays."""
        assert model.memory is not None
        cell = model.memory
        # Input and state enter the LSTM by one product instead of two.
        open_gates = SharedProduct(torch.cat([cell.weight_ih, cell.weight_hh], 1), cell.bias_ih + cell.bias_hh)
        # Narrowed only now, so that gradients of a mission's many steps add up in float32.
        perceived = perceived._replace(words=perceived.words.to(model.dtype))
        by_step = [
            [None] * len(first) if part is None else part.unflatten(0, first.shape).unbind(0) for part in perceived
        ]
        keep = what_to_keep(first)
        h, c = (memory * keep[0]).chunk(2, 1)
        states, parameters = [], self._waiting.parameters_by_step(len(first))
        for own, keep_next, *at_step in zip(parameters, keep[1:], *by_step, strict=True):
            gates = open_gates(self._attend_once(self._waiting, own, (Perceived(*at_step), h, c)))
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

    def forward(self, perceived: Perceived, h: Tensor, c: Tensor) -> Tensor:
        """What enters the LSTM at one step, its own state included: (N, 128 + E + D)."""
        features = self.model.look(perceived, self.model.listen(perceived, torch.cat([h, c], 1)))
        return torch.cat([features, h.to(features.dtype)], 1)

    def parameters_by_step(self, steps: int) -> list[dict[str, Tensor]]:
        """Parameters by name, anew for each step: their gradients are then summed once, and not after every step."""
        views = {
            name: parameter.expand(steps, *parameter.shape).unbind(0)
            for name, parameter in self.named_parameters()
            if name.removeprefix("model.").startswith(self.PARAMETERS)
        }
        return [{name: of_step[step] for name, of_step in views.items()} for step in range(steps)]
