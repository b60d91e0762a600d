"""The batch: each operation against an obvious loop over steps and lanes."""

from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
import torch

from babyai.batch import OBSERVATION_FIELDS, Batch, concatenate_lanes, count_words
from babyai.tree import tree_map
from babyai.world.codes import MAX_WORDS

T = 6
N = 4


def random_batch(steps: int = T, lanes: int = N, seed: int = 0, num_missions: int | None = None) -> Batch:
    """Arrays of random numbers in all fields."""
    generator = np.random.default_rng(seed)
    batch = Batch.empty(steps, lanes, labels=np.uint8, log_probs=np.float32, values=np.float32, advantages=np.float32)
    num_missions = num_missions or lanes + steps
    batch.missions = generator.integers(1, 33, (num_missions, MAX_WORDS)).astype(np.uint8)
    for field in fields(Batch):
        array = getattr(batch, field.name)
        if array is not None and field.name != "missions":
            array[:] = generator.integers(0, 7, array.shape)
    batch.mission_index[:] = generator.integers(0, num_missions, (steps, lanes))
    return batch


def cell(batch: Batch, step: int, lane: int) -> dict[str, Any]:
    """All that is known about one step of one lane."""
    names = [field.name for field in fields(Batch) if field.name not in ("missions", "mission_index", "state")]
    known = {name: getattr(batch, name)[step, lane].tolist() for name in names if getattr(batch, name) is not None}
    return known | {"mission": batch.missions[batch.mission_index[step, lane]].tolist()}


def equal(one: Batch, other: Batch) -> bool:
    """Whether each step of each lane is the same, wherever its mission is listed."""
    if (one.num_steps, one.num_lanes) != (other.num_steps, other.num_lanes):
        return False
    cells = [(step, lane) for step in range(one.num_steps) for lane in range(one.num_lanes)]
    return all(cell(one, *place) == cell(other, *place) for place in cells)


# ------------------------------------------------------------ one batch


@pytest.mark.parametrize(
    ("kind", "view_size", "shape"), [("symbolic", 7, (7, 7, 3)), ("symbolic", 5, (5, 5, 3)), ("rgb", 7, (56, 56, 3))]
)
def test_an_empty_batch_has_arrays_of_the_documented_shapes(kind: Any, view_size: int, shape: tuple[int, ...]) -> None:
    batch = Batch.empty(T, N, kind, view_size, log_probs=np.float32)
    assert (batch.num_steps, batch.num_lanes) == (T, N)
    assert batch.images.shape == (T, N, *shape)
    assert batch.missions.shape[1] == MAX_WORDS
    assert batch.missions.shape[0] >= N + T * N, "each lane may start an episode at every step"
    dtypes = {field.name: getattr(batch, field.name) for field in fields(Batch)}
    assert {name: str(array.dtype) for name, array in dtypes.items() if array is not None} == {
        "images": "uint8",
        "directions": "uint8",
        "last_actions": "int8",
        "missions": "uint8",
        "mission_index": "int32",
        "starts": "bool",
        "actions": "uint8",
        "rewards": "float32",
        "terminated": "bool",
        "truncated": "bool",
        "levels": "int32",
        "seeds": "int64",
        "log_probs": "float32",
    }
    for name, array in dtypes.items():
        if array is not None and name not in ("missions", "images"):
            assert array.shape == (T, N)


@pytest.mark.parametrize("tensors", [False, True])
def test_an_observation_is_what_a_policy_sees_at_one_step(tensors: bool) -> None:
    arrays = random_batch()
    batch = arrays.map(torch.from_numpy) if tensors else arrays
    for step in range(T):
        observation = batch.observation(step)
        assert observation.keys() == {"image", "mission", "direction", "last_action"}
        for lane in range(N):
            known = cell(arrays, step, lane)
            assert observation["image"][lane].tolist() == known["images"]
            assert observation["mission"][lane].tolist() == known["mission"]
            assert observation["direction"][lane] == known["directions"]
            assert observation["last_action"][lane] == known["last_actions"]


def test_only_keeps_the_named_fields_and_the_state() -> None:
    batch = replace(random_batch(), state="state")
    seen = batch.only(OBSERVATION_FIELDS)
    for field in fields(Batch):
        kept = field.name in (*OBSERVATION_FIELDS, "state")
        assert getattr(seen, field.name) is (getattr(batch, field.name) if kept else None)
    assert batch.actions is not None
    assert batch.only([*OBSERVATION_FIELDS, "labels"]).labels is batch.labels


def test_map_reaches_every_array_and_the_state() -> None:
    batch = replace(random_batch(), state={"h": (np.ones(N),)}, labels=None)
    mapped = batch.map(lambda array: array[:1])
    assert mapped.labels is None
    assert mapped.missions.shape == (1, MAX_WORDS)
    assert mapped.images.shape[:2] == (1, N)
    assert mapped.state["h"][0].shape == (1,)


