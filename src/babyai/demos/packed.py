"""Demonstrations in memory: packed arrays with the actions of all episodes concatenated."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from babyai.demos import kernels
from babyai.demos.header import DemoFileError
from babyai.world.codes import MAX_WORDS, NUM_ACTIONS, VOCABULARY

SCHEMA = pa.schema(
    {
        "level": pa.dictionary(pa.int32(), pa.string()),
        "seed": pa.int64(),
        "mission": pa.string(),
        "actions": pa.binary(),
        "length": pa.int32(),
        "reward": pa.float64(),
    }
)


def _spellings() -> tuple[np.ndarray, np.ndarray]:
    """All words of the vocabulary with their leading separator, concatenated, and the start of each: (V + 1,) int64."""
    spelled = [b""] + [f"{', ' if word == 'then' else ' '}{word}".encode() for word in VOCABULARY[1:]]
    starts = np.cumsum([0] + [len(word) for word in spelled]).astype(np.int64)
    return np.frombuffer(b"".join(spelled), dtype=np.uint8).copy(), starts


LETTERS, WORD_STARTS = _spellings()
LONGEST_WORD = int(np.diff(WORD_STARTS).max())


@dataclass(frozen=True, repr=False)
class Demo:
    """One demonstration."""

    level: str
    seed: int
    mission: str
    actions: np.ndarray
    """(T,) uint8; see `babyai.Action`."""
    reward: float

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        return f"Demo({self.level!r}, seed {self.seed}, {self.mission!r}, {len(self)} steps, reward {self.reward:.3f})"

    def _repr_html_(self) -> str:
        """The first scene and the actions as HTML, for notebooks."""
        from babyai.demos.show import html_of_demo

        return html_of_demo(self)


@dataclass(frozen=True, repr=False)
class Demos:
    """M demonstrations, packed.

    Attributes:
        names: Names of levels.
        levels: (M,) int32, the index in `names` of each demonstration's level.
        seeds: (M,) int64.
        offsets: (M + 1,) int64; the actions of demonstration i are actions[offsets[i]:offsets[i + 1]].
        actions: (sum of lengths,) uint8.
        rewards: (M,) float64.
        missions: (M,) Arrow array of strings, or None if they were not read.
    """

    names: tuple[str, ...]
    levels: np.ndarray
    seeds: np.ndarray
    offsets: np.ndarray
    actions: np.ndarray
    rewards: np.ndarray
    missions: pa.Array | None = None

    def __len__(self) -> int:
        return len(self.seeds)

    def __repr__(self) -> str:
        return f"Demos({len(self):,} demonstrations of {', '.join(self.names)}, {len(self.actions):,} steps)"

    def __getitem__(self, row: int) -> Demo:
        row = range(len(self))[row]
        mission = "" if self.missions is None else self.missions[row].as_py()
        actions = self.actions[self.offsets[row] : self.offsets[row + 1]]
        return Demo(self.names[self.levels[row]], int(self.seeds[row]), mission, actions, float(self.rewards[row]))

    def __iter__(self) -> Iterator[Demo]:
        return (self[row] for row in range(len(self)))

    @property
    def lengths(self) -> np.ndarray:
        """(M,) int64, the number of actions of each demonstration."""
        return np.diff(self.offsets)

    def take(self, rows: np.ndarray) -> "Demos":
        """The demonstrations with these indices, in this order."""
        offsets = offsets_of(self.lengths[rows])
        actions = np.empty(offsets[-1], dtype=np.uint8)
        source = np.repeat(self.offsets[:-1][rows] - offsets[:-1], self.lengths[rows])
        actions[:] = self.actions[source + np.arange(offsets[-1])]
        missions = None if self.missions is None else self.missions.take(pa.array(rows))
        return Demos(self.names, self.levels[rows], self.seeds[rows], offsets, actions, self.rewards[rows], missions)

    def to_table(self) -> pa.Table:
        """The demonstrations as an Arrow table with the schema of a file."""
        if self.missions is None:
            raise ValueError("demonstrations cannot be stored without their missions")
        levels = pa.DictionaryArray.from_arrays(pa.array(self.levels, pa.int32()), pa.array(self.names, pa.string()))
        actions = binary_array(pa.binary(), self.offsets, self.actions)
        columns = [levels, pa.array(self.seeds), self.missions, actions, pa.array(self.lengths.astype(np.int32))]
        return pa.table([*columns, pa.array(self.rewards)], schema=SCHEMA)


def offsets_of(lengths: np.ndarray) -> np.ndarray:
    """The offsets of M concatenated sequences of these lengths: (M + 1,) int64."""
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths, dtype=np.int64)])


def binary_array(kind: pa.DataType, offsets: np.ndarray, data: np.ndarray) -> pa.Array:
    """An Arrow array of strings or bytes that shares the memory of `data`."""
    buffers = [None, pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(np.ascontiguousarray(data))]
    return pa.Array.from_buffers(kind, len(offsets) - 1, buffers)


def spell_missions(missions: np.ndarray, rows: np.ndarray) -> pa.Array:
    """The chosen rows of `missions`, (N, 72) uint8, in English; a faster `detokenize` for batches."""
    text = np.empty(len(rows) * MAX_WORDS * LONGEST_WORD, dtype=np.uint8)
    offsets = np.empty(len(rows) + 1, dtype=np.int64)
    kernels.spell_batch(missions, rows, LETTERS, WORD_STARTS, offsets, text)
    return binary_array(pa.string(), offsets, text[: offsets[-1]].copy())


def pack_demos(
    names: Sequence[str],
    levels: np.ndarray,
    seeds: np.ndarray,
    missions: np.ndarray,
    actions: np.ndarray,
    lengths: np.ndarray,
    rewards: np.ndarray,
    rows: np.ndarray,
) -> Demos:
    """Packs M of the N episodes that an expert has played, without the padding of their actions.

    Args:
        names: Names of levels.
        levels: (N,) index in `names` of each episode's level.
        seeds: (N,) integers.
        missions: (N, 72) uint8, token ids.
        actions: (N, T) uint8.
        lengths: (N,) number of actions of each episode.
        rewards: (N,) float64.
        rows: (M,) indices of the episodes to pack.
    """
    offsets = offsets_of(lengths[rows])
    packed = np.empty(offsets[-1], dtype=np.uint8)
    kernels.pack_rows(actions, rows, offsets, packed)
    return Demos(
        tuple(names),
        levels[rows].astype(np.int32),
        seeds[rows].astype(np.int64),
        offsets,
        packed,
        rewards[rows],
        spell_missions(missions, rows),
    )


class WrongRowError(DemoFileError):
    """A row of a file is malformed.

    Attributes:
        row: Its number.
    """

    def __init__(self, row: int, file: str, problem: str) -> None:
        super().__init__(f"row {row} of {file} is wrong: {problem}")
        self.row = row


def unpack_table(table: pa.Table, names: tuple[str, ...], first_row: int, file: str) -> Demos:
    """The rows of a table as demonstrations; `file` and `first_row` are used in error messages.

    Raises:
        WrongRowError: A row is invalid; the error is about the first such row.
    """
    problems: list[tuple[int, str]] = []

    def require(valid: np.ndarray, problem: str) -> None:
        if not valid.all():
            problems.append((int(np.argmin(valid)), problem))

    for column in table.column_names:
        nulls = table[column].combine_chunks().is_null()
        require(~np.asarray(nulls.to_numpy(zero_copy_only=False), dtype=bool), f"it has no {column}")
    if problems:
        # Columns with gaps cannot be converted; of the rows before the first gap, another may be wrong.
        row, problem = min(problems)
        unpack_table(table.slice(0, row), names, first_row, file)
        raise WrongRowError(first_row + row, file, problem)
    missions = _one_array(table["mission"]) if "mission" in table.column_names else None
    codes = _codes_of(_one_array(table["level"]), names)
    require(codes >= 0, "its level is not among those in the header")
    seeds = table["seed"].to_numpy()
    require(seeds >= 0, "its seed is negative")
    rewards = table["reward"].to_numpy()
    require((rewards >= 0) & (rewards <= 1), "its reward is not between 0 and 1")
    offsets, actions = _flatten(_one_array(table["actions"]))
    lengths = np.diff(offsets)
    require(lengths > 0, "it has no actions")
    if "length" in table.column_names:
        require(table["length"].to_numpy() == lengths, "its length is not the number of its actions")
    wrong = actions >= NUM_ACTIONS
    if wrong.any():
        owner = np.searchsorted(offsets, np.argmax(wrong), side="right") - 1
        require(np.arange(len(seeds)) != owner, f"it has an action that is not in 0..{NUM_ACTIONS - 1}")
    if problems:
        row, problem = min(problems, key=lambda item: item[0])
        raise WrongRowError(first_row + row, file, problem)
    return Demos(names, codes, seeds, offsets, actions, rewards, missions)


def _one_array(column: pa.ChunkedArray) -> pa.Array:
    if column.num_chunks == 1:
        return column.chunk(0)
    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def _codes_of(levels: pa.Array, names: tuple[str, ...]) -> np.ndarray:
    """The index in `names` of each level, -1 if it is not there: (M,) int32."""
    if isinstance(levels, pa.DictionaryArray):
        known = [names.index(name) if name in names else -1 for name in levels.dictionary.to_pylist()]
        return np.array([*known, -1], dtype=np.int32)[levels.indices.to_numpy()]
    return np.array([names.index(name) if name in names else -1 for name in levels.to_pylist()], dtype=np.int32)


def _flatten(column: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The offsets, starting at 0, and the concatenated bytes of a binary array."""
    _, offset_buffer, data = column.buffers()
    bounds = np.frombuffer(offset_buffer, dtype=np.int32)[column.offset : column.offset + len(column) + 1]
    offsets = bounds.astype(np.int64)
    everything = np.frombuffer(data, dtype=np.uint8) if data is not None else np.empty(0, dtype=np.uint8)
    return offsets - offsets[0], everything[offsets[0] : offsets[-1]]
