"""Hyperparameters and run settings; each field is also an option of `babyai train`.

Nothing here imports torch, so that `babyai train --help` is fast. Where a default follows from the agent's size or from
the protocol, the field is None and `resolve` fills it in.
"""

import json
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import tyro

from babyai.agents.config import MAP, AgentConfig, AnyConfig, MapConfig, is_custom
from babyai.seeds import VALIDATION_SEED

Rules = Literal["paper", "minigrid"]
Protocol = Literal["text", "code"]
BatchNorm = Literal["chunk", "step"]
# Help of options whose default is described in words: without "(default: None)".
DESCRIBED = tyro.conf.arg(help_behavior_hint="")
# Options that may differ when a run is resumed: how long, where and how visibly, but not what.
RESUME_MAY_CHANGE = (
    *("out", "device", "cuda_graphs", "max_minutes", "checkpoint_seconds", "save_dtype", "tensorboard", "quiet"),
    "checkpoint_dtype",
)
# Options that only apply to the paper's architectures.
FILM_LSTM_ONLY = ("memory_dim", "instruction", "direction", "last_action")


@dataclass(frozen=True)
class TrainingOptions:
    """Options of every algorithm: levels, architecture, device, checkpoints."""

    levels: str = "GoToLocal"
    """Level, or several separated by commas; `babyai levels` lists them. `all` for the paper's nineteen, or a level of
    your own, `file.py:Level`."""
    out: Annotated[str | None, DESCRIBED] = None
    """Run folder; default: runs/<algorithm>-<levels>-<architecture>-<size>-<seed>."""
    architecture: str = "bow_endpool_res"
    """Architecture: original, original_endpool, original_endpool_res, bow_endpool_res, pixels_endpool_res; map, the
    agent that draws a map; or a policy class of your own, `package.module:Class` or `file.py:Class`."""
    size: Literal["small", "big"] = "small"
    """Model size. small: GRU, LSTM with 128 units. big: bidirectional GRU with attention, LSTM with 2048 units. map: 4
    layers of width 128, or 6 of 256."""
    memory_dim: Annotated[int | None, DESCRIBED] = None
    """LSTM units, 0 for an agent without memory; default: 128 (small) or 2048 (big)."""
    instruction: bool = True
    """Instruction input: whether the agent reads its mission."""
    direction: bool = False
    """Direction input: whether the agent sees its compass heading."""
    last_action: bool = False
    """Last-action input: whether the agent sees its previous action."""
    settings: tuple[str, ...] = ()
    """Policy settings as name=value pairs, values in JSON: keyword arguments of your own class, or other settings of
    the paper's agents (word_dim=64)."""
    protocol: Protocol = "text"
    """Protocol: the paper's text, or the authors' code where the two differ (docs/training.md has the table)."""
    init_from: Annotated[str | None, DESCRIBED] = None
    """Initial weights: the folder of an agent or a run; default: random."""
    seed: int = 0
    """Random seed of the weights, the order of demonstrations, and sampled actions."""
    rules: Rules = "paper"
    """Rule set: the paper's world, or Minigrid 3.2.0 including its defects."""
    device: str = "auto"
    """Device: auto (a GPU if there is one), cpu, cuda, cuda:1."""
    precision: Literal["auto", "float32", "bf16"] = "auto"
    """Precision: bf16 is mixed precision with weights in float32; auto is bf16 on a GPU and on processors with bf16
    instructions, float32 elsewhere."""
    cuda_graphs: bool = True
    """CUDA graphs and torch.compile on a GPU."""
    max_minutes: Annotated[float | None, DESCRIBED] = None
    """Time limit in minutes, after which the run saves and stops (`babyai resume` continues it); default: none."""
    validation_episodes: int = 512
    """Episodes per level in each validation, with seeds from 10^9 on."""
    checkpoint_seconds: float = 60.0
    """Checkpoint interval in seconds; better agents are saved at once."""
    save_dtype: Literal["float32", "bf16"] = "float32"
    """Dtype of the best agent's weights on disk."""
    checkpoint_dtype: Literal["float32", "bf16"] = "float32"
    """Dtype of checkpoints on disk; bf16 halves them, but a resumed run is not exactly the same."""
    tensorboard: bool = False
    """TensorBoard: also write event files."""
    quiet: bool = False
    """Print nothing."""

    unit: ClassVar[str] = "demos"
    """What progress is counted in."""

    def __post_init__(self) -> None:
        names = self.level_names
        if len(set(names)) < len(names):
            raise ValueError(f"a level occurs more than once in {self.levels!r}")
        require_at_least_one(self, "validation_episodes")
        if self.seed < 0:
            raise ValueError(f"seed must not be negative, but is {self.seed}")
        self.policy_settings()

    @property
    def total(self) -> float:
        """How much there is to do, in `unit`."""
        raise NotImplementedError

    @property
    def level_names(self) -> list[str]:
        """The levels' names."""
        from babyai.envs.custom_levels import load_levels

        return [level.name for level in load_levels(self.levels, self.rules)]

    def policy_settings(self) -> dict[str, Any]:
        """The name=value pairs of `settings`, parsed."""
        parsed = {}
        for pair in self.settings:
            name, equals, value = pair.partition("=")
            if not equals or not name.isidentifier():
                raise ValueError(f"settings are name=value pairs, such as hidden=64, not {pair!r}")
            try:
                parsed[name] = json.loads(value)
            except ValueError:
                # A word without quotes is a string.
                parsed[name] = value
        return parsed

    def agent_config(self) -> AnyConfig:
        """The agent's configuration."""
        settings = self.policy_settings()
        if self.architecture == MAP:
            self._refuse_film_lstm_options()
            return MapConfig.of(self.size, **settings)
        if is_custom(self.architecture):
            from babyai.agents.custom import make_config

            if self.size != TrainingOptions.size:
                raise ValueError("--size: only for babyai's own architectures; your own class takes --settings")
            self._refuse_film_lstm_options()
            return make_config(self.architecture, **settings)
        chosen: dict[str, Any] = {name: getattr(self, name) for name in ("instruction", "direction", "last_action")}
        chosen["bag_of_words"] = "mean" if self.protocol == "text" else "sum"
        if self.memory_dim is not None:
            chosen["memory_dim"] = self.memory_dim
            if self.memory_dim == 0:
                chosen["attention"] = False
        return AgentConfig.of(self.architecture, self.size, **(chosen | settings))

    def _refuse_film_lstm_options(self) -> None:
        changed = [name for name in FILM_LSTM_ONLY if getattr(self, name) != getattr(TrainingOptions, name)]
        if changed:
            flags = ", ".join(f"--{name.replace('_', '-')}" for name in changed)
            raise ValueError(f"{flags}: only for the paper's architectures; others take --settings")

    def run_folder(self, algorithm: str) -> str:
        """The run's folder."""
        from babyai.envs.custom_levels import ALL_LEVELS, is_all

        architecture = self.architecture.rpartition(":")[2]
        size = [] if is_custom(self.architecture) else [self.size]
        levels = ALL_LEVELS if is_all(self.levels) else "+".join(self.level_names)
        names = [algorithm, levels, architecture, *size, str(self.seed)]
        return self.out or f"runs/{'-'.join(names)}"

    @property
    def resume_may_change(self) -> tuple[str, ...]:
        """The options that may differ when a run is resumed."""
        return RESUME_MAY_CHANGE


