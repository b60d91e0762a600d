"""Where replayed demonstrations come from: a file, in a new order each pass, or the expert, new ones for ever.

A source is a fixed sequence, given its seed, and a position in it. `take` moves the position; `state` and `load` save
and restore it; `recall` brings demonstrations back that had been taken before.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from babyai.demos.packed import Demos, offsets_of, pack_demos
from babyai.demos.store import DemoFile, PathLike
from babyai.engine import Engine, check_seed
from babyai.expert.expert import ExpertBatch, Style
from babyai.levels.catalog import Level, Rules, find_level

# Seeds from here on are kept for validation and test.
RESERVED = 10**9
MIXED_AT_ONCE = 1024


@dataclass(frozen=True)
class Batch:
    """Some demonstrations on their way to lanes.

    Attributes:
        rows: (K,) int64, their rows in the file; -1 for those that are in none.
        levels: (K,) int32, places in the levels of the source.
        seeds: (K,) int64.
        starts, lengths: (K,) int64; number k is actions[starts[k]:starts[k] + lengths[k]].
        actions: uint8.
    """

    rows: np.ndarray
    levels: np.ndarray
    seeds: np.ndarray
    starts: np.ndarray
    lengths: np.ndarray
    actions: np.ndarray


class DemoSource(Protocol):
    """A sequence of demonstrations without end."""

    levels: list[Level]
    rules: Rules

    def take(self, count: int) -> Batch:
        """The next `count` demonstrations."""
        ...

    def recall(self, rows: np.ndarray, levels: np.ndarray, seeds: np.ndarray) -> Batch:
        """Demonstrations that were taken before, by their names."""
        ...

    def state(self) -> dict[str, Any]:
        """The position, in the types of JSON."""
        ...

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes to a position of a source made with the same arguments."""
        ...


class Mixture:
    """An endless sequence of numbers 0..K-1 in given proportions, and the position in it."""

    def __init__(self, weights: Sequence[float], seed: int) -> None:
        shares = np.asarray(weights, dtype=np.float64)
        if not len(shares) or not np.isfinite(shares).all() or shares.min() < 0 or shares.sum() == 0:
            raise ValueError(f"weights must be numbers from 0 on, and not all 0, not {list(weights)}")
        self.position = 0
        self._shares, self._seed = shares / shares.sum(), seed
        self._drawn, self._block = np.zeros(0, dtype=np.int64), -1

    def take(self, count: int) -> np.ndarray:
        """(count,) int64, the next numbers."""
        if len(self._shares) == 1:
            self.position += count
            return np.zeros(count, dtype=np.int64)
        pieces = []
        while count:
            block, offset = divmod(self.position, MIXED_AT_ONCE)
            if block != self._block:
                generator = np.random.default_rng([self._seed, block])
                self._drawn, self._block = generator.choice(len(self._shares), MIXED_AT_ONCE, p=self._shares), block
            pieces.append(self._drawn[offset : offset + count])
            self.position += len(pieces[-1])
            count -= len(pieces[-1])
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)


