"""Imitation learning (paper, Appendix C): predict, in each state of a demonstration, the expert's action.

Demonstrations are laid end to end into lanes (see `babyai.demos.replay`). A gradient step is on one batch of T steps of
all lanes, and there are as many lanes as make it, on average, the frames of the paper's batch of demonstrations.
"""

import os
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.compilation import compilable
from babyai.agents.device import Precision
from babyai.agents.policy import State, Unrolled, copy_state, new_state, observation_kind
from babyai.batch import OBSERVATION_FIELDS, Batch, ObservationKind
from babyai.demos.collect import collect
from babyai.demos.replay import Replay
from babyai.demos.sources import DemoSource, ExpertSource, FileSource
from babyai.demos.store import DemoFile
from babyai.seeds import VALIDATION_SEED, endless_demos_seed
from babyai.training.distributed import ProcessGroup
from babyai.training.fit import Algorithm, Session, Stop, fit
from babyai.training.learner import Learner
from babyai.training.options import BatchNorm, ImitationHyperparameters, ImitationOptions
from babyai.training.prefetch import Prefetcher, page_locked_batches
from babyai.tree import iter_named_leaves, tree_leaves, tree_map

FIELDS = (*OBSERVATION_FIELDS, "labels")
METRICS = ("loss", "cross_entropy", "entropy", "accuracy")
EPOCHS_PER_DECAY = 100
PREFETCH = 3
# The number of demonstrations of an endless source over which their length is averaged.
LENGTH_SAMPLE = 1024


def train(options: ImitationOptions, *, resume: bool = False, stop: Stop = lambda: False) -> Session:
    """Trains until the epochs are over or validation stops improving; see `fit`."""
    return fit(options, Imitation, resume=resume, stop=stop)


@compilable
def imitation_loss(logits: Tensor, labels: Tensor, entropy_coef: float) -> tuple[Tensor, Tensor]:
    """The loss, and the `METRICS`; logits: (T, N, 7), labels: (T, N) int64."""
    log_probs = logits.log_softmax(2)
    cross_entropy = functional.nll_loss(log_probs.flatten(0, 1), labels.flatten())
    entropy = -(log_probs.exp() * log_probs).sum(2).mean()
    loss = cross_entropy - entropy_coef * entropy
    accuracy = (logits.argmax(2) == labels).float().mean()
    return loss, torch.stack([loss, cross_entropy, entropy, accuracy]).detach()


class ImitationLearner:
    """A learner, and the recurrent state that it carries from one batch to the next.

    Args:
        policy: On its device already.
        lanes: N.
        learning_rate: Adam's.
        entropy_coef: Entropy coefficient.
        batch_norm: See `Learner`.
        precision: See `Learner`.
        cuda_graphs: See `Learner`.
        group: The processes that train the policy, each on its own lanes; default: one.
    """

    def __init__(
        self,
        policy: nn.Module,
        lanes: int,
        *,
        learning_rate: float = 1e-4,
        entropy_coef: float = 0.0,
        batch_norm: BatchNorm = "chunk",
        precision: Precision = "float32",
        cuda_graphs: bool = True,
        group: ProcessGroup | None = None,
    ) -> None:
        self.group = group or ProcessGroup()
        self.lanes = self.group.own_lanes(lanes)
        self.part = (self.lanes.stop - self.lanes.start) / lanes
        self.entropy_coef = entropy_coef
        self.learner = Learner(
            policy,
            self.loss,
            METRICS,
            learning_rate=learning_rate,
            batch_norm=batch_norm,
            precision=precision,
            cuda_graphs=cuda_graphs,
            group=self.group,
        )
        self.state: State = new_state(policy, lanes)  # pyright: ignore[reportArgumentType]
        self.learn = self.learner.graph(self._learn, lambda: tree_leaves(self.state))
        """One gradient step on a batch that continues the one before."""

    def loss(self, unrolled: Unrolled, batch: Batch) -> tuple[Tensor, Tensor]:
        """Cross-entropy with the expert's actions, minus the entropy bonus."""
        loss, metrics = imitation_loss(unrolled.logits, batch.labels.long(), self.entropy_coef)
        # Means over some of the lanes become parts of the means over all.
        return (loss, metrics) if self.group.size == 1 else (self.part * loss, self.part * metrics)

    def _learn(self, batch: Batch) -> None:
        state = tree_map(lambda tensor: tensor[self.lanes], self.state)
        copy_state(state, self.learner.gradient_step(batch, state))