# ------------------------------------------------------------ imitation learning


@dataclass(frozen=True)
class ImitationOptions(TrainingOptions):
    """Imitation learning from demonstrations (paper, Appendix C)."""

    demos: Annotated[int | None, DESCRIBED] = None
    """Number of demonstrations of each level: the expert's, of as many seeds from `first_seed` on; default: none."""
    first_seed: int = 0
    """Seed of the first demonstration, with `demos`."""
    file: Annotated[str | None, DESCRIBED] = None
    """Demonstration file to use instead, or its first `demos` rows; default: none."""
    endless: bool = False
    """Endless demonstrations: new ones all the time, none seen twice."""
    level_weights: Annotated[str | None, DESCRIBED] = None
    """Sampling weights of several levels, separated by commas; default: equal."""
    epochs: int = 200
    """Maximum number of epochs."""
    patience: int = 100
    """Early stopping after more than this many validations without improvement."""
    batch_size: Annotated[int | None, DESCRIBED] = None
    """Batch size: a gradient step uses, on average, the frames of this many demonstrations; default: 256 (small) or 128
    (big)."""
    recurrence: Annotated[int | None, DESCRIBED] = None
    """Truncated backpropagation through time: steps that gradients flow back; default: 20 (small) or 80 (big)."""
    epoch_length: Annotated[int | None, DESCRIBED] = None
    """Epoch length in demonstrations, after which the agent is validated; default: 25,600 (small), 102,400 (big; code:
    51,200)."""
    learning_rate: Annotated[float | None, DESCRIBED] = None
    """Learning rate of Adam; default: 1e-4 (small) or 5e-5 (big)."""
    lr_decay: float = 0.9
    """Learning-rate decay: the factor applied every 100 epochs (authors' code)."""
    entropy_coef: Annotated[float | None, DESCRIBED] = None
    """Entropy coefficient; default: 0.01 (big), 0 (small; code: 0.01)."""
    batch_norm: Annotated[BatchNorm | None, DESCRIBED] = None
    """Batch-normalization statistics over a chunk of time steps, or over each step; default: chunk (code: step)."""
    threads: Annotated[int | None, DESCRIBED] = None
    """Threads that generate and replay demonstrations; default: the number of processors minus two."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.demos is None and self.file is None) != self.endless:
            raise ValueError("choose what to learn from: --demos N, --file FILE, or --endless")
        require_at_least_one(self, "demos", "epochs", "patience", "batch_size", "recurrence", "epoch_length", "threads")
        require_positive(self, "learning_rate", "lr_decay")
        if self.first_seed and (self.demos is None or self.file is not None):
            raise ValueError("first_seed is for demonstrations that the run collects: pass --demos N and no --file")
        if not 0 <= self.first_seed <= VALIDATION_SEED - (self.demos or 0):
            raise ValueError(
                f"demonstrations have seeds from 0 to 10^9 - 1, not {self.demos} seeds from {self.first_seed} on"
            )
        self.parse_level_weights()

    @property
    def resume_may_change(self) -> tuple[str, ...]:
        """The options that may differ when a run is resumed."""
        return (*super().resume_may_change, "epochs", "patience", "threads")

    @property
    def total(self) -> float:
        """Number of demonstrations until the last epoch ends."""
        return self.epochs * self.resolve().epoch_length

    def parse_level_weights(self) -> dict[str, float] | None:
        """The sampling weight of each level; None if equal."""
        if self.level_weights is None:
            return None
        try:
            weights = [float(weight) for weight in self.level_weights.split(",")]
        except ValueError:
            raise ValueError(f"level weights are numbers separated by commas, not {self.level_weights!r}") from None
        if len(weights) != len(self.level_names):
            raise ValueError(f"got {len(weights)} level weights for {len(self.level_names)} levels")
        if min(weights) < 0 or not 0 < sum(weights) < float("inf"):
            raise ValueError(f"level weights must be non-negative and not all zero, not {self.level_weights!r}")
        return dict(zip(self.level_names, weights, strict=True))

    def resolve(self) -> "ImitationHyperparameters":
        """The hyperparameters, with the defaults of size and protocol filled in."""
        big = self.size == "big"
        code = self.protocol == "code"
        return ImitationHyperparameters(
            batch_size=self.batch_size or (128 if big else 256),
            recurrence=self.recurrence or (80 if big else 20),
            epoch_length=self.epoch_length or ((51_200 if code else 102_400) if big else 25_600),
            learning_rate=self.learning_rate or (5e-5 if big else 1e-4),
            entropy_coef=self.entropy_coef if self.entropy_coef is not None else (0.01 if big or code else 0.0),
            batch_norm=self.batch_norm or ("step" if code else "chunk"),
        )


@dataclass(frozen=True)
class ImitationHyperparameters:
    """What `ImitationOptions` and its protocol come to."""

    batch_size: int
    recurrence: int
    epoch_length: int
    learning_rate: float
    entropy_coef: float
    batch_norm: BatchNorm

    @property
    def updates_per_epoch(self) -> int:
        """Gradient steps per epoch."""
        return max(1, self.epoch_length // self.batch_size)


# ------------------------------------------------------------ DAgger


@dataclass(frozen=True)
class DaggerOptions(ImitationOptions):
    """DAgger: imitation learning on states that the agent itself visits, labeled by the expert."""

    roll_in_fraction: float = 0.5
    """Roll-in fraction: the part of each batch that the agent plays itself; the rest are demonstrations."""
    greedy: bool = False
    """Greedy roll-ins: play the argmax action rather than sample from the policy."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.roll_in_fraction < 1:
            raise ValueError(f"roll_in_fraction must be between 0 and 1, not {self.roll_in_fraction}")


