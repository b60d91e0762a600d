"""The training loop that imitation learning, DAgger and PPO share.

An `Algorithm` is what it adds: where its data comes from, its loss, and what it reports. `fit` does the rest: the run's
folder, validation, the best checkpoint, log rows, time limits, Ctrl-C, and resuming to the bit.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import import_module
from pathlib import Path
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from babyai.agents.checkpoint import load_config, load_tensors, load_weights, write_agent
from babyai.agents.config import AnyConfig
from babyai.agents.custom import build_policy
from babyai.agents.device import Precision, find_precision, place_model
from babyai.evaluation.evaluate import Evaluation, evaluate_levels
from babyai.evaluation.players import AgentPlayer
from babyai.seeds import VALIDATION_SEED
from babyai.training.distributed import ProcessGroup, count_processes
from babyai.training.interrupts import catch_interrupts
from babyai.training.learner import Learner
from babyai.training.optimizer import load_optimizer, save_optimizer
from babyai.training.options import TrainingOptions
from babyai.training.progress import Display, Panel
from babyai.training.run import Checkpoint, Run, RunError
from babyai.training.saved_state import check_structure

Stop = Callable[[], bool]
# The name of torch's generator state in a checkpoint.
GENERATOR = "generator"
# The class of each algorithm.
ALGORITHMS = {
    "imitation": "babyai.training.imitation:Imitation",
    "dagger": "babyai.training.dagger:Dagger",
    "online-dagger": "babyai.training.online_dagger:OnlineDagger",
    "ppo": "babyai.training.ppo:PPORun",
}

logger = logging.getLogger(__name__)


class Algorithm(ABC):
    """What an algorithm adds to the training loop.

    Attributes:
        learner: Makes the gradient steps.
        num_updates: Calls of `update` so far; kept by `fit`.
        validations_since_best: Validations without improvement; kept by `fit`.
        frames_per_update: Frames that an update learns from.
        updates_per_row: Updates between two log rows.
    """

    name: ClassVar[str]
    """The name of the command and of run folders."""
    fresh_validation: ClassVar[bool] = False
    """Whether each validation plays new episodes, rather than always the same."""
    validation_metric: ClassVar[str] = "success"
    """The name of the validation's success rate in log rows."""
    reward_breaks_ties: ClassVar[bool] = False
    """Whether, of two agents with the same success rate, the one with the higher reward is better."""
    supports_torchrun: ClassVar[bool] = False
    """Whether several processes can train one agent; see `babyai.training.distributed`."""

    learner: Learner
    frames_per_update: int
    updates_per_row: int
    num_updates: int = 0
    validations_since_best: int = 0

    @abstractmethod
    def __init__(self, session: "Session") -> None:
        """Opens the data and builds the learner for `session.policy`."""

    @staticmethod  # noqa: B027
    def check_options(options: Any) -> None:
        """Raises if the options cannot be used; called before the run's folder is created."""

    @abstractmethod
    def update(self) -> None:
        """One update: one or more gradient steps."""

    @abstractmethod
    def metrics(self) -> dict[str, Any]:
        """What to log, covering the updates since the last call; waits for the device."""

    @property
    @abstractmethod
    def progress(self) -> float:
        """How much has been done, in the unit of the options."""

    @abstractmethod
    def is_finished(self) -> bool:
        """Whether training has reached its end."""

    def should_validate(self) -> bool:
        """Whether to validate at this log row."""
        return True

    def gather(self) -> None:  # noqa: B027
        """Makes `tensors` of process 0 complete before it saves, where several processes train."""

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint must hold besides policy and optimizer: tensors, restored in place."""
        return {}

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint must hold besides: anything JSON can hold."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:  # noqa: B027
        """Restores what `state_dict` returned; tensors have been restored already."""

    def close(self) -> None:  # noqa: B027
        """Stops threads."""


def fit(
    options: TrainingOptions,
    algorithm_class: type[Algorithm],
    *,
    resume: bool = False,
    display: Display | None = None,
    stop: Stop = lambda: False,
) -> "Session":
    """Trains until the algorithm is finished, the time is over, or it is asked to stop.

    Args:
        options: Options of the algorithm.
        algorithm_class: The algorithm.
        resume: Continue the run in the folder, from its newest checkpoint.
        display: Where to show progress; default: a panel on the terminal.
        stop: Called after each update; True stops the run, which can be resumed.

    Returns:
        The session, closed; everything that matters is in its folder.
    """
    if count_processes() > 1 and not algorithm_class.supports_torchrun:
        raise ValueError(f"torchrun trains by imitation only, not by {algorithm_class.name}; start it without torchrun")
    algorithm_class.check_options(options)
    with Session(options, algorithm_class.name, resume, display) as session:
        algorithm = algorithm_class(session)
        for name in ("learner", "frames_per_update", "updates_per_row"):
            if not hasattr(algorithm, name):
                raise AttributeError(f"{algorithm_class.__name__}.__init__ must set {name}; see babyai.training.fit")
        try:
            session.restore(algorithm)
            _train(session, algorithm, stop)
        finally:
            algorithm.close()
    return session


def _train(session: "Session", algorithm: Algorithm, stop: Stop) -> None:
    started = time.perf_counter()
    first_update = algorithm.num_updates
    ending = algorithm.is_finished()
    while not ending:
        algorithm.update()
        algorithm.num_updates += 1
        session.show_progress(algorithm.progress)

        is_best = False
        if algorithm.num_updates % algorithm.updates_per_row == 0:
            if session.device.type == "cuda":
                torch.cuda.synchronize()
            row = algorithm.metrics()
            seconds = time.perf_counter() - started
            frames = (algorithm.num_updates - first_update) * algorithm.frames_per_update
            row |= {"seconds": seconds, "frames_per_second": frames / seconds}
            if session.group.is_first:
                if algorithm.should_validate():
                    is_best = _validate(session, algorithm, row)
                session.log(algorithm.progress, row)
            started = time.perf_counter()
            first_update = algorithm.num_updates
        ending = algorithm.is_finished() or session.should_stop(stop)
        saving = is_best or ending or session.is_checkpoint_due()
        # Process 0 has validated, and its clock counts.
        ending, saving = session.group.broadcast((ending, saving))
        if saving:
            algorithm.gather()
            if session.group.is_first:
                session.save(algorithm, is_best)
    session.finished = algorithm.is_finished()


def _validate(session: "Session", algorithm: Algorithm, row: dict[str, Any]) -> bool:
    """Adds a validation to a log row; returns whether the agent is the best so far."""
    results = session.validate(algorithm.fresh_validation)
    success = sum(result.success_rate for result in results.values()) / len(results)
    reward = sum(result.mean_reward for result in results.values()) / len(results)
    row[algorithm.validation_metric] = success
    row["validation_seconds"] = sum(result.seconds for result in results.values())
    row["levels"] = {level: result.to_dict() for level, result in results.items()}
    score = (success, reward if algorithm.reward_breaks_ties else 0.0)
    is_best = score > session.best
    session.best = max(score, session.best)
    algorithm.validations_since_best = 0 if is_best else algorithm.validations_since_best + 1
    return is_best


class Session:
    """A run in progress: its folder, its policy on its device, the processes that train it, the best validation so far.

    Args:
        options: Options of the algorithm.
        algorithm: The algorithm's name.
        resume: Whether to continue the run in the folder.
        display: Where to show progress; default: a panel of its own.
    """

    def __init__(
        self, options: TrainingOptions, algorithm: str, resume: bool = False, display: Display | None = None
    ) -> None:
        self.options = options
        self.agent_config = options.agent_config()
        self.group = ProcessGroup.join(options.device)
        self.device = self.group.device
        precision = None if options.precision == "auto" else options.precision
        self.precision: Precision = find_precision(precision, self.device, training=True)
        # For the initial weights, and for layers that draw random numbers.
        torch.manual_seed(options.seed)
        policy = build_policy(self.agent_config)
        if options.init_from is not None and not resume:
            initialize_from(policy, self.agent_config, options.init_from)
        self.policy: nn.Module = place_model(policy, self.device)
        # Success rate and mean reward.
        self.best = (-1.0, 0.0)
        self.validations = 0
        self.evaluated = self.policy
        self.finished = False
        self._player = AgentPlayer(self.policy, precision=self.precision)
        self._started = time.monotonic()
        self._last_save = time.monotonic()
        with ExitStack() as stack:
            stack.callback(self.group.close)
            self.run = stack.enter_context(self._open_run(algorithm, resume))
            # A run that is resumed may have been killed before its first checkpoint.
            if options.init_from is not None and resume and self.run.latest() is None:
                initialize_from(self.policy, self.agent_config, options.init_from)
            self._interrupted = stack.enter_context(catch_interrupts())
            if display is None:
                title = f"{algorithm} {options.levels}"
                quiet = options.quiet or not self.group.is_first
                display = stack.enter_context(Panel(options.total, options.unit, title, quiet=quiet))
            self._display = display
            self._stack = stack.pop_all()

    def _open_run(self, algorithm: str, resume: bool) -> Run:
        folder = self.options.run_folder(algorithm)
        config = asdict(self.options)
        with self.group.first_alone():
            if not self.group.is_first:
                # Process 0 has prepared it, and writes to it.
                return Run(folder)
            return self._open_own_run(folder, config, algorithm, resume)

    def _open_own_run(self, folder: str, config: dict[str, Any], algorithm: str, resume: bool) -> Run:
        if not resume:
            return Run.create(folder, config, algorithm, tensorboard=self.options.tensorboard)
        return Run.resume(
            folder,
            config,
            algorithm,
            may_change=self.options.resume_may_change,
            defaults={field.name: field.default for field in fields(self.options) if field.default is not MISSING},
            tensorboard=self.options.tensorboard,
        )

    @property
    def folder(self) -> Path:
        """The run's folder."""
        return self.run.folder

    @property
    def interrupted(self) -> bool:
        """Whether the run was stopped before its end."""
        return self.run.interrupted

    @property
    def best_success(self) -> float:
        """The best success rate in validation; negative before the first validation."""
        return self.best[0]

    # ------------------------------------------------------------ validation

    def evaluate_instead(self, policy: nn.Module) -> None:
        """Validates and saves this policy instead of the one that is trained, which the algorithm saves itself."""
        self.evaluated = policy
        self._player = AgentPlayer(policy, precision=self.precision)

    def validate(self, fresh: bool) -> dict[str, Evaluation]:
        """Plays the validation episodes of each level, new ones each time if `fresh`."""
        episodes = self.options.validation_episodes
        first_seed = VALIDATION_SEED + (self.validations * episodes if fresh else 0)
        levels = self.options.level_names
        results = evaluate_levels(
            self._player, levels, missions=episodes, first_seed=first_seed, rules=self.options.rules
        )
        self.validations += 1
        return results

    # ------------------------------------------------------------ checkpoints

    def restore(self, algorithm: Algorithm) -> None:
        """Brings policy, optimizer and algorithm to where the run's newest checkpoint was, if there is one."""
        self.group.broadcast_tensors([*self.policy.parameters(), *self.policy.buffers()])
        latest = self.run.latest()
        if latest is None:
            return
        try:
            self._load(algorithm, latest)
        except (KeyError, IndexError, TypeError, AttributeError, OverflowError, RuntimeError, ValueError) as error:
            # A checkpoint is whole as a file, but may come from elsewhere, or from another version.
            raise RunError(f"the checkpoint {latest.folder} does not fit this run: {error}") from error
        self._display.begin_at(algorithm.progress)

    def _load(self, algorithm: Algorithm, latest: Checkpoint) -> None:
        load_tensors(self.evaluated, latest.model, f"the checkpoint {latest.folder}")
        load_optimizer(algorithm.learner.optimizer, self.policy, latest.tensors)
        torch.set_rng_state(latest.tensors[GENERATOR])
        with torch.no_grad():
            for name, tensor in algorithm.tensors().items():
                tensor.copy_(latest.tensors[name])
        algorithm.learner.mixed.update_weights()
        state = latest.state
        check_structure(state["algorithm"], algorithm.state_dict(), "algorithm")
        algorithm.load_state_dict(state["algorithm"])
        algorithm.num_updates = int(state["update"])
        algorithm.validations_since_best = int(state["validations_since_best"])
        self.best = (float(state["best"][0]), float(state["best"][1]))
        self.validations = int(state["validations"])

    def save(self, algorithm: Algorithm, is_best: bool) -> None:
        """Writes a checkpoint."""
        tensors = save_optimizer(algorithm.learner.optimizer, self.policy) | algorithm.tensors()
        state = {
            "update": algorithm.num_updates,
            "validations_since_best": algorithm.validations_since_best,
            "best": self.best,
            "validations": self.validations,
            "algorithm": algorithm.state_dict(),
        }
        if is_best:
            # Before the checkpoint: killed in between, the run repeats this update, and the best is best again.
            self.run.save_best(
                algorithm.num_updates,
                lambda path: write_agent(path, self.evaluated, self.agent_config, dtype=self.options.save_dtype),
            )
        self.run.save(
            algorithm.num_updates,
            lambda path: write_agent(path, self.evaluated, self.agent_config, dtype=self.options.checkpoint_dtype),
            tensors | {GENERATOR: torch.get_rng_state()},
            state,
            self.options.checkpoint_dtype,
        )
        self._last_save = time.monotonic()

    def is_checkpoint_due(self) -> bool:
        """Whether the last checkpoint is old enough."""
        return time.monotonic() - self._last_save >= self.options.checkpoint_seconds

    def should_stop(self, stop: Stop) -> bool:
        """Whether Ctrl-C was pressed, the time is over, or `stop` returns True."""
        limit = self.options.max_minutes
        late = limit is not None and time.monotonic() - self._started > 60 * limit
        if stop() or self._interrupted.is_set():
            self.run.interrupted = True
        return late or self.run.interrupted

    # ------------------------------------------------------------ progress

    def show_collecting(self, done: int, total: int) -> None:
        """Shows how many demonstrations have been collected."""
        self._display.note(f"collecting, {done:,} of {total:,} demonstrations" if done < total else "")

    def show_progress(self, done: float) -> None:
        """Shows how much has been done."""
        self._display.advance(min(done, self.options.total))

    def log(self, done: float, row: dict[str, Any]) -> None:
        """Writes a log row, and shows it."""
        self.run.log(row)
        self._display.update(min(done, self.options.total), row)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._stack.close()


