"""Chunks on their way to the model: nothing is lost, nothing is overwritten, and missions are told once."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from babyai.agents.actor import WORDS_AT_A_TIME, Packer, count_words
from babyai.demos.replay import Chunk, Replay
from babyai.demos.sources import ExpertSource
from babyai.training.feed import Feed, pad_missions

CPU = torch.device("cpu")


class Again:
    """A source that uses one chunk's memory for all of them, as it may."""

    def __init__(self, chunks: list[Chunk]) -> None:
        self.chunks, self.lent = iter(chunks), None

    def __next__(self) -> Chunk:
        chunk = next(self.chunks)
        if self.lent is None:
            self.lent = chunk
            return chunk
        for name in ("images", "directions", "actions", "first", "mission_index", "mission_table"):
            getattr(self.lent, name)[:] = getattr(chunk, name)
        self.lent.count = chunk.count
        return self.lent


def make_chunks(count: int, level: str = "GoToSeqS5R2", kind: str = "symbolic") -> list[Chunk]:
    replay = Replay(ExpertSource(level, block=16), steps=6, lanes=4, kind=kind)  # pyright: ignore[reportArgumentType]
    chunks = [Chunk.empty(6, 4, kind=replay.kind) for _ in range(count)]
    for chunk in chunks:
        replay.fill(chunk)
    replay.close()
    return chunks


@pytest.mark.parametrize("kind", ["symbolic", "rgb"])
def test_tensors_are_the_chunks(kind: str) -> None:
    expected, given_again = make_chunks(8, kind=kind), make_chunks(8, kind=kind)
    feed = Feed(Again(given_again), CPU)
    fed = [next(feed) for _ in range(8)]
    for chunk, tensors in zip(expected, fed, strict=True):
        for name in ("images", "directions", "actions", "first"):
            assert np.array_equal(getattr(tensors, name).numpy(), getattr(chunk, name)), name
        # Without another one's moves, what was done is what was shown.
        assert np.array_equal(tensors.taken.numpy(), chunk.actions)
        told = tensors.missions.numpy()[tensors.mission_index.numpy()]  # (T, N, L)
        words = chunk.missions[chunk.mission_index]
        assert np.array_equal(told, words[:, :, : told.shape[2]]) and not words[:, :, told.shape[2] :].any()
    assert feed.begun == sum(int(chunk.first.sum()) for chunk in expected)


def test_shapes_are_few() -> None:
    """A recording is made for each: the table of missions doubles, and so many words are read at a time."""
    feed = Feed(Again(make_chunks(30)), CPU)
    shapes = [tuple(next(feed).missions.shape) for _ in range(30)]
    assert {rows for rows, _ in shapes} <= {4, 8, 16, 32}
    assert all(columns % WORDS_AT_A_TIME == 0 for _, columns in shapes)
    # A run that is resumed is fed the same shapes, though it has not seen the longest mission so far.
    assert len({columns for _, columns in shapes}) > 1
    for start in range(0, 30, 5):
        assert tuple(next(Feed(Again(make_chunks(30)[start:]), CPU)).missions.shape) == shapes[start]


def test_acting_reads_as_many_words_whatever_was_read_before() -> None:
    short, long = np.zeros((2, 2, 72), dtype=np.uint8)
    short[:, :3], long[:, :20] = 5, 5
    images, directions, first = np.zeros((2, 7, 7, 3), dtype=np.uint8), np.zeros(2), np.ones(2, dtype=bool)
    packer = Packer(2, CPU)
    widths = [packer.pack(images, missions, directions, first).shape[1] for missions in (short, long, short)]
    assert widths == [6 + 8 + 147, 6 + 24 + 147, 6 + 8 + 147]


@given(
    rows=st.lists(st.sampled_from([(1,), (2, 3), (2, 3, 4), (9,) * 20, (5, 0, 0)]), min_size=3, max_size=21),
    seed=st.integers(0, 100),
)
def test_each_mission_is_in_the_table_once(rows: list[tuple[int, ...]], seed: int) -> None:
    chunk = Chunk.empty(6, 3)
    chunk.count = len(rows)
    chunk.mission_table[:] = 77
    for number, row in enumerate(rows):
        chunk.mission_table[number] = np.pad(np.array(row, dtype=np.uint8), (0, 72 - len(row)))
    chunk.mission_index[:] = np.random.default_rng(seed).integers(0, len(rows), size=(6, 3))
    missions, index = pad_missions(chunk)
    assert np.array_equal(missions[index], chunk.missions[chunk.mission_index])
    told = missions[missions.any(1)]
    assert len(np.unique(told, axis=0)) == len(told) == len({row[:1] if 0 in row else row for row in rows})
    assert len(missions) in (3, 6, 12) and index.dtype == np.int32


def test_words_are_counted_by_the_longest_mission_and_only_become_more_on_a_gpu() -> None:
    missions = np.zeros((2, 72), dtype=np.uint8)
    assert count_words(missions, 0, CPU) == WORDS_AT_A_TIME
    for words, expected in ((1, 8), (8, 8), (9, 16), (65, 72), (72, 72)):
        missions[:] = 0
        missions[1, :words] = 5
        assert count_words(missions, 0, CPU) == count_words(missions, 40, CPU) == expected
        assert count_words(missions, 40, torch.device("cuda")) == max(40, expected)
