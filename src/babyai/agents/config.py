"""What an agent is made of: one frozen dataclass, kept as JSON beside its weights."""

import difflib
from dataclasses import dataclass, replace
from typing import Literal

Architecture = Literal["original", "original_endpool", "original_endpool_res", "bow_endpool_res", "pixels_endpool_res"]
Size = Literal["small", "big"]
ARCHITECTURES: tuple[str, ...] = Architecture.__args__  # pyright: ignore[reportAttributeAccessIssue]
SIZES: tuple[str, ...] = Size.__args__  # pyright: ignore[reportAttributeAccessIssue]


@dataclass(frozen=True)
class AgentConfig:
    """The settings of an agent; `AgentConfig.of` fills in what a size implies."""

    architecture: str = "bow_endpool_res"
    """One of the paper's five; the name says what is in it (section 2)."""
    size: str = "small"
    """small: GRU, LSTM 128. big: bidirectional GRU with attention, LSTM 2048 (appendix A)."""
    memory_dim: int = 128
    """The width of the LSTM; 0 for an agent without memory."""
    word_dim: int = 128
    """The width of the word embeddings."""
    attention: bool = False
    """Read the instruction in both directions and attend to its words, led by the memory."""
    instruction: bool = True
    """Whether the agent is told what to do; False is the control that shows what can be guessed."""
    direction: bool = False
    """Whether it is told its compass heading."""
    last_action: bool = False
    """Whether it is told what it did last."""
    bag_of_words: Literal["mean", "sum"] = "mean"
    """How the three embeddings of a tile become one: the paper's text says mean, the authors' code sums."""

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            near = difflib.get_close_matches(self.architecture, ARCHITECTURES, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(ARCHITECTURES)}"
            raise ValueError(f"unknown architecture {self.architecture!r}{hint}")
        if self.size not in SIZES:
            raise ValueError(f"unknown size {self.size!r}; an agent is 'small' or 'big'")
        if self.memory_dim < 0 or self.word_dim < 1:
            raise ValueError(f"memory_dim {self.memory_dim} and word_dim {self.word_dim} cannot be negative")
        if self.attention and self.memory_dim == 0:
            raise ValueError("attention is led by the memory, so an agent without memory cannot have it")

    @classmethod
    def of(cls, architecture: str = "bow_endpool_res", size: str = "small", **settings: object) -> "AgentConfig":
        """The paper's agent of that architecture and size, with any of its settings changed."""
        implied = {"memory_dim": 2048, "word_dim": 256, "attention": True} if size == "big" else {}
        return replace(cls(architecture, size), **(implied | settings))  # pyright: ignore[reportArgumentType]

    @property
    def pixels(self) -> bool:
        """Whether it sees RGB frames instead of tiles."""
        return self.architecture.startswith("pixels")

    @property
    def endpool(self) -> bool:
        """Whether pooling happens only at the end."""
        return "endpool" in self.architecture

    @property
    def residual(self) -> bool:
        """Whether the FiLM layers are bridged."""
        return self.architecture.endswith("res")
