"""A model of one's own, small enough to be trained in a second."""

import torch
from torch import Tensor, nn

HIDDEN = 24
PATH = f"{__file__}:Tiny"


class Tiny(nn.Module):
    """Embeds the tiles and the words, and remembers with a GRU."""

    def __init__(self) -> None:
        super().__init__()
        self.tiles = nn.Embedding(3 * 16, 4)
        self.words = nn.EmbeddingBag(100, HIDDEN, mode="sum", padding_idx=0)
        self.see = nn.Linear(7 * 7 * 3 * 4, HIDDEN)
        self.remember = nn.GRUCell(2 * HIDDEN, HIDDEN)
        self.actor, self.critic = nn.Linear(HIDDEN, 7), nn.Linear(HIDDEN, 1)

    def forward(self, observation: dict[str, Tensor], memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        image = observation["image"].long() + 16 * torch.arange(3, device=memory.device)
        seen = self.see(self.tiles(image).flatten(1)).relu()
        memory = self.remember(torch.cat([seen, self.words(observation["mission"].long())], 1), memory)
        return self.actor(memory), self.critic(memory).squeeze(1), memory

    def initial_memory(self, count: int, device: torch.device | str | None = None) -> Tensor:
        return torch.zeros(count, HIDDEN, device=device)


class Forgetful(Tiny):
    """Sees half of what there is, drawn anew each time."""

    def __init__(self) -> None:
        super().__init__()
        self.see = nn.Sequential(self.see, nn.Dropout(0.5))
