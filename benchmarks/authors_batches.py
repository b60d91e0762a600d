"""Imitation learning with the batches of the authors' code, which `babyai train imitation` replaces by lanes.

    python -m benchmarks.authors_batches --architecture original --seed 0 --state STATE
    babyai study collect STATE

A batch has 256 whole demonstrations, longest first, end to end. A first pass without gradients plays them all in
parallel, from empty memories, and keeps the memory before each frame. A second pass cuts the frames into chunks of 20,
drops the rest, and unrolls all chunks from these memories; one step of Adam follows. Batch normalization averages over
one time step in both passes: over the demonstrations that are still going on in the first, over all chunks in the
second. `babyai train imitation` instead lays demonstrations into lanes and carries the memory from batch to batch.
"""

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from babyai.agents.config import AgentConfig
from babyai.agents.device import find_device, find_precision, place_model
from babyai.agents.film_lstm import model as film_lstm
from babyai.agents.film_lstm import vision
from babyai.agents.film_lstm.lstm import lstm_step
from babyai.agents.film_lstm.model import FilmLSTM
from babyai.atomic_io import atomic_file
from babyai.batch import Batch, count_words
from babyai.demos.demonstrate import demonstrate
from babyai.demos.packed import Demos
from babyai.engine import Engine
from babyai.evaluation.evaluate import evaluate
from babyai.evaluation.players import AgentPlayer
from babyai.expert.expert import ExpertBatch
from babyai.seeds import VALIDATION_SEED
from babyai.studies.cells import Cell, Run
from babyai.studies.measure import describe_rows, make_curve
from babyai.studies.store import ROWS, make_row
from babyai.training.imitation import EPOCHS_PER_DECAY, ImitationLearner
from babyai.training.provenance import describe_provenance

BATCH_SIZE = 256
RECURRENCE = 20
EPOCH_LENGTH = 25_600
LEARNING_RATE = 1e-4
LEARNING_RATE_DECAY = 0.9
VALIDATION_EPISODES = 512
ENTROPY_COEF = 0.01
VARIANT = "authors-batches"


def main() -> None:
    """Trains one agent; writes its row after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--level", default="GoToRedBall", help="Level.")
    parser.add_argument("--demos", type=int, default=10_000, help="Number of demonstrations, of the seeds from 0 on.")
    parser.add_argument("--architecture", default="original", help="Architecture, in the small size.")
    parser.add_argument("--seed", type=int, default=0, help="Seed of the weights and of the order.")
    parser.add_argument("--epochs", type=int, default=101, help="Number of epochs.")
    parser.add_argument("--entropy-coef", type=float, default=ENTROPY_COEF, help="Entropy coefficient.")
    parser.add_argument("--state", type=Path, required=True, help="New folder for the results.")
    options = parser.parse_args()
    if (options.state / ROWS).exists():
        parser.error(f"{options.state} already holds results; choose another folder")
    torch.manual_seed(options.seed)
    variant = VARIANT if options.entropy_coef == ENTROPY_COEF else f"{VARIANT}-entropy-{options.entropy_coef:g}"
    cell = Cell("imitation", options.level, options.architecture, demos=options.demos, variant=variant)
    origin = describe_provenance()
    options.state.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for row in train(cell, options.seed, options.epochs, options.entropy_coef):
        rows.append(row)
        result = describe_run(rows) | {"complete": len(rows) == options.epochs}
        with atomic_file(options.state / ROWS) as temporary:
            temporary.write_text(json.dumps(make_row(Run(cell, options.seed), result, origin, at_once=1)) + "\n")
        print(f"epoch {len(rows)}: loss {row['loss']:.4f}, success {row['success']:.4f}", flush=True)


def describe_run(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of a run, as in the studies."""
    seconds = sum(row["seconds"] + row["validation_seconds"] for row in rows)
    return {"figures": describe_rows(rows, "imitation"), "seconds": seconds, "curve": make_curve(rows)}


