"""Agent configurations: frozen dataclasses, saved as JSON with the weights."""

import difflib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal

from babyai.import_path import is_import_path

Architecture = Literal["original", "original_endpool", "original_endpool_res", "bow_endpool_res", "pixels_endpool_res"]
Size = Literal["small", "big"]
ARCHITECTURES: tuple[str, ...] = Architecture.__args__  # pyright: ignore[reportAttributeAccessIssue]
# The architecture that draws a map, and what an ablated one can do without.
MAP = "map"
MAP_PARTS = ("events", "places", "visits", "history", "map")
SIZES: tuple[str, ...] = Size.__args__  # pyright: ignore[reportAttributeAccessIssue]


# Four times the paper's big agent; an LSTM of this size has a billion weights.
MAX_DIM = 8192


@dataclass(frozen=True)
class AgentConfig:
    """Configuration of one of the paper's agents; `AgentConfig.of` fills in what a size implies."""

    architecture: str = "bow_endpool_res"
    """One of the paper's five (section 2)."""
    size: str = "small"
    """small: GRU, LSTM with 128 units. big: bidirectional GRU with attention, LSTM with 2048 units (Appendix A)."""
    memory_dim: int = 128
    """Number of LSTM units; 0 for an agent without memory."""
    word_dim: int = 128
    """Dimension of the word embeddings."""
    attention: bool = False
    """Attention over a bidirectional GRU's outputs, queried by the LSTM's state."""
    instruction: bool = True
    """Whether the agent reads the instruction; False is a control that shows what can be guessed without."""
    direction: bool = False
    """Whether the agent sees its direction."""
    last_action: bool = False
    """Whether the agent sees its last action."""
    bag_of_words: Literal["mean", "sum"] = "mean"
    """How the three embeddings of a tile are combined: mean in the paper's text, sum in the authors' code."""

    def __post_init__(self) -> None:
        if self.architecture not in ARCHITECTURES:
            near = difflib.get_close_matches(self.architecture, (*ARCHITECTURES, MAP), n=1)
            known = f"choose from {', '.join((*ARCHITECTURES, MAP))}, or name a class of your own, file.py:Class"
            hint = f"; did you mean {near[0]!r}?" if near else f"; {known}"
            raise ValueError(f"unknown architecture {self.architecture!r}{hint}")
        if self.size not in SIZES:
            raise ValueError(f"unknown size {self.size!r}; an agent is 'small' or 'big'")
        if self.bag_of_words not in ("mean", "sum"):
            raise ValueError(f"unknown bag_of_words {self.bag_of_words!r}; it can be 'mean' or 'sum'")
        if not 0 <= self.memory_dim <= MAX_DIM or not 1 <= self.word_dim <= MAX_DIM:
            raise ValueError(
                f"memory_dim must be in 0..{MAX_DIM} and word_dim in 1..{MAX_DIM}, not {self.memory_dim} and "
                f"{self.word_dim}"
            )
        if self.attention and self.memory_dim == 0:
            raise ValueError("attention is queried by the LSTM's state, so it needs memory_dim > 0")

    @classmethod
    def of(cls, architecture: str = "bow_endpool_res", size: str = "small", **settings: object) -> "AgentConfig":
        """The configuration of an architecture and size, with any of its settings changed."""
        _check_names(cls, settings)
        implied = {"memory_dim": 2048, "word_dim": 256, "attention": True} if size == "big" else {}
        return replace(cls(architecture, size), **(implied | settings))  # pyright: ignore[reportArgumentType]

    @property
    def pixels(self) -> bool:
        """Whether it reads RGB frames instead of symbolic views."""
        return self.architecture.startswith("pixels")

    @property
    def endpool(self) -> bool:
        """Whether there is max-pooling at the end only."""
        return "endpool" in self.architecture

    @property
    def residual(self) -> bool:
        """Whether the FiLM layers have residual connections."""
        return self.architecture.endswith("res")


