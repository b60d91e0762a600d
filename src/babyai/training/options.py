"""What all ways of training can be asked for; each field is also an option of `babyai train`."""

from dataclasses import dataclass
from typing import Any, Literal

from babyai.agents.config import AgentConfig, AnyConfig, is_custom
from babyai.levels.catalog import Rules, find_level

Protocol = Literal["text", "code"]


@dataclass(frozen=True)
class TrainingOptions:
    """Who learns what, where, and what is kept of it."""

    levels: str = "GoToLocal"
    """One level, or several with commas between; `babyai levels` lists them."""
    out: str | None = None
    """The run's folder; `runs/<kind>-<levels>-<architecture>-<size>-<seed>` unless told."""
    resume: bool = False
    """Go on with the run in that folder, where it was when it stopped or was killed."""
    architecture: str = "bow_endpool_res"
    """original, original_endpool, original_endpool_res, bow_endpool_res or pixels_endpool_res; or a model of your own,
    `package.module:Class` or `file.py:Class`."""
    size: Literal["small", "big"] = "small"
    """small: GRU, LSTM 128. big: bidirectional GRU with attention, LSTM 2048."""
    memory_dim: int | None = None
    """The width of the LSTM, 0 for none; what the size says unless told."""
    instruction: bool = True
    """Whether the agent is told what to do."""
    direction: bool = False
    """Whether the agent is told its compass heading."""
    last_action: bool = False
    """Whether the agent is told what it did last."""
    protocol: Protocol = "text"
    """Where the paper's text and the authors' code differ, which to follow; docs/training.md has the table."""
    init_from: str | None = None
    """The folder of an agent or a run whose weights to begin with."""
    seed: int = 0
    """Decides the first weights, the order of demonstrations, and what is drawn."""
    rules: Rules = "paper"
    """The world of the paper, or Minigrid 3.2.0 with its defects."""
    device: str = "auto"
    """auto (the GPU, if there is one), cpu, cuda, cuda:1."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """auto is bf16 on a GPU, with weights kept in float32, and float32 elsewhere."""
    fast: bool = True
    """On a GPU, compile the model and record its kernels; without it, the same one by one."""
    max_minutes: float | None = None
    """Stop after so many minutes; `--resume` goes on."""
    validation_missions: int = 512
    """How many missions each validation plays, with seeds from 10^9 on."""
    save_seconds: float = 60.0
    """A checkpoint is written at least this often, and whenever the agent is better than before."""
    save_dtype: Literal["float32", "bf16"] = "float32"
    """The precision of the best agent's file; what resuming needs is always float32."""
    max_part_mib: int | None = None
    """Write weights in files no larger than this many MiB."""
    tensorboard: bool = False
    """Also write what TensorBoard reads."""
    quiet: bool = False
    """Show nothing."""

    def __post_init__(self) -> None:
        names = self.level_names
        if len(set(names)) < len(names):
            raise ValueError(f"a level is named more than once in {self.levels!r}")
        check_counts(self, "validation_missions", "max_part_mib")
        if self.seed < 0:
            raise ValueError(f"seed must be from 0 on, not {self.seed}")

    @property
    def total(self) -> float:
        """How much there is to do."""
        raise NotImplementedError

    @property
    def unit(self) -> Literal["demos", "frames"]:
        """What that is counted in."""
        return "demos"

    @property
    def level_names(self) -> list[str]:
        """The levels, by their right names."""
        return [find_level(name.strip(), self.rules).name for name in self.levels.split(",")]

    def agent_config(self) -> AnyConfig:
        """What the agent is made of."""
        if is_custom(self.architecture):
            from babyai.agents.custom import make_config

            changed = [name for name in PAPERS_OWN if getattr(self, name) != getattr(TrainingOptions, name)]
            if changed:
                raise ValueError(
                    f"{', '.join(changed)} only apply to the paper's architectures, not to a model of yours"
                )
            return make_config(self.architecture)
        settings: dict[str, Any] = {name: getattr(self, name) for name in ("instruction", "direction", "last_action")}
        settings["bag_of_words"] = "mean" if self.protocol == "text" else "sum"
        if self.memory_dim is not None:
            settings["memory_dim"] = self.memory_dim
            settings |= {"attention": False} if self.memory_dim == 0 else {}
        return AgentConfig.of(self.architecture, self.size, **settings)

    def run_folder(self, kind: str) -> str:
        """Where the run is kept."""
        names = [kind, "+".join(self.level_names), self.architecture.rpartition(":")[2], self.size, str(self.seed)]
        return self.out or f"runs/{'-'.join(names)}"

    @property
    def max_part_bytes(self) -> int | None:
        """The largest file of weights."""
        return None if self.max_part_mib is None else self.max_part_mib * 2**20

    @property
    def may_differ(self) -> tuple[str, ...]:
        """What may be otherwise when a run is resumed: how long, where and how visibly, but not what."""
        return MAY_DIFFER


def check_counts(options: object, *names: str) -> None:
    """Raises if one of these settings is a number below 1."""
    for name in names:
        if (value := getattr(options, name)) is not None and value < 1:
            raise ValueError(f"{name} must be from 1 on, not {value}")


def check_positive(options: object, *names: str) -> None:
    """Raises if one of these settings is not above 0."""
    for name in names:
        if (value := getattr(options, name)) is not None and not value > 0:
            raise ValueError(f"{name} must be above 0, not {value}")


# Options that make no sense for a model of one's own, which is always told heading and last action.
PAPERS_OWN = ("size", "memory_dim", "instruction")
MAY_DIFFER = (
    *("out", "resume", "device", "fast", "save_seconds", "save_dtype", "max_part_mib", "tensorboard", "quiet"),
    "max_minutes",
)