def train(cell: Cell, seed: int, epochs: int, entropy_coef: float) -> Iterator[dict[str, Any]]:
    """Trains an agent; yields the figures of each epoch."""
    assert cell.demos is not None
    device = find_device("cpu")
    precision = find_precision(None, device, training=True)
    policy = place_model(FilmLSTM(AgentConfig.of(cell.architecture, cell.size)), device)
    learner = ImitationLearner(
        policy, 1, learning_rate=LEARNING_RATE, entropy_coef=entropy_coef, precision=precision
    ).learner
    player = AgentPlayer(policy, precision=precision)
    episodes = replay(cell.level, cell.demos)
    order = iter_order(len(episodes), seed)
    for epoch in range(epochs):
        started = perf_counter()
        learner.set_learning_rate(LEARNING_RATE * LEARNING_RATE_DECAY ** (epoch // EPOCHS_PER_DECAY))
        for _ in range(EPOCH_LENGTH // BATCH_SIZE):
            taken = episodes.take([next(order) for _ in range(BATCH_SIZE)])
            policy.train()
            learner.mixed.update_weights()
            batch, state, sizes = make_batch(learner.mixed.compute, taken)
            with group_batch_norm(sizes):
                learner.gradient_step(batch, state)
        trained = perf_counter()
        first_seed = VALIDATION_SEED + epoch * VALIDATION_EPISODES
        result = evaluate(player, cell.level, missions=VALIDATION_EPISODES, first_seed=first_seed)
        seconds = {"seconds": trained - started, "validation_seconds": perf_counter() - trained}
        yield {"epoch": epoch + 1, **learner.metrics(), "success": result.success_rate, **seconds}


def iter_order(count: int, seed: int) -> Iterator[int]:
    """Demonstrations in random order, all of them before any occurs again."""
    generator = np.random.default_rng(seed)
    while True:
        yield from generator.permutation(count).tolist()


# ------------------------------------------------------------ demonstrations with observations


@dataclass(frozen=True)
class Episodes:
    """The frames of D demonstrations, end to end."""

    images: Tensor
    """(F, 7, 7, 3) uint8."""
    labels: Tensor
    """(F,) uint8."""
    missions: Tensor
    """(D, L) uint8."""
    lengths: np.ndarray
    """(D,) int64."""

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def offsets(self) -> np.ndarray:
        """(D + 1,) int64, where each demonstration begins."""
        return np.concatenate([[0], np.cumsum(self.lengths)])

    def take(self, rows: Sequence[int]) -> "Episodes":
        """These demonstrations, longest first."""
        chosen = np.asarray(rows)[np.argsort(-self.lengths[rows], kind="stable")]
        begins = self.offsets.tolist()
        frames = torch.cat([torch.arange(begins[row], begins[row + 1]) for row in chosen])
        return Episodes(self.images[frames], self.labels[frames], self.missions[chosen], self.lengths[chosen])


def replay(level: str, count: int) -> Episodes:
    """The expert's demonstrations of the seeds from 0 on."""
    engine = Engine(level, count)
    engine.reset(np.arange(count))
    demos: Demos = demonstrate(ExpertBatch(engine))[0]
    engine = Engine(level, len(demos))
    engine.reset(demos.seeds)
    missions = engine.missions[:, : count_words(engine.missions)].copy()
    images = np.empty((len(demos.actions), *engine.images.shape[1:]), dtype=np.uint8)
    for step in range(demos.lengths.max()):
        going_on = step < demos.lengths
        frames = demos.offsets[:-1] + step
        images[frames[going_on]] = engine.images[going_on]
        actions = np.zeros(len(demos), dtype=np.int64)
        actions[going_on] = demos.actions[frames[going_on]]
        engine.step(actions, skip_done=True)
    labels = torch.from_numpy(demos.actions)
    return Episodes(torch.from_numpy(images), labels, torch.from_numpy(missions), demos.lengths)


# ------------------------------------------------------------ the two passes


def make_batch(model: FilmLSTM, episodes: Episodes) -> tuple[Batch, Any, list[int]]:
    """The chunks of a batch, the memories before them, and the sizes of the groups of batch normalization."""
    hidden, cell = first_pass(model, episodes)
    chunks = len(episodes.labels) // RECURRENCE
    frames = torch.arange(chunks * RECURRENCE).view(chunks, RECURRENCE).T.contiguous()  # (T, N)
    demo = torch.from_numpy(np.repeat(np.arange(len(episodes)), episodes.lengths))
    starts = torch.zeros(len(demo), dtype=torch.bool)
    starts[episodes.offsets[:-1]] = True
    batch = Batch(
        images=episodes.images[frames],
        directions=torch.zeros(frames.shape, dtype=torch.uint8),
        last_actions=torch.zeros(frames.shape, dtype=torch.int8),
        missions=episodes.missions,
        mission_index=demo[frames].int(),
        starts=starts[frames],
        labels=episodes.labels[frames],
    )
    return batch, (hidden[frames[0]], cell[frames[0]]), [chunks] * RECURRENCE


@torch.no_grad()
def first_pass(model: FilmLSTM, episodes: Episodes) -> tuple[Tensor, Tensor]:
    """The memories before each frame, (F, D) each; runs all demonstrations in parallel."""
    assert model.lstm is not None
    # Demonstrations are sorted by length: those that have a frame at a step come first.
    going_on = [int((step < episodes.lengths).sum()) for step in range(episodes.lengths.max())]
    begins = torch.from_numpy(episodes.offsets[:-1])
    by_step = torch.cat([begins[:count] + step for step, count in enumerate(going_on)])
    demo = torch.cat([torch.arange(count) for count in going_on])
    with group_batch_norm(going_on):
        words = model.instruction_encoder(episodes.missions)[demo]
        image, convolved = model.encode_image(episodes.images[by_step])
        encoded = film_lstm.Encoded(image, convolved, words, episodes.missions[demo], None)
        features = model.apply_film(encoded, words.to(model.dtype))
    memories = [torch.zeros(len(by_step), model.config.memory_dim) for _ in range(2)]
    state: tuple[Tensor, ...] = tuple(torch.zeros(len(episodes), model.config.memory_dim) for _ in range(2))
    for step, (count, now) in enumerate(zip(going_on, features.split(going_on), strict=True)):
        state = tuple(part[:count] for part in state)
        for memory, part in zip(memories, state, strict=True):
            memory[begins[:count] + step] = part
        state = lstm_step(model.lstm, now, *state)
    return memories[0], memories[1]


@contextmanager
def group_batch_norm(sizes: Sequence[int]) -> Iterator[None]:
    """Inside it, batch normalization averages over groups of so many frames, one group after the other."""
    plain = vision.normalize

    def normalize(norm: nn.BatchNorm2d, x: Tensor, skipped_bias: Tensor | None = None) -> Tensor:
        return torch.cat([plain(norm, part, skipped_bias) for part in x.split(list(sizes))])

    vision.normalize = film_lstm.normalize = normalize
    try:
        yield
    finally:
        vision.normalize = film_lstm.normalize = plain


if __name__ == "__main__":
    main()