@dataclass(frozen=True)
class CustomConfig:
    """Configuration of a policy of your own: its class and the arguments of its constructor."""

    architecture: str
    """Import path of the class: "package.module:ClassName" or "path/to/file.py:ClassName"."""
    settings: dict[str, Any] = field(default_factory=dict)
    """Keyword arguments of the class; must survive a round trip through JSON."""
    pixels: bool = False
    """Whether it reads RGB frames instead of symbolic views: the class attribute `pixels`."""

    def __post_init__(self) -> None:
        try:
            kept = json.loads(json.dumps(self.settings))
        except (TypeError, ValueError) as error:
            raise ValueError(f"the settings of {self.architecture!r} cannot be saved as JSON: {error}") from None
        if not isinstance(kept, dict) or kept != self.settings:
            raise ValueError(
                f"the settings of {self.architecture!r} would come back from JSON as {kept}, not as {self.settings}; "
                f"use lists instead of tuples, and strings as keys"
            )


@dataclass(frozen=True)
class MapConfig:
    """Configuration of the agent that draws a map; `MapConfig.of` fills in what a size implies."""

    architecture: str = "map"
    """"map"."""
    size: str = "big"
    """small: 4 layers of width 128. big: 6 layers of width 256."""
    dim: int = 256
    """Width of the transformer."""
    layers: int = 6
    """Number of layers."""
    heads: int = 4
    """Attention heads."""
    without: str = ""
    """Ablation: what to leave out, joined by "+": events, places, visits, history (the repetition penalty), map (but
    for the 7 x 7 cells in front)."""
    pixels: bool = False
    """Always False: it reads symbolic views."""

    def __post_init__(self) -> None:
        if self.size not in SIZES:
            raise ValueError(f"unknown size {self.size!r}; an agent is 'small' or 'big'")
        if not (0 < self.dim <= 4096 and 0 < self.layers <= 64 and self.heads > 0) or self.dim % self.heads:
            raise ValueError(
                f"dim must be a multiple of heads, up to 4096, and there are 1 to 64 layers, not dim {self.dim}, "
                f"heads {self.heads}, layers {self.layers}"
            )
        if not isinstance(self.without, str):
            raise ValueError(f"without must be a string such as 'events+visits', not {self.without!r}")
        if unknown := [part for part in self.left_out if part not in MAP_PARTS]:
            raise ValueError(f"a map agent cannot do without {unknown[0]!r}; choose from {', '.join(MAP_PARTS)}")
        if self.architecture != MAP or self.pixels:
            raise ValueError(f"a map agent has the architecture {MAP!r} and reads symbolic views")

    @property
    def left_out(self) -> tuple[str, ...]:
        """`without` as a list."""
        return tuple(filter(None, self.without.split("+")))

    @classmethod
    def of(cls, size: str = "big", **settings: object) -> "MapConfig":
        """The configuration of a size, with any of its settings changed."""
        _check_names(cls, settings)
        implied = {"dim": 128, "layers": 4, "heads": 2} if size == "small" else {}
        return replace(cls(size=size), **(implied | settings))  # pyright: ignore[reportArgumentType]


AnyConfig = AgentConfig | MapConfig | CustomConfig


def is_custom(architecture: str) -> bool:
    """Whether this is the import path of a class, rather than the name of one of the paper's architectures."""
    return is_import_path(architecture)


def read_config(data: Any) -> AnyConfig:
    """The configuration that `dataclasses.asdict` turned into plain data."""
    if not isinstance(data, dict) or not isinstance(data.get("architecture"), str):
        raise ValueError(f"a configuration must have an architecture, not {data!r}")
    plain: AnyConfig = AgentConfig()
    if data["architecture"] == MAP:
        plain = MapConfig()
    elif is_custom(data["architecture"]):
        plain = CustomConfig("")
    config_class = type(plain)
    _check_names(config_class, data)
    for name, value in data.items():
        expected = type(getattr(plain, name))
        if type(value) is not expected:
            raise ValueError(f"the setting {name!r} must be of type {expected.__name__}, not {value!r}")
    return config_class(**data)


def _check_names(config_class: type[AnyConfig], names: Iterable[str]) -> None:
    known = [each.name for each in fields(config_class)]
    for name in names:
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(known)}"
            raise ValueError(f"an agent has no setting {name!r}; {hint}")