def test_map_steps_leaves_missions_and_state_alone() -> None:
    batch = replace(random_batch(), state=np.ones(N), labels=None)
    mapped = batch.map_steps(lambda array: array[2:])
    assert mapped.labels is None
    assert mapped.missions is batch.missions
    assert mapped.state is batch.state
    assert [cell(mapped, 0, lane) for lane in range(N)] == [cell(batch, 2, lane) for lane in range(N)]


@pytest.mark.parametrize("tensors", [False, True])
@pytest.mark.parametrize("index", [[2, 0], [1, 1, 3], []])
def test_selected_lanes_come_with_their_state(index: list[int], tensors: bool) -> None:
    state = {"h": (np.arange(N), np.arange(2 * N).reshape(N, 2)), "c": None}
    batch = replace(random_batch(), state=state)
    chosen = np.array(index, dtype=np.int64)
    if tensors:
        selected = batch.map(torch.from_numpy).select_lanes(torch.from_numpy(chosen)).map(lambda array: array.numpy())
    else:
        selected = batch.select_lanes(chosen)
    assert selected.num_lanes == len(index)
    for place, lane in enumerate(index):
        for step in range(T):
            assert cell(selected, step, place) == cell(batch, step, lane)
        assert selected.state["h"][0][place] == lane
        assert selected.state["h"][1][place].tolist() == [2 * lane, 2 * lane + 1]
    assert selected.state["c"] is None


@pytest.mark.parametrize("length", [1, 2, 3, T])
def test_pieces_of_a_batch_become_lanes(length: int) -> None:
    batch = random_batch()
    pieces = batch.split_steps(length)
    assert (pieces.num_steps, pieces.num_lanes) == (length, T // length * N)
    for piece in range(T // length):
        for lane in range(N):
            for step in range(length):
                assert cell(pieces, step, piece * N + lane) == cell(batch, piece * length + step, lane)
    assert pieces.images.flags.c_contiguous


# ------------------------------------------------------------ missions


@pytest.mark.parametrize("distinct", [1, N, N + 1, 2 * N, 2 * N + 1, 30])
def test_after_deduplication_each_mission_is_listed_once(distinct: int) -> None:
    batch = random_batch(steps=10, num_missions=60)
    batch.missions = batch.missions[np.arange(60) % distinct]
    unique = batch.deduplicate_missions()
    assert equal(unique, batch)
    sizes = [N * 2**k for k in range(6)]
    assert len(unique.missions) == min(size for size in sizes if size >= distinct)
    rows = [tuple(row) for row in unique.missions.tolist()]
    assert len({row for row in rows if any(row)}) == distinct
    assert sum(any(row) for row in rows) == distinct
    assert unique.mission_index.dtype == np.int32
    assert unique.missions.dtype == np.uint8


def test_missions_that_differ_in_one_word_are_different() -> None:
    batch = random_batch(num_missions=2)
    batch.missions[1] = batch.missions[0]
    batch.missions[1, -1] ^= 1
    assert equal(batch.deduplicate_missions(), batch)


@pytest.mark.parametrize(
    ("words", "at_least", "kept"),
    [(0, 0, 8), (1, 0, 8), (8, 0, 8), (9, 0, 16), (MAX_WORDS, 0, MAX_WORDS), (3, 24, 24), (30, 24, 32)],
)
def test_columns_of_missions_are_kept_in_multiples_of_eight(words: int, at_least: int, kept: int) -> None:
    missions = np.zeros((3, MAX_WORDS), dtype=np.uint8)
    missions[0, : words // 2] = 1
    missions[2, :words] = 1
    assert count_words(missions, at_least) == kept


# ------------------------------------------------------------ several batches


def test_lanes_of_several_batches_side_by_side() -> None:
    batches = [random_batch(lanes=lanes, seed=lanes) for lanes in (1, 3, 2)]
    joined = concatenate_lanes(batches)
    assert (joined.num_steps, joined.num_lanes) == (T, 6)
    lane = 0
    for batch in batches:
        assert equal(joined.select_lanes(np.arange(lane, lane + batch.num_lanes)), batch)
        lane += batch.num_lanes
    assert joined.mission_index.dtype == np.int32
    assert equal(concatenate_lanes(batches[:1]), batches[0])


def test_fields_that_are_not_provided_stay_so() -> None:
    batches = [replace(random_batch(seed=seed), labels=None, state=np.ones(N)) for seed in range(2)]
    joined = concatenate_lanes(batches)
    assert joined.labels is None
    assert joined.state is None


def test_lanes_can_be_written_to_given_arrays() -> None:
    batches = [random_batch(seed=seed) for seed in range(2)]
    expected = concatenate_lanes(batches)
    out = tree_map(np.zeros_like, expected)
    joined = concatenate_lanes(batches, out)
    assert equal(joined, expected)
    for field in fields(Batch):
        if field.name not in ("missions", "state"):
            assert getattr(joined, field.name) is getattr(out, field.name)


def test_given_arrays_may_lack_a_field() -> None:
    batches = [random_batch(seed=seed) for seed in range(2)]
    expected = concatenate_lanes(batches)
    out = replace(tree_map(np.zeros_like, expected), advantages=None)
    assert equal(concatenate_lanes(batches, out), expected)
