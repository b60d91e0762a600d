"""The network: what the agent sees, modulated by what it is told, remembered, and turned into an action and a value.

image ──▶ convolutions ──▶ FiLM ──▶ FiLM ──▶ max over the map ──▶ LSTM ──▶ actor, critic
words ──▶ GRU ───────────────┴────────┘            (attention is led by the LSTM's state)
"""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.config import AgentConfig
from babyai.agents.language import AttentiveReader, SentenceReader
from babyai.agents.vision import CHANNELS, VisualEncoder, conv_norm_relu, normalize

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
        self.scale_and_shift = nn.Linear(instruction_dim, 2 * CHANNELS)
        self.residual = residual

    def forward(self, x: Tensor, instruction: Tensor) -> Tensor:
        """x: (B, 128, H, W), instruction: (B, D) -> (B, 128, H, W)."""
        return self.modulate(x, self.prepare(x), instruction)

    def prepare(self, x: Tensor) -> Tensor:
        """What can be had before the instruction is known."""
        return self.second(conv_norm_relu(self.first, self.first_norm, x))

    def modulate(self, x: Tensor, prepared: Tensor, instruction: Tensor) -> Tensor:
        """The rest."""
        scale, shift = self.scale_and_shift(instruction)[:, :, None, None].chunk(2, 1)
        y = normalize(self.second_norm, prepared * scale + shift).relu_()
        return x + y if self.residual else y


class Perceived(NamedTuple):
    """What is made of B observations without memory.

    Attributes:
        seen, prepared: (B, 128, H, W), see `Model.view`.
        words: (B, D) or, to attend to, (B, L, D).
        tokens: (B, L), the missions' token ids.
        extras: (B, E), heading and last action where the agent is told them.
    """

    seen: Tensor
    prepared: Tensor
    words: Tensor
    tokens: Tensor
    extras: Tensor | None


class Model(nn.Module):
    """The paper's agent. Memory is one tensor, (B, 2 * memory_dim): the LSTM's h and c side by side.

    Weights may be in bf16 (see `babyai.agents.precision`), so each part takes its input in its weights' precision.
    """

    def __init__(self, config: AgentConfig) -> None:
        super().__init__()
        self.config = config
        self.see = VisualEncoder(config)
        self.read = (
            AttentiveReader(config.word_dim, config.memory_dim) if config.attention else SentenceReader(config.word_dim)
        )
        self.first_film = FiLM(self.read.out_dim, config.residual)
        self.second_film = FiLM(self.read.out_dim, config.residual)
        extra = NUM_DIRECTIONS * config.direction + (NUM_ACTIONS + 1) * config.last_action
        self.memory = nn.LSTMCell(CHANNELS + extra, config.memory_dim) if config.memory_dim else None
        features = config.memory_dim or CHANNELS + extra
        self.actor = nn.Sequential(nn.Linear(features, HEAD_DIM), nn.Tanh(), nn.Linear(HEAD_DIM, NUM_ACTIONS))
        self.critic = nn.Sequential(nn.Linear(features, HEAD_DIM), nn.Tanh(), nn.Linear(HEAD_DIM, 1))
        self.apply(_initialize)

    def forward(self, observation: dict[str, Tensor], memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step: logits (B, 7), value (B,), memory (B, 2 * memory_dim)."""
        words, tokens = self.read(observation["mission"]), observation["mission"]
        return self.respond(
            Perceived(*self.view(observation["image"]), words, tokens, self.extras(observation)), memory
        )

    def view(self, images: Tensor) -> tuple[Tensor, Tensor]:
        """All that can be made of images alone, (B, 128, H, W) each: the map, and what FiLM can do beforehand."""
        seen = self.see(images)
        return seen, self.first_film.prepare(seen)

    def respond(self, perceived: Perceived, memory: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The part of a step that needs memory."""
        features = self.look(perceived, self.listen(perceived, memory))
        if self.memory is not None:
            h, c = step_lstm(self.memory, features, *memory.chunk(2, 1))
            features, memory = h, torch.cat([h, c], 1)
        logits, value = self.decide(features)
        return logits, value, memory

    def listen(self, perceived: Perceived, memory: Tensor) -> Tensor:
        """What of the instruction matters now: (B, D)."""
        instruction = perceived.words
        if isinstance(self.read, AttentiveReader):
            instruction = self.read.attend(instruction, perceived.tokens, memory)
        instruction = instruction.to(self.dtype)
        return instruction if self.config.instruction else torch.zeros_like(instruction)

    def look(self, perceived: Perceived, instruction: Tensor) -> Tensor:
        """The map, modulated by the instruction and reduced to a vector, with the other inputs: (B, 128 + E)."""
        seen = self.first_film.modulate(perceived.seen, perceived.prepared, instruction)
        features = self.second_film(seen, instruction).amax((2, 3)).relu()
        return features if perceived.extras is None else torch.cat([features, perceived.extras], 1)

    def decide(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """Logits (..., 7) and values (...), in float32."""
        features = features.to(self.dtype)
        return self.actor(features).float(), self.critic(features).squeeze(-1).float()

    def extras(self, observation: dict[str, Tensor]) -> Tensor | None:
        """Heading and last action as one-hot vectors, where the agent is told them."""
        parts = []
        if self.config.direction:
            parts.append(functional.one_hot(observation["direction"].long(), NUM_DIRECTIONS))
        if self.config.last_action:
            # Action -1 stands for none yet.
            parts.append(functional.one_hot(observation["last_action"].long() + 1, NUM_ACTIONS + 1))
        return torch.cat(parts, 1).to(self.dtype) if parts else None

    @property
    def dtype(self) -> torch.dtype:
        """The precision it computes in."""
        return self.actor[0].weight.dtype  # pyright: ignore[reportReturnType]

    def initial_memory(self, count: int, device: torch.device | str | None = None) -> Tensor:
        """The memory of agents that have seen nothing."""
        return torch.zeros(count, 2 * self.config.memory_dim, device=device)


def step_lstm(cell: nn.LSTMCell, features: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """What `cell` does, with h and c in float32 whatever the precision of its weights."""
    dtype = cell.weight_ih.dtype
    inputs = functional.linear(features.to(dtype), cell.weight_ih, cell.bias_ih + cell.bias_hh)
    return pass_gates(inputs.to(c.dtype) + functional.linear(h.to(dtype), cell.weight_hh), c)


def pass_gates(gates: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    """The LSTM's new h and c, in the precision of c; gates: (B, 4 * D), before they open."""
    enter, forget, candidate, leave = gates.to(c.dtype).chunk(4, 1)
    c = forget.sigmoid() * c + enter.sigmoid() * candidate.tanh()
    return leave.sigmoid() * c.tanh(), c


def _initialize(module: nn.Module) -> None:
    """Rows of linear maps start as random directions of length one, without bias (the authors' code)."""
    if isinstance(module, nn.Linear):
        nn.init.normal_(module.weight)
        with torch.no_grad():
            module.weight /= module.weight.norm(dim=1, keepdim=True)
        nn.init.zeros_(module.bias)