class Imitation(Algorithm):
    """Imitation learning as an algorithm of `fit`."""

    name = "imitation"
    fresh_validation = True
    supports_torchrun = True

    def __init__(self, session: Session) -> None:
        options = session.options
        assert isinstance(options, ImitationOptions)
        self.options = options
        self.hyper = options.resolve()
        self.updates_per_row = self.hyper.updates_per_epoch
        with session.group.first_alone():
            source = open_source(options, session)
        lanes = count_lanes(self.hyper, source)
        self.batches, lanes = self.open_batches(session, source, lanes)
        self.core = ImitationLearner(
            session.policy,
            lanes,
            learning_rate=self.hyper.learning_rate,
            entropy_coef=self.hyper.entropy_coef,
            batch_norm=self.hyper.batch_norm,
            precision=session.precision,
            cuda_graphs=options.cuda_graphs,
            group=session.group,
        )
        self.learner = self.core.learner
        self.frames_per_update = lanes * self.hyper.recurrence
        self._prefetcher = Prefetcher(self.batches, session.device, FIELDS, self.core.lanes)
        self._demos = 0

    @staticmethod
    def check_options(options: ImitationOptions) -> None:
        """Raises if the demonstration file does not fit."""
        check_file(options)

    def open_batches(self, session: Session, source: DemoSource, lanes: int) -> tuple[Any, int]:
        """The iterator of batches, and how many lanes they have."""
        return make_replay(self.hyper, source, lanes, session.device, observation_kind(session.policy)), lanes

    def update(self) -> None:
        """One gradient step."""
        decays = self.num_updates // self.hyper.updates_per_epoch // EPOCHS_PER_DECAY
        self.learner.set_learning_rate(self.hyper.learning_rate * self.options.lr_decay**decays)
        before = self._prefetcher.episodes
        self.core.learn(next(self._prefetcher))
        self._demos += self._prefetcher.episodes - before

    @property
    def progress(self) -> float:
        """Demonstrations of the paper's protocol so far."""
        return self.num_updates * self.hyper.batch_size

    def metrics(self) -> dict[str, Any]:
        """The row of an epoch."""
        epoch = self.num_updates // self.hyper.updates_per_epoch
        frames = self.num_updates * self.frames_per_update
        return {"epoch": epoch, "demos": self._demos, "frames": frames, **self.learner.metrics()}

    def is_finished(self) -> bool:
        """Whether the epochs are over, or validation has stopped improving."""
        last = self.options.epochs * self.hyper.updates_per_epoch
        return self.num_updates >= last or self.validations_since_best > self.options.patience

    def gather(self) -> None:
        """Completes the recurrent state."""
        self.core.group.gather_lanes(self.core.state)

    def tensors(self) -> dict[str, Tensor]:
        """The carried recurrent state and the metrics' sums."""
        return dict(iter_named_leaves(self.core.state, "state")) | {"totals": self.learner.totals}

    def state_dict(self) -> dict[str, Any]:
        """The position in the demonstrations."""
        return {"demos": self._demos, "replay": self.batches.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continues from a position."""
        self._demos = state["demos"]
        self.batches.load_state_dict(state["replay"])

    def close(self) -> None:
        """Stops the replay's threads."""
        self.batches.close()


# ------------------------------------------------------------ demonstrations


def count_lanes(hyper: ImitationHyperparameters, source: DemoSource) -> int:
    """How many lanes make a batch, on average, as many frames as `batch_size` demonstrations."""
    return max(1, round(hyper.batch_size * mean_length(source) / hyper.recurrence))


def mean_length(source: DemoSource) -> float:
    """The mean length of the demonstrations."""
    if isinstance(source, FileSource) and source.weights is None:
        return float(source.demos.lengths.mean())
    state = source.state_dict()
    lengths = source.take(LENGTH_SAMPLE).lengths
    source.load_state_dict(state)
    return float(lengths.mean())


def make_replay(
    hyper: ImitationHyperparameters,
    source: DemoSource,
    lanes: int,
    device: torch.device,
    kind: ObservationKind = "symbolic",
) -> Replay:
    """Batches of demonstrations; for a GPU in page-locked memory."""
    on_gpu = device.type == "cuda"
    return Replay(
        source,
        steps=hyper.recurrence,
        lanes=lanes,
        kind=kind,
        threads=2 if on_gpu and lanes * hyper.recurrence > 4096 else 1,
        prefetch=PREFETCH,
        buffers=page_locked_batches(PREFETCH + 1, hyper.recurrence, lanes, kind) if on_gpu else None,
    )


def open_source(options: ImitationOptions, session: Session) -> DemoSource:
    """The demonstrations to learn from; those of N seeds are collected into the run's folder."""
    weights = options.parse_level_weights()
    threads = options.threads or max(1, (os.cpu_count() or 1) - 2)
    if options.endless:
        return ExpertSource(
            weights or options.level_names,
            rules=options.rules,
            seed=options.seed,
            first_seed=endless_demos_seed(options.seed),
            threads=threads,
        )
    if options.file is not None:
        return FileSource(options.file, seed=options.seed, demos=options.demos, weights=weights)
    assert options.demos is not None
    path = session.folder / "demos.parquet"
    collect(
        options.level_names,
        options.demos,
        options.first_seed,
        path,
        rules=options.rules,
        threads=threads,
        progress=session.show_collecting,
    )
    return FileSource(path, seed=options.seed, weights=weights)


def check_file(options: ImitationOptions) -> None:
    """Raises if a demonstration file has other levels or rules than the options, or reserved seeds."""
    if options.file is None:
        return
    with DemoFile(options.file) as file:
        if file.rules != options.rules:
            raise ValueError(f"{options.file} has demonstrations with rules {file.rules!r}; pass --rules {file.rules}")
        if sorted(file.levels) != sorted(options.level_names):
            held = ",".join(file.levels)
            raise ValueError(f"{options.file} has demonstrations of {held}; pass --levels {held}")
        count = len(file) if options.demos is None else options.demos
        if count > len(file):
            raise ValueError(f"{options.file} has {len(file)} demonstrations, not {count}")
        used = file.read(slice(0, count), missions=False)
        if missing := [level for number, level in enumerate(file.levels) if not (used.levels == number).any()]:
            raise ValueError(
                f"the first {count} demonstrations of {options.file} include none of {', '.join(missing)}, because a "
                f"file stores one level after the other; use all of them, or collect --demos N of each level instead"
            )
        if (used.seeds >= VALIDATION_SEED).any():
            raise ValueError(f"{options.file} has episodes that are reserved for validation and test (seeds from 10^9)")
