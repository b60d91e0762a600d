"""What an agent is made of: one frozen dataclass, kept as JSON beside its weights."""

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

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
        if self.bag_of_words not in ("mean", "sum"):
            raise ValueError(f"unknown bag_of_words {self.bag_of_words!r}; it can be 'mean' or 'sum'")
        if self.memory_dim < 0 or self.word_dim < 1:
            raise ValueError(f"memory_dim {self.memory_dim} and word_dim {self.word_dim} cannot be negative")
        if self.attention and self.memory_dim == 0:
            raise ValueError("attention is led by the memory, so an agent without memory cannot have it")

    @classmethod
    def of(cls, architecture: str = "bow_endpool_res", size: str = "small", **settings: object) -> "AgentConfig":
        """The paper's agent of that architecture and size, with any of its settings changed."""
        _check_names(cls, settings)
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


@dataclass(frozen=True)
class CustomConfig:
    """The settings of a model of your own: where its class is, and what it is made with."""

    architecture: str
    """Where its class is: "package.module:ClassName" or "path/to/file.py:ClassName"."""
    settings: dict[str, Any] = field(default_factory=dict)
    """The keyword arguments of the class; plain JSON, since they are kept in a file."""
    pixels: bool = False
    """Whether it sees RGB frames instead of tiles: what the class says in its attribute `pixels`."""

    def __post_init__(self) -> None:
        try:
            kept = json.loads(json.dumps(self.settings))
        except (TypeError, ValueError) as error:
            raise ValueError(f"the settings of {self.architecture!r} cannot be kept as JSON: {error}") from None
        if not isinstance(kept, dict) or kept != self.settings:
            raise ValueError(
                f"the settings of {self.architecture!r} would come back from JSON as {kept}, not as {self.settings}; "
                f"use lists instead of tuples, and strings as keys"
            )


AnyConfig = AgentConfig | CustomConfig


def is_custom(architecture: str) -> bool:
    """Whether this names a class of one's own, rather than an architecture of the paper."""
    return ":" in architecture


def read_config(data: Any) -> AnyConfig:
    """The settings that `dataclasses.asdict` made plain data of."""
    if not isinstance(data, dict) or not isinstance(data.get("architecture"), str):
        raise ValueError(f"an agent's settings must say its architecture, not {data!r}")
    kind = CustomConfig if is_custom(data["architecture"]) else AgentConfig
    _check_names(kind, data)
    plain = AgentConfig() if kind is AgentConfig else CustomConfig("")
    for name, value in data.items():
        expected = type(getattr(plain, name))
        if type(value) is not expected:
            raise ValueError(f"the setting {name!r} must be of type {expected.__name__}, not {value!r}")
    return kind(**data)


def _check_names(kind: type[AgentConfig | CustomConfig], given: Iterable[str]) -> None:
    known = [each.name for each in fields(kind)]
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known)}"
            raise ValueError(f"an agent has no setting {name!r}; {hint}")
