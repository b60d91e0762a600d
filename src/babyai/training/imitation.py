"""Imitation, as in appendix C of the paper: do in each state what the demonstration did.

Demonstrations are laid end to end into lanes (see `babyai.demos.replay`); an update is one chunk of T steps of all
lanes, and there are as many lanes as make it, on average, the frames of the paper's batch.
"""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from babyai.agents.actor import observe_for
from babyai.agents.unroll import Statistics
from babyai.demos.collect import collect
from babyai.demos.replay import Kind, Replay
from babyai.demos.sources import RESERVED, DemoSource, ExpertSource, FileSource, Mixture
from babyai.demos.store import DemoFile
from babyai.training.feed import Feed, page_locked
from babyai.training.learner import ImitationLearner
from babyai.training.optimizer import set_learning_rate
from babyai.training.options import TrainingOptions, check_counts, check_positive
from babyai.training.panel import Panel
from babyai.training.session import Session, Stop
from babyai.training.turns import Turns, finish, waiting

AHEAD = 3
# Over how many demonstrations of a source without end their length is averaged.
MEASURED = 1024
# Runs with other seeds are shown other demonstrations: each has so many of its own, below the seeds that DAgger plays.
ENDLESS_SEEDS, ENDLESS_RUNS = 10_000_000, 50


