"""The network: what the agent sees, modulated by what it is told, remembered, and turned into an action and a value.

image ──▶ convolutions ──▶ FiLM ──▶ FiLM ──▶ max over the map ──▶ LSTM ──▶ actor, critic
words ──▶ GRU ───────────────┴────────┘            (attention is led by the LSTM's state)
"""

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.config import AgentConfig
from babyai.agents.language import AttentiveReader, SentenceReader
from babyai.agents.vision import CHANNELS, visual_encoder

NUM_ACTIONS = 7
NUM_DIRECTIONS = 4
HEAD_DIM = 64


class FiLM(nn.Module):
    """Two convolutions whose result the instruction scales and shifts (Perez et al. 2017)."""

    def __init__(self, instruction_dim: int, residual: bool) -> None:
        super().__init__()
        self.first = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.first_norm = nn.BatchNorm2d(CHANNELS)
        self.second = nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1)
        self.second_norm = nn.BatchNorm2d(CHANNELS)
        self.scale = nn.Linear(instruction_dim, CHANNELS)
        self.shift = nn.Linear(instruction_dim, CHANNELS)
        self.residual = residual

    def forward(self, x: Tensor, instruction: Tensor) -> Tensor:
        """x: (B, 128, H, W), instruction: (B, D) -> (B, 128, H, W)."""
        y = self.second(self.first_norm(self.first(x)).relu())
        y = y * self.scale(instruction)[:, :, None, None] + self.shift(instruction)[:, :, None, None]
        y = self.second_norm(y).relu()
        return x + y if self.residual else y


class Model(nn.Module):
    """The paper's agent. Memory is one tensor, (B, 2 * memory_dim): the LSTM's h and c side by side."""

    def __init__(self, config: AgentConfig) -> None:
        super().__init__()
        self.config = config
        self.see = visual_encoder(config)
        self.read = (
            AttentiveReader(config.word_dim, config.memory_dim) if config.attention else SentenceReader(config.word_dim)
        )
        self.films = nn.ModuleList(FiLM(self.read.out_dim, config.residual) for _ in range(2))
        extra = NUM_DIRECTIONS * config.direction + (NUM_ACTIONS + 1) * config.last_action
        self.memory = nn.LSTMCell(CHANNELS + extra, config.memory_dim) if config.memory_dim else None
        features = config.memory_dim or CHANNELS + extra
        self.actor = nn.Sequential(nn.Linear(features, HEAD_DIM), nn.Tanh(), nn.Linear(HEAD_DIM, NUM_ACTIONS))
        self.critic = nn.Sequential(nn.Linear(features, HEAD_DIM), nn.Tanh(), nn.Linear(HEAD_DIM, 1))
        self.apply(_initialise)

    def forward(self, observation: dict[str, Tensor], memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step: logits (B, 7), value (B,), memory (B, 2 * memory_dim)."""
        tokens = observation["mission"]
        words = self.read(tokens)
        seen = self.see(observation["image"])
        return self.step(seen, words, tokens, self.extras(observation), memory)

    def step(
        self, seen: Tensor, words: Tensor, tokens: Tensor, extras: Tensor | None, memory: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """What must wait for the memory; `seen` and `words` can be had for many steps at once."""
        features = self.look(seen, words, tokens, memory)
        return self.decide(features, extras, memory)

    def look(self, seen: Tensor, words: Tensor, tokens: Tensor, memory: Tensor) -> Tensor:
        """The map, modulated by the instruction and reduced to a vector: (B, 128)."""
        instruction = words
        if isinstance(self.read, AttentiveReader):
            instruction = self.read.attend(words, tokens, memory)
        if not self.config.instruction:
            instruction = torch.zeros_like(instruction)
        for film in self.films:
            seen = film(seen, instruction)
        return seen.amax((2, 3)).relu()

    def decide(self, features: Tensor, extras: Tensor | None, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Remembers, and says what to do and what to expect."""
        if extras is not None:
            features = torch.cat([features, extras], 1)
        if self.memory is not None:
            h, c = self.memory(features, tuple(memory.chunk(2, 1)))
            features, memory = h, torch.cat([h, c], 1)
        return self.actor(features), self.critic(features).squeeze(1), memory

    def extras(self, observation: dict[str, Tensor]) -> Tensor | None:
        """Heading and last action as one-hot vectors, where the agent is told them."""
        parts = []
        if self.config.direction:
            parts.append(functional.one_hot(observation["direction"].long(), NUM_DIRECTIONS))
        if self.config.last_action:
            # Action -1 stands for none yet.
            parts.append(functional.one_hot(observation["last_action"].long() + 1, NUM_ACTIONS + 1))
        return torch.cat(parts, 1).float() if parts else None

    def initial_memory(self, count: int, device: torch.device | str | None = None) -> Tensor:
        """The memory of agents that have seen nothing."""
        return torch.zeros(count, 2 * self.config.memory_dim, device=device)


def _initialise(module: nn.Module) -> None:
    """Rows of linear maps start as random directions of length one, without bias (the authors' code)."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight)
        with torch.no_grad():
            module.weight /= module.weight.norm(dim=1, keepdim=True)
        nn.init.zeros_(module.bias)