@dataclass(frozen=True)
class OnlineDaggerOptions(TrainingOptions):
    """Large-scale DAgger: thousands of worlds, a replay buffer on the device, expert and agent taking turns."""

    architecture: str = "map"
    """Architecture: map, an agent that draws a map; its memory needs no gradients."""
    size: Literal["small", "big"] = "big"
    """Model size: 4 layers of width 128 (small), or 6 of 256 (big)."""
    frames: int = 100_000_000
    """Maximum number of frames to learn from."""
    worlds: int = 4096
    """Parallel environments; all of them make one step during each gradient step."""
    batch_size: int = 4096
    """Batch size in frames."""
    buffer_size: int = 1_000_000
    """Replay buffer in frames (3 kB each), on the device; a tenth more holds frames of revisits."""
    min_buffer: int = 100_000
    """Replay buffer's size in frames before the first gradient step."""
    learning_rate: float = 8e-4
    """Learning rate of AdamW, constant between warm-up and decay."""
    warm_up: int = 300
    """Learning-rate warm-up in gradient steps."""
    decay_frames: int = 0
    """Learning-rate decay: number of last frames over which it falls linearly to zero."""
    weight_decay: float = 1e-4
    """Weight decay of AdamW."""
    max_grad_norm: float = 1.0
    """Gradient clipping: maximum norm."""
    ema_decay: float = 0.999
    """EMA decay: exponential moving average of the weights, which is what is validated and saved."""
    progress_coef: float = 0.2
    """Auxiliary-loss coefficient: predict which parts of the mission are done."""
    path_coef: float = 0.2
    """Auxiliary-loss coefficient: predict the teacher's goal and the path to it."""
    expert_until: float = 0.94
    """Expert-only roll-ins until the label accuracy reaches this; not with --init-from."""
    expert_frames: Annotated[int | None, DESCRIBED] = None
    """Expert-only roll-ins end after this many frames at the latest, at the next log row; not with --init-from;
    default: no limit."""
    take_over: float = 0.03
    """Take-over probability: per step, that the agent takes over from the expert."""
    hand_back: float = 0.02
    """Hand-back probability: per step, that the agent hands back to the expert."""
    solo: float = 0.3
    """Solo fraction: episodes that the agent plays alone, with argmax actions, until it succeeds or has failed."""
    max_disagreements: int = 30
    """Solo episodes fail after this many disagreements with the expert, or if too slow; then the expert acts."""
    revisit_fraction: float = 0.08
    """Revisit fraction: part of each batch drawn from frames in which the agent is back in an earlier pose."""
    checkpoint_dtype: Literal["float32", "bf16"] = "bf16"
    """Dtype of checkpoints on disk; bf16 halves them, and worlds and buffer are not kept anyway."""
    validate_every: int = 10
    """Validation interval in log rows (of 100 updates), always on the same episodes; 0 for none."""
    threads: Annotated[int | None, DESCRIBED] = None
    """Threads that play and label; default: the number of processors minus two."""

    unit: ClassVar[str] = "frames"

    def __post_init__(self) -> None:
        super().__post_init__()
        names = ("frames", "worlds", "batch_size", "buffer_size", "min_buffer", "expert_frames", "warm_up", "threads")
        require_at_least_one(self, *names, "max_disagreements")
        require_positive(self, "learning_rate", "max_grad_norm")
        if self.buffer_size < self.worlds:
            raise ValueError(
                f"buffer_size must be at least the number of worlds, {self.worlds}, not {self.buffer_size}"
            )
        for name in ("weight_decay", "progress_coef", "path_coef", "validate_every", "decay_frames"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, but is {getattr(self, name)}")
        for name in ("take_over", "hand_back", "solo", "ema_decay", "expert_until", "revisit_fraction"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be between 0 and 1, not {getattr(self, name)}")

    @property
    def resume_may_change(self) -> tuple[str, ...]:
        """The options that may differ when a run is resumed."""
        names = ("frames", "validate_every", "threads", "solo", "learning_rate", "decay_frames", "ema_decay")
        return (*super().resume_may_change, *names, "revisit_fraction", "max_disagreements")

    @property
    def total(self) -> float:
        """Number of frames."""
        return self.frames


# ------------------------------------------------------------ PPO


@dataclass(frozen=True)
class PPOHyperparameters:
    """Hyperparameters of Appendix B; those that the paper does not give are from the authors' code."""

    worlds: int = 64
    """Parallel environments."""
    steps: int = 40
    """Rollout length: steps per environment and update."""
    recurrence: int = 20
    """Truncated backpropagation through time: steps that gradients flow back."""
    minibatches: int = 2
    """Minibatches per epoch (1,280 frames each in the paper)."""
    epochs: int = 4
    """Epochs: passes over each rollout."""
    learning_rate: float = 1e-4
    """Learning rate of Adam; 5e-5 in the paper's second table of visual representations."""
    discount: float = 0.99
    """Discount factor (gamma)."""
    gae_lambda: float = 0.99
    """GAE lambda: generalized advantage estimation."""
    clip_coef: float = 0.2
    """Clipping coefficient (epsilon) of the policy ratio and of the value."""
    value_coef: float = 0.5
    """Value-loss coefficient."""
    entropy_coef: float = 0.01
    """Entropy coefficient."""
    reward_scale: float = 20.0
    """Reward scaling factor (authors' code)."""
    max_grad_norm: float = 0.5
    """Gradient clipping: maximum norm."""

    def __post_init__(self) -> None:
        require_at_least_one(self, "worlds", "steps", "recurrence", "minibatches", "epochs")
        require_positive(self, "learning_rate", "max_grad_norm")
        if self.steps % self.recurrence:
            raise ValueError(f"steps must be a multiple of recurrence, but {self.steps} is none of {self.recurrence}")
        if self.num_chunks % self.minibatches:
            raise ValueError(
                f"the {self.num_chunks} chunks of a rollout cannot be divided into {self.minibatches} minibatches"
            )

    @property
    def num_chunks(self) -> int:
        """Chunks of `recurrence` steps in a rollout."""
        return self.worlds * (self.steps // self.recurrence)

    @property
    def frames_per_update(self) -> int:
        """Frames in a rollout."""
        return self.worlds * self.steps


@dataclass(frozen=True)
class PPOOptions(PPOHyperparameters, TrainingOptions):
    """Proximal policy optimization from reward (paper, Appendix B)."""

    frames: int = 50_000_000
    """Maximum number of frames."""
    batch_norm: Annotated[BatchNorm | None, DESCRIBED] = None
    """Batch-normalization statistics over a chunk of time steps, or over each step; default: chunk (code: step)."""
    validate_every: int = 50
    """Validation interval in updates, always on the same episodes; 0 for none."""
    window: Annotated[int | None, DESCRIBED] = None
    """Smoothing window in log rows for the sample efficiency; default: 100, or 10 for GoToRedBallGrey."""
    stop_when_solved: bool = True
    """Early stopping once both sample efficiencies are known."""

    unit: ClassVar[str] = "frames"

    def __post_init__(self) -> None:
        from babyai.seeds import VALIDATION_SEED, ppo_seed

        TrainingOptions.__post_init__(self)
        PPOHyperparameters.__post_init__(self)
        require_at_least_one(self, "frames", "window")
        if self.validate_every < 0:
            raise ValueError(f"validate_every must not be negative, but is {self.validate_every}")
        if ppo_seed(self.seed) + self.worlds > VALIDATION_SEED:
            raise ValueError(f"seed {self.seed} would train on episodes reserved for validation (seeds from 10^9)")

    @property
    def resume_may_change(self) -> tuple[str, ...]:
        """The options that may differ when a run is resumed."""
        return (*super().resume_may_change, "frames", "stop_when_solved", "validate_every")

    @property
    def total(self) -> float:
        """Number of frames."""
        return self.frames

    def resolve_batch_norm(self) -> BatchNorm:
        """The batch-normalization statistics, with the protocol's default filled in."""
        return self.batch_norm or ("step" if self.protocol == "code" else "chunk")


def require_at_least_one(options: object, *names: str) -> None:
    """Raises if one of these options is a number below 1."""
    for name in names:
        if (value := getattr(options, name)) is not None and value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}")


def require_positive(options: object, *names: str) -> None:
    """Raises if one of these options is not positive."""
    for name in names:
        if (value := getattr(options, name)) is not None and not value > 0:
            raise ValueError(f"{name} must be positive, not {value}")
