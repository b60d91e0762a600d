"""Batches on their way to the device: nothing is lost, nothing is overwritten, and each mission occurs once."""

import dataclasses
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from babyai.agents.actor import ObservationPacker
from babyai.batch import OBSERVATION_FIELDS, WORD_MULTIPLE, Batch, ObservationKind, count_words
from babyai.demos.replay import Replay
from babyai.demos.sources import ExpertSource
from babyai.training.prefetch import Prefetcher

CPU = torch.device("cpu")
STEPS = 6
LANES = 4
# What changes from step to step.
CELLS = ("images", "directions", "last_actions", "starts", "labels")


def make_batches(count: int, kind: ObservationKind = "symbolic") -> list[Batch]:
    replay = Replay(ExpertSource("GoToSeqS5R2", block=16), steps=STEPS, lanes=LANES, kind=kind)
    batches = [replay.fill(Batch.empty(STEPS, LANES, kind))[0] for _ in range(count)]
    replay.close()
    return batches


def reuse_memory(batches: list[Batch]) -> Iterator[Batch]:
    """The same batches, all in the memory of one, as a source may do."""
    arrays = {
        field.name: np.empty_like(getattr(batches[0], field.name))
        for field in dataclasses.fields(Batch)
        if field.name != "missions" and getattr(batches[0], field.name) is not None
    }
    missions = np.empty((LANES * (STEPS + 1), batches[0].missions.shape[1]), dtype=np.uint8)
    for batch in batches:
        for name, array in arrays.items():
            array[:] = getattr(batch, name)
        missions[:] = 77
        missions[: len(batch.missions)] = batch.missions
        yield Batch(**arrays, missions=missions[: len(batch.missions)])


def missions_of(batch: Batch) -> np.ndarray:
    """(T, N, L) the words that hold at each step."""
    return np.asarray(batch.missions)[np.asarray(batch.mission_index)]


@pytest.mark.parametrize("kind", ["symbolic", "rgb"])
def test_tensors_are_the_batches(kind: ObservationKind) -> None:
    expected = make_batches(8, kind)
    prefetcher = Prefetcher(reuse_memory(expected), CPU, (*OBSERVATION_FIELDS, "labels"))
    fetched = [next(prefetcher) for _ in range(8)]
    for batch, tensors in zip(expected, fetched, strict=True):
        for name in CELLS:
            assert np.array_equal(getattr(tensors, name).numpy(), getattr(batch, name)), name
        words = missions_of(tensors)
        whole = missions_of(batch)
        assert np.array_equal(words, whole[:, :, : words.shape[2]]) and not whole[:, :, words.shape[2] :].any()
        assert tensors.rewards is None and tensors.seeds is None
    assert prefetcher.episodes == sum(int(batch.starts.sum()) for batch in expected)


def test_there_are_few_shapes() -> None:
    """A CUDA graph is captured for each: M is N times a power of two, L a multiple of eight."""
    batches = make_batches(30)
    prefetcher = Prefetcher(iter(batches), CPU, OBSERVATION_FIELDS)
    shapes = [tuple(next(prefetcher).missions.shape) for _ in range(30)]
    assert {rows for rows, _ in shapes} <= {4, 8, 16, 32}
    assert all(columns % WORD_MULTIPLE == 0 for _, columns in shapes)
    # On the CPU a resumed run sees the same shapes, although it has not seen the longest mission so far.
    assert len({columns for _, columns in shapes}) > 1
    for start in range(0, 30, 5):
        resumed = Prefetcher(iter(batches[start:]), CPU, OBSERVATION_FIELDS)
        assert tuple(next(resumed).missions.shape) == shapes[start]


def test_acting_reads_as_many_words_as_the_missions_have_now() -> None:
    short = np.zeros((2, 72), dtype=np.uint8)
    long = np.zeros((2, 72), dtype=np.uint8)
    short[:, :3] = 5
    long[:, :20] = 5
    images = np.zeros((2, 7, 7, 3), dtype=np.uint8)
    packer = ObservationPacker(2, CPU)
    widths = [
        packer.pack(images, missions, np.zeros(2), np.ones(2, dtype=bool)).shape[1] for missions in (short, long, short)
    ]
    assert widths == [6 + 8 + 147, 6 + 24 + 147, 6 + 8 + 147]


@given(
    rows=st.lists(st.sampled_from([(1,), (2, 3), (2, 3, 4), (9,) * 20, (5, 0, 0)]), min_size=3, max_size=21),
    seed=st.integers(0, 100),
)
def test_each_mission_occurs_once(rows: list[tuple[int, ...]], seed: int) -> None:
    batch = Batch.empty(6, 3)
    batch.missions = np.array([np.pad(np.array(row, dtype=np.uint8), (0, 72 - len(row))) for row in rows])
    batch.mission_index[:] = np.random.default_rng(seed).integers(0, len(rows), size=(6, 3))
    compact = batch.deduplicate_missions()
    assert np.array_equal(missions_of(compact), missions_of(batch))
    used = compact.missions[compact.missions.any(1)]
    assert len(np.unique(used, axis=0)) == len(used) == len({row[:1] if 0 in row else row for row in rows})
    assert len(compact.missions) in (3, 6, 12) and compact.mission_index.dtype == np.int32


def test_words_are_counted_by_the_longest_mission_and_rounded_up() -> None:
    missions = np.zeros((2, 72), dtype=np.uint8)
    assert count_words(missions) == WORD_MULTIPLE
    for words, expected in ((1, 8), (8, 8), (9, 16), (65, 72), (72, 72)):
        missions[:] = 0
        missions[1, :words] = 5
        assert count_words(missions) == expected
        assert count_words(missions, at_least=40) == max(40, expected)