def initialize_from(policy: nn.Module, config: AnyConfig, path: str) -> None:
    """Gives a policy the weights of an agent or a run; warns if that agent has another configuration."""
    load_weights(policy, path)
    theirs = asdict(load_config(path))
    ours = asdict(config)
    differences = [
        f"{name} is {theirs.get(name)!r} there and {ours.get(name)!r} here"
        for name in sorted(theirs | ours)
        if theirs.get(name) != ours.get(name)
    ]
    if differences:
        logger.warning("the weights of %s fit, but belong to another agent: %s", path, "; ".join(differences))


# ------------------------------------------------------------ by name


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    folder: str
    best_success: float
    """The best success rate in validation; negative without one."""
    validations: int
    interrupted: bool
    """Whether it was stopped before its end."""
    error: str | None = None
    """Why it failed."""
    finished: bool = True
    """Whether training reached its end; otherwise the run can be resumed."""


def find_algorithm(name: str) -> Any:
    """The algorithm's class."""
    module, _, attribute = ALGORITHMS[name].partition(":")
    return getattr(import_module(module), attribute)


def train_one(algorithm: str, options: TrainingOptions, resume: bool = False, display: Any = None) -> RunResult:
    """Trains in this process."""
    session = fit(options, find_algorithm(algorithm), resume=resume, display=display)
    return RunResult(
        str(session.folder),
        session.best_success,
        session.validations,
        session.interrupted,
        finished=session.finished,
    )
