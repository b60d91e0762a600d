"""Small policies of one's own, with recurrent states of all kinds."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from babyai.agents.policy import Unrolled
from babyai.batch import Batch

HIDDEN = 8


class Recurrent(nn.Module):
    """A GRU over the image; the state is one tensor of zeros."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = nn.Linear(7 * 7 * 3, HIDDEN)
        self.words = nn.EmbeddingBag(100, HIDDEN, mode="sum", padding_idx=0)
        self.gru = nn.GRUCell(2 * HIDDEN, HIDDEN)
        self.actor = nn.Linear(HIDDEN, 7)
        self.critic = nn.Linear(HIDDEN, 1)

    def initial_state(self, n: int) -> Any:
        return torch.zeros(n, HIDDEN)

    def forward(self, observation: dict[str, Tensor], state: Any) -> tuple[Tensor, Tensor, Any]:
        h = self.next_h(observation, state)
        return self.actor(h), self.critic(h).squeeze(1), h

    def next_h(self, observation: dict[str, Tensor], h: Tensor) -> Tensor:
        image = self.encoder(observation["image"].flatten(1).float() / 10).relu()
        return self.gru(torch.cat([image, self.words(observation["mission"].long())], 1), h)


class LearnedStart(Recurrent):
    """The initial state is learned, so it is not zero and has a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.start = nn.Parameter(torch.linspace(-1, 1, HIDDEN))

    def initial_state(self, n: int) -> Tensor:
        return self.start.expand(n, -1)


class ClockAndMap(Recurrent):
    """The state is a dict: a vector, a clock that counts down from 100, and a map of what was seen, (n, 7, 7)."""

    def initial_state(self, n: int) -> dict[str, Any]:
        return {
            "h": torch.full((n, HIDDEN), 0.5),
            "memory": (torch.full((n,), 100), torch.full((n, 7, 7), -1, dtype=torch.int16)),
        }

    def forward(self, observation: dict[str, Tensor], state: dict[str, Any]) -> tuple[Tensor, Tensor, dict[str, Any]]:
        clock, seen = state["memory"]
        h = self.next_h(observation, state["h"])
        logits = self.actor(h) + clock[:, None] / 100 + seen.float().mean((1, 2))[:, None]
        after = clock - 1, torch.maximum(seen, observation["image"][..., 0].short())
        return logits, self.critic(h).squeeze(1), {"h": h, "memory": after}


@dataclass
class TwoVectors:
    fast: Tensor
    slow: Tensor


class DataclassState(Recurrent):
    """The state is a dataclass."""

    def initial_state(self, n: int) -> TwoVectors:
        return TwoVectors(torch.zeros(n, HIDDEN), torch.ones(n, HIDDEN))

    def forward(self, observation: dict[str, Tensor], state: TwoVectors) -> tuple[Tensor, Tensor, TwoVectors]:
        fast = self.next_h(observation, state.fast)
        slow = 0.9 * state.slow + 0.1 * fast
        return self.actor(slow), self.critic(fast).squeeze(1), TwoVectors(fast, slow)


class Memoryless(Recurrent):
    """There is no state."""

    def initial_state(self, n: int) -> tuple[()]:
        return ()

    def forward(self, observation: dict[str, Tensor], state: tuple[()]) -> tuple[Tensor, Tensor, tuple[()]]:
        h = self.next_h(observation, torch.zeros(len(observation["image"]), HIDDEN))
        return self.actor(h), self.critic(h).squeeze(1), state


class OwnUnroll(Memoryless):
    """Sees all steps at once, which without a state is easy."""

    unrolled_batches = 0

    def unroll(self, batch: Batch, state: tuple[()]) -> Unrolled:
        self.unrolled_batches += 1
        observation = {
            "image": batch.images.flatten(0, 1),
            "mission": batch.missions[batch.mission_index.flatten().long()],
        }
        logits, values, _ = self(observation, state)
        return Unrolled(logits.unflatten(0, batch.starts.shape), values.unflatten(0, batch.starts.shape), state)


POLICIES = [Recurrent, LearnedStart, ClockAndMap, DataclassState, Memoryless, OwnUnroll]