@dataclass(frozen=True)
class ImitationOptions(TrainingOptions):
    """Learn from demonstrations (appendix C). Options that are not given follow from the size, as in the paper."""

    demos: int | None = None
    """How many demonstrations to learn from: those of the seeds 0, 1, 2, ... of each level."""
    file: str | None = None
    """A file of demonstrations instead, of which the first `demos` are used (all, unless told)."""
    endless: bool = False
    """New demonstrations for ever, none seen twice."""
    weights: str | None = None
    """How often each of several levels comes up, as numbers with commas between; equally often unless told."""
    epochs: int = 200
    """At most so many."""
    patience: int = 100
    """Stop after so many validations without a better one."""
    batch: int | None = None
    """An update sees, on average, the frames of so many demonstrations: 256 (small) or 128 (big)."""
    recurrence: int | None = None
    """Over how many steps gradients flow back: 20 (small) or 80 (big)."""
    epoch_demos: int | None = None
    """How many make an epoch, after which the agent is validated: 25 600 (small), 102 400 (big; code 51 200)."""
    learning_rate: float | None = None
    """Adam's: 1e-4 (small) or 5e-5 (big)."""
    decay: float = 0.9
    """The rate is multiplied by this every 100 epochs (the authors' code)."""
    entropy: float | None = None
    """What an undecided policy is worth: 0.01 (big), 0 (small; code 0.01)."""
    statistics: Statistics | None = None
    """What batch norm averages over: the whole chunk, or one time step (code)."""
    threads: int | None = None
    """How many threads make demonstrations and replay them; one for each processor but two, unless told."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if (self.demos is None and self.file is None) != self.endless:
            raise ValueError("say what to learn from: --demos N, --file FILE, or --endless")
        check_counts(self, "demos", "epochs", "patience", "batch", "recurrence", "epoch_demos", "threads")
        check_positive(self, "learning_rate", "decay")
        if self.weights is not None:
            Mixture(list((read_weights(self) or {}).values()), 0)

    @property
    def may_differ(self) -> tuple[str, ...]:
        """What may be otherwise when a run is resumed."""
        return (*super().may_differ, "epochs", "patience", "threads")

    @property
    def total(self) -> float:
        """How many demonstrations there are to be seen."""
        return self.epochs * self.resolve().epoch_demos

    def resolve(self) -> "Resolved":
        """The numbers that follow from size and protocol, where none were given."""
        big, code = self.size == "big", self.protocol == "code"
        return Resolved(
            batch=self.batch or (128 if big else 256),
            recurrence=self.recurrence or (80 if big else 20),
            epoch_demos=self.epoch_demos or ((51_200 if code else 102_400) if big else 25_600),
            learning_rate=self.learning_rate or (5e-5 if big else 1e-4),
            entropy=self.entropy if self.entropy is not None else (0.01 if big or code else 0.0),
            statistics=self.statistics or ("step" if code else "chunk"),
        )


@dataclass(frozen=True)
class Resolved:
    """The protocol's numbers."""

    batch: int
    recurrence: int
    epoch_demos: int
    learning_rate: float
    entropy: float
    statistics: Statistics

    @property
    def updates(self) -> int:
        """How many updates an epoch has."""
        return max(1, self.epoch_demos // self.batch)


def train(options: ImitationOptions, *, stop: Stop = lambda: False) -> Session:
    """Trains until the epochs or the patience are over; the run's folder has everything, and its session is closed."""
    return finish(training(options, stop=stop))


def training(
    options: ImitationOptions, *, panel: tuple[Panel, int] | None = None, stop: Stop = lambda: False
) -> Turns[Session]:
    """As `train`, in turns with others.

    Args:
        options: What was asked for.
        panel: Where to show it, and as which line, if several runs go side by side.
        stop: Asked after each update whether to stop early; the run can be resumed.
    """
    protocol = options.resolve()
    check_file(options)
    with Session(options, "imitation", panel) as session:
        source = open_source(options, session)
        replay, feed, learner = prepare(options, protocol, source, session)
        try:
            yield from learning(options, protocol, session, replay, feed, learner, stop)
        finally:
            replay.close()
    return session


def learning(
    options: ImitationOptions,
    protocol: Resolved,
    session: Session,
    replay: Any,
    feed: Feed,
    learner: ImitationLearner,
    stop: Stop,
    after_epoch: Callable[[], dict[str, Any]] = dict,
) -> Turns[None]:
    """Update after update; after each epoch validate, and keep a row, to which `after_epoch` adds."""
    update, demos = 0, 0
    if (kept := session.restore(learner.optimizer)) is not None:
        tensors, state = kept
        learner.load_tensors(tensors)
        replay.load_state_dict(state["replay"])
        update, demos = state["update"], state["demos"]
        session.begin_at(update * protocol.batch)
    frames = learner.memory.shape[0] * protocol.recurrence

    def is_over() -> bool:
        return update >= options.epochs * protocol.updates or session.since_best > options.patience

    started, first_update, begun = time.perf_counter(), update, feed.begun
    ending = is_over()
    while not ending:
        epoch = update // protocol.updates
        set_learning_rate(learner.optimizer, protocol.learning_rate * options.decay ** (epoch // 100))
        learner.learn(next(feed))
        update, demos, begun = update + 1, demos + feed.begun - begun, feed.begun
        session.advance(update * protocol.batch)
        yield

        best = False
        if update % protocol.updates == 0:
            yield from waiting(learner.device)
            measures, seconds = learner.measures(), time.perf_counter() - started
            results = session.validate(fresh=True)
            success = sum(result.success_rate for result in results.values()) / len(results)
            best = session.is_best(success)
            row = {"epoch": epoch + 1, "demos": demos, "frames": update * frames, "success": success, **measures}
            row |= {"frames_per_second": (update - first_update) * frames / seconds, "seconds": seconds}
            row |= {"validation_seconds": sum(result.seconds for result in results.values())}
            row |= after_epoch()
            row |= {"levels": {level: result.to_dict() for level, result in results.items()}}
            session.show(update * protocol.batch, row)
            started, first_update = time.perf_counter(), update
        ending = is_over() or session.must_end(stop)
        if best or ending or session.time_to_save():
            state = {"update": update, "demos": demos, "replay": replay.state_dict()}
            session.save(update, learner.optimizer, learner.tensors(), state, best=best)


def prepare(
    options: ImitationOptions, protocol: Resolved, source: DemoSource, session: Session
) -> tuple[Replay, Feed, ImitationLearner]:
    """Replay, feed and learner for a source of demonstrations."""
    lanes = count_lanes(protocol, source)
    replay = make_replay(protocol, source, lanes, session.device, observe_for(session.model))
    return replay, Feed(replay, session.device), make_learner(options, protocol, session, lanes)


def count_lanes(protocol: Resolved, source: DemoSource) -> int:
    """How many lanes show, on average, the frames of a batch at once."""
    return max(1, round(protocol.batch * mean_length(source) / protocol.recurrence))


def make_replay(
    protocol: Resolved, source: DemoSource, lanes: int, device: torch.device, kind: Kind = "symbolic"
) -> Replay:
    """Chunks of demonstrations; those for a GPU lie in memory that it reads by itself."""
    on_gpu = device.type == "cuda"
    return Replay(
        source,
        steps=protocol.recurrence,
        lanes=lanes,
        kind=kind,
        threads=2 if on_gpu and lanes * protocol.recurrence > 4096 else 1,
        ahead=AHEAD,
        buffers=page_locked(AHEAD + 1, protocol.recurrence, lanes, kind) if on_gpu else None,
    )


def make_learner(options: ImitationOptions, protocol: Resolved, session: Session, lanes: int) -> ImitationLearner:
    """The learner that the protocol asks for."""
    return ImitationLearner(
        session.model,
        lanes,
        learning_rate=protocol.learning_rate,
        entropy=protocol.entropy,
        statistics=protocol.statistics,
        precision=session.precision,
        fast=options.fast,
    )


def read_weights(options: ImitationOptions) -> dict[str, float] | None:
    """How often each level comes up; None: equally often."""
    if options.weights is None:
        return None
    names = options.level_names
    try:
        shares = [float(share) for share in options.weights.split(",")]
    except ValueError:
        raise ValueError(f"weights must be numbers with commas between, not {options.weights!r}") from None
    if len(shares) != len(names):
        raise ValueError(f"there are {len(shares)} weights for {len(names)} levels")
    return dict(zip(names, shares, strict=True))


def open_source(
    options: ImitationOptions, session: Session, file_source: Callable[..., DemoSource] = FileSource
) -> DemoSource:
    """The demonstrations that were asked for; those of N seeds are collected into the run's folder."""
    names, weights = options.level_names, read_weights(options)
    threads = options.threads or max(1, (os.cpu_count() or 1) - 2)
    if options.endless:
        first = options.seed % ENDLESS_RUNS * ENDLESS_SEEDS
        wanted = weights or names
        return ExpertSource(wanted, rules=options.rules, seed=options.seed, first_seed=first, threads=threads)
    if options.file is not None:
        check_file(options)
        return file_source(options.file, seed=options.seed, demos=options.demos, weights=weights)
    assert options.demos is not None
    path = session.folder / "demos.parquet"
    collect(names, options.demos, 0, path, rules=options.rules, threads=threads, progress=session.collecting)
    return file_source(path, seed=options.seed, weights=weights)


def check_file(options: ImitationOptions) -> None:
    """Refuses a file whose demonstrations are of other levels or rules than asked for, or of reserved seeds."""
    if options.file is None:
        return
    with DemoFile(options.file) as file:
        names = options.level_names
        if file.rules != options.rules:
            raise ValueError(f"{options.file} is of rules {file.rules!r}; say --rules {file.rules}")
        if sorted(file.levels) != sorted(names):
            raise ValueError(f"{options.file} holds {', '.join(file.levels)}; say --levels {','.join(file.levels)}")
        count = len(file) if options.demos is None else options.demos
        if count > len(file):
            raise ValueError(f"{options.file} has {len(file)} demonstrations, so {count} cannot be taken from it")
        used = file.read(slice(0, count), missions=False)
        if missing := [level for number, level in enumerate(file.levels) if not (used.levels == number).any()]:
            raise ValueError(
                f"none of the first {count} demonstrations of {options.file} is of {', '.join(missing)}: a file holds "
                f"one level after the other; take all of them, or collect --demos N of each level instead"
            )
        if (used.seeds >= RESERVED).any():
            raise ValueError(
                f"{options.file} holds missions that are reserved for validation and test (seeds from 10^9)"
            )


def mean_length(source: DemoSource) -> float:
    """How many steps a demonstration has, on average."""
    if isinstance(source, FileSource) and source.weights is None:
        return float(source.demos.lengths.mean())
    state = source.state()
    lengths = source.take(MEASURED).lengths
    source.load(state)
    return float(lengths.mean())