class FileSource:
    """The demonstrations of a file, in a new random order at each pass.

    Args:
        path: The file. Its seeds and actions are held in memory, about 100 bytes a demonstration.
        seed: Decides all orders.
        demos: How many rows to use, from the first on; None: all.
        weights: How often each level comes up, by its name; None: as often as it is in the file.
        shuffle: Without it, the rows come in the order of the file.
    """

    def __init__(
        self,
        path: PathLike,
        *,
        seed: int = 0,
        demos: int | None = None,
        weights: Mapping[str, float] | None = None,
        shuffle: bool = True,
    ) -> None:
        with DemoFile(path) as file:
            count = len(file) if demos is None else demos
            if not 1 <= count <= len(file):
                raise ValueError(f"{path} has {len(file)} demonstrations, so {count} cannot be taken from it")
            self.demos: Demos = file.read(slice(0, count), missions=False)
            self.rules: Rules = file.rules
            self.levels = [find_level(name, file.rules) for name in file.levels]
        self.seed, self.shuffle, self.weights = seed, shuffle, weights
        self._groups = self._split(weights)
        self._mixture = Mixture([1.0] if weights is None else list(weights.values()), seed)
        self._positions = [0] * len(self._groups)
        self._orders: dict[int, tuple[int, np.ndarray]] = {}

    @property
    def passes(self) -> float:
        """How often the whole file has been gone through."""
        return sum(self._positions) / len(self.demos)

    def take(self, count: int) -> Batch:
        """The next `count` demonstrations."""
        groups = self._mixture.take(count)
        rows = np.empty(count, dtype=np.int64)
        for group in range(len(self._groups)):
            places = np.flatnonzero(groups == group)
            rows[places] = self._next_rows(group, len(places))
        return self._batch(rows)

    def recall(self, rows: np.ndarray, levels: np.ndarray, seeds: np.ndarray) -> Batch:
        """The named rows."""
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self.demos)):
            raise ValueError("this position belongs to another file of demonstrations")
        batch = self._batch(rows)
        if not (np.array_equal(batch.seeds, seeds) and np.array_equal(batch.levels, levels)):
            raise ValueError("this position belongs to another file of demonstrations")
        return batch

    def state(self) -> dict[str, Any]:
        """The position, in the types of JSON."""
        return {"kind": "file", "positions": list(self._positions), "drawn": self._mixture.position}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes to a position."""
        if state["kind"] != "file" or len(state["positions"]) != len(self._positions):
            raise ValueError("this position belongs to another source of demonstrations")
        self._positions, self._mixture.position = list(state["positions"]), state["drawn"]

    def _split(self, weights: Mapping[str, float] | None) -> list[np.ndarray]:
        """The rows of each group that is shuffled on its own."""
        if weights is None:
            return [np.arange(len(self.demos))]
        groups = []
        for name in weights:
            if name not in self.demos.names:
                raise ValueError(f"there is a weight for level {name!r}, but no demonstration of it")
            groups.append(np.flatnonzero(self.demos.levels == self.demos.names.index(name)))
            if not len(groups[-1]):
                raise ValueError(f"there is a weight for level {name!r}, but no demonstration of it among those used")
        return groups

    def _next_rows(self, group: int, count: int) -> np.ndarray:
        pieces, size = [np.zeros(0, dtype=np.int64)], len(self._groups[group])
        while count:
            turn, offset = divmod(self._positions[group], size)
            if self._orders.get(group, (-1,))[0] != turn:
                self._orders[group] = turn, self._order(group, turn)
            pieces.append(self._orders[group][1][offset : offset + count])
            self._positions[group] += len(pieces[-1])
            count -= len(pieces[-1])
        return np.concatenate(pieces)

    def _order(self, group: int, turn: int) -> np.ndarray:
        rows = self._groups[group]
        return np.random.default_rng([self.seed, group, turn]).permutation(rows) if self.shuffle else rows

    def _batch(self, rows: np.ndarray) -> Batch:
        demos = self.demos
        starts, ends = demos.offsets[rows], demos.offsets[rows + 1]
        return Batch(rows, demos.levels[rows], demos.seeds[rows], starts, ends - starts, demos.actions)


class ExpertSource:
    """Fresh demonstrations, made when they are needed; those on which the expert fails are left out.

    Args:
        levels: One level, several, or several with their weights.
        rules: "paper" or "minigrid".
        style: The expert's style.
        seed: Decides which level comes when.
        first_seed: The seed of each level's first demonstration; the others follow. Those kept for validation and test
            are never reached.
        threads: How many threads make them.
        block: How many are made at a time.
    """

    def __init__(
        self,
        levels: str | Level | Sequence[str | Level] | Mapping[str, float],
        *,
        rules: Rules = "paper",
        style: Style = "paper",
        seed: int = 0,
        first_seed: int = 0,
        threads: int = 1,
        block: int = 512,
    ) -> None:
        weights = dict(levels) if isinstance(levels, Mapping) else None
        names = list(weights or ([levels] if isinstance(levels, str | Level) else levels))
        self.levels = [find_level(level, rules) for level in names]
        self.rules: Rules = rules
        self.style: Style = style
        self.first_seed, self.block = check_seed(first_seed), block
        self._span = RESERVED - first_seed if first_seed < RESERVED else 2**62
        self._mixture = Mixture(list(weights.values()) if weights else [1.0] * len(self.levels), seed)
        self._counts = [0] * len(self.levels)
        self._threads, self._own = threads, threading.local()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="babyai-expert")
        # Blocks under way, each with the position at which it begins; and the one that is being taken from.
        self._coming: deque[tuple[dict[str, Any], Future[Demos]]] = deque()
        self._begin: dict[str, Any] = self._position()
        self._current: Demos | None = None
        self._taken = 0

    def take(self, count: int) -> Batch:
        """The next `count` demonstrations; waits until there are as many."""
        pieces: list[tuple[Demos, np.ndarray]] = []
        while count:
            if self._current is None or self._taken == len(self._current):
                self._next_block()
            assert self._current is not None
            rows = np.arange(self._taken, min(self._taken + count, len(self._current)))
            pieces.append((self._current, rows))
            self._taken += len(rows)
            count -= len(rows)
        return _join(pieces)

    def recall(self, rows: np.ndarray, levels: np.ndarray, seeds: np.ndarray) -> Batch:
        """The demonstrations of these levels and seeds, made again."""
        demos = self._make(np.asarray(levels, dtype=np.int64), np.asarray(seeds, dtype=np.int64))
        if len(demos) != len(seeds):
            raise ValueError("this position belongs to another expert: it did not succeed where this one does not")
        return _join([(demos, np.arange(len(demos)))])

    def state(self) -> dict[str, Any]:
        """The position, in the types of JSON."""
        return {"kind": "expert", "begin": self._begin, "taken": self._taken, "block": self.block}

    def load(self, state: Mapping[str, Any]) -> None:
        """Goes to a position."""
        if (
            state["kind"] != "expert"
            or state["block"] != self.block
            or len(state["begin"]["counts"]) != len(self.levels)
        ):
            raise ValueError("this position belongs to another source of demonstrations")
        self._coming.clear()
        self._mixture.position, self._counts = state["begin"]["drawn"], list(state["begin"]["counts"])
        self._begin, self._current, self._taken = self._position(), None, 0
        if state["taken"]:
            self._next_block()
            self._taken = state["taken"]

    def close(self) -> None:
        """Ends the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _position(self) -> dict[str, Any]:
        return {"drawn": self._mixture.position, "counts": list(self._counts)}

    def _next_block(self) -> None:
        """Makes the next block current, and has others made meanwhile."""
        while len(self._coming) <= self._threads:
            begin = self._position()
            self._coming.append((begin, self._pool.submit(self._make, *self._next_names())))
        self._begin, job = self._coming.popleft()
        self._current, self._taken = job.result(), 0

    def _next_names(self) -> tuple[np.ndarray, np.ndarray]:
        """The levels and seeds of the next block."""
        levels = self._mixture.take(self.block)
        seeds = np.empty(self.block, dtype=np.int64)
        for number in range(len(self.levels)):
            places = np.flatnonzero(levels == number)
            following = self._counts[number] + np.arange(len(places), dtype=np.int64)
            seeds[places] = self.first_seed + following % self._span
            self._counts[number] += len(places)
        return levels, seeds

    def _make(self, levels: np.ndarray, seeds: np.ndarray) -> Demos:
        """The demonstrations of these levels and seeds, where the expert succeeds."""
        engine, expert = self._own_engine(len(seeds))
        engine.worlds.level = levels
        engine.reset(seeds)
        actions, lengths, rewards = expert.demonstrate()
        names = [level.name for level in self.levels]
        rows = np.flatnonzero(rewards > 0)
        return pack_demos(names, levels, seeds, engine.missions, actions, lengths, rewards, rows)

    def _own_engine(self, count: int) -> tuple[Engine, ExpertBatch]:
        """This thread's engine."""
        kept = getattr(self._own, "engine", None)
        if kept is None or kept[0].num_worlds != count:
            engine = Engine(self.levels, count, rules=self.rules)
            engine.reset(0)
            kept = self._own.engine = engine, ExpertBatch(engine, self.style)
        return kept


def _join(pieces: list[tuple[Demos, np.ndarray]]) -> Batch:
    """Rows of several packs as one batch."""
    taken = [demos.take(rows) for demos, rows in pieces]
    levels, seeds, lengths, actions = (
        np.concatenate([getattr(demos, name) for demos in taken]) for name in ("levels", "seeds", "lengths", "actions")
    )
    return Batch(np.full(len(seeds), -1, dtype=np.int64), levels, seeds, offsets_of(lengths)[:-1], lengths, actions)
