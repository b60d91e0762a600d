"""Policies of one's own, small enough to be trained in a second."""

import torch
from torch import Tensor, nn

PATH = f"{__file__}:Tiny"


class Tiny(nn.Module):
    """Embeds tiles and words; a GRU remembers."""

    def __init__(self, hidden: int = 24) -> None:
        super().__init__()
        self.hidden = hidden
        self.tiles = nn.Embedding(3 * 16, 4)
        self.words = nn.Embedding(100, hidden, padding_idx=0)
        self.encode = nn.Linear(7 * 7 * 3 * 4, hidden)
        self.memory = nn.GRUCell(2 * hidden, hidden)
        self.actor = nn.Linear(hidden, 7)
        self.critic = nn.Linear(hidden, 1)

    def initial_state(self, n: int) -> Tensor:
        return torch.zeros(n, self.hidden, device=self.actor.weight.device)

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        image = observation["image"].long() + 16 * torch.arange(3, device=state.device)
        encoded = self.encode(self.tiles(image).flatten(1)).relu()
        words = self.words(observation["mission"].long()).sum(1)
        state = self.memory(torch.cat([encoded, words], 1), state)
        return self.actor(state), self.critic(state).squeeze(1), state


class Forgetful(Tiny):
    """Drops half of what it sees, at random."""

    def __init__(self) -> None:
        super().__init__()
        self.encode = nn.Sequential(self.encode, nn.Dropout(0.5))


class TwoMemories(Tiny):
    """A state that is a dict, holds integers, and does not start as zeros."""

    def initial_state(self, n: int) -> dict[str, Tensor]:  # pyright: ignore[reportIncompatibleMethodOverride]
        device = self.actor.weight.device
        return {
            "gru": torch.full((n, self.hidden), 0.5, device=device),
            "steps": torch.ones(n, 1, dtype=torch.long, device=device),
        }

    def forward(  # pyright: ignore[reportIncompatibleMethodOverride]
        self, observation: dict[str, Tensor], state: dict[str, Tensor]
    ) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        logits, value, gru = super().forward(observation, state["gru"])
        return logits / state["steps"].sqrt(), value, {"gru": gru, "steps": state["steps"] + 1}


class Faulty(Tiny):
    """Fails after so many steps of training."""

    def __init__(self, steps: int) -> None:
        super().__init__()
        self.steps = steps

    def forward(self, observation: dict[str, Tensor], state: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.training:
            self.steps -= 1
        if self.steps < 0:
            raise KeyError("no such word: grue")
        return super().forward(observation, state)
