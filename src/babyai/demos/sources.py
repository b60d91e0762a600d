"""Sources of demonstrations for replay: a file, reshuffled for each pass, or the expert, endlessly.

A source is a fixed sequence, given its seed, and a position in it. `take` advances the position; `state_dict` and
`load_state_dict` save and restore it; `recall` returns demonstrations that were taken before.
"""

import threading
from collections import deque
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from babyai.demos.demonstrate import demonstrate
from babyai.demos.packed import Demos, offsets_of
from babyai.demos.store import DemoFile, PathLike
from babyai.engine import Engine, check_seed
from babyai.expert.expert import ExpertBatch, Style
from babyai.levels.catalog import Level, Rules, find_level
from babyai.seeds import VALIDATION_SEED

# Levels are drawn in blocks of this many.
MIXTURE_BLOCK = 1024


@dataclass(frozen=True)
class SelectedDemos:
    """K demonstrations that a source hands to replay.

    Attributes:
        rows: (K,) int64, their rows in the file; -1 without a file.
        levels: (K,) int32, indices into the levels of the source.
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
    """An endless sequence of demonstrations."""

    levels: list[Level]
    rules: Rules

    def take(self, count: int) -> SelectedDemos:
        """The next `count` demonstrations."""
        ...

    def recall(self, rows: np.ndarray, levels: np.ndarray, seeds: np.ndarray) -> SelectedDemos:
        """Demonstrations that were taken before, by row, level and seed."""
        ...

    def state_dict(self) -> dict[str, Any]:
        """The position, as JSON."""
        ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Moves to a position of a source with the same arguments."""
        ...


class Mixture:
    """An endless random sequence of numbers 0..K-1 with given weights, and a position in it."""

    def __init__(self, weights: Sequence[float], seed: int) -> None:
        shares = np.asarray(weights, dtype=np.float64)
        if not len(shares) or not np.isfinite(shares).all() or shares.min() < 0 or shares.sum() == 0:
            raise ValueError(f"weights must be non-negative numbers, not all zero, not {list(weights)}")
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
            block, offset = divmod(self.position, MIXTURE_BLOCK)
            if block != self._block:
                generator = np.random.default_rng([self._seed, block])
                self._drawn, self._block = generator.choice(len(self._shares), MIXTURE_BLOCK, p=self._shares), block
            pieces.append(self._drawn[offset : offset + count])
            self.position += len(pieces[-1])
            count -= len(pieces[-1])
        return np.concatenate(pieces) if pieces else np.zeros(0, dtype=np.int64)


class FileSource:
    """The demonstrations of a file, reshuffled for each pass.

    Args:
        path: The file. Its seeds and actions are held in memory, about 100 bytes per demonstration.
        seed: Random seed of the shuffling.
        demos: Number of rows to use, from the first on; default: all.
        weights: Sampling weight of each level, by name; default: as often as in the file.
        shuffle: Whether to shuffle. Otherwise the rows come in the order of the file.
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
                raise ValueError(f"{path} has {len(file)} demonstrations, not {count}")
            self.demos: Demos = file.read(slice(0, count), missions=False)
            self.rules: Rules = file.rules
            self.levels = [find_level(name, file.rules) for name in file.levels]
        self.seed = seed
        self.shuffle = shuffle
        self.weights = weights
        self._groups = self._split(weights)
        self._mixture = Mixture([1.0] if weights is None else list(weights.values()), seed)
        self._positions = [0] * len(self._groups)
        self._orders: dict[int, tuple[int, np.ndarray]] = {}

    @property
    def passes(self) -> float:
        """Number of passes over the file so far."""
        return sum(self._positions) / len(self.demos)

    def take(self, count: int) -> SelectedDemos:
        """The next `count` demonstrations."""
        groups = self._mixture.take(count)
        rows = np.empty(count, dtype=np.int64)
        for group in range(len(self._groups)):
            places = np.flatnonzero(groups == group)
            rows[places] = self._next_rows(group, len(places))
        return self._select(rows)

    def recall(self, rows: np.ndarray, levels: np.ndarray, seeds: np.ndarray) -> SelectedDemos:
        """The demonstrations in these rows."""
        if len(rows) and (rows.min() < 0 or rows.max() >= len(self.demos)):
            raise ValueError("the saved position belongs to another file of demonstrations")
        demos = self._select(rows)
        if not (np.array_equal(demos.seeds, seeds) and np.array_equal(demos.levels, levels)):
            raise ValueError("the saved position belongs to another file of demonstrations")
        return demos

    def state_dict(self) -> dict[str, Any]:
        """The position, as JSON."""
        return {"kind": "file", "positions": list(self._positions), "drawn": self._mixture.position}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Moves to a position."""
        if state["kind"] != "file" or len(state["positions"]) != len(self._positions):
            raise ValueError("the saved position belongs to another source of demonstrations")
        self._positions = list(state["positions"])
        self._mixture.position = state["drawn"]

    def _split(self, weights: Mapping[str, float] | None) -> list[np.ndarray]:
        """The rows of each group; each is shuffled on its own."""
        if weights is None:
            return [np.arange(len(self.demos))]
        groups = []
        for name in weights:
            if name not in self.demos.names:
                raise ValueError(f"level {name!r} has a weight, but the file has no demonstrations of it")
            groups.append(np.flatnonzero(self.demos.levels == self.demos.names.index(name)))
            if not len(groups[-1]):
                raise ValueError(f"level {name!r} has a weight, but none of the demonstrations used are of it")
        return groups

    def _next_rows(self, group: int, count: int) -> np.ndarray:
        pieces = [np.zeros(0, dtype=np.int64)]
        size = len(self._groups[group])
        while count:
            pass_number, offset = divmod(self._positions[group], size)
            if self._orders.get(group, (-1,))[0] != pass_number:
                self._orders[group] = pass_number, self._order(group, pass_number)
            pieces.append(self._orders[group][1][offset : offset + count])
            self._positions[group] += len(pieces[-1])
            count -= len(pieces[-1])
        return np.concatenate(pieces)

    def _order(self, group: int, pass_number: int) -> np.ndarray:
        rows = self._groups[group]
        return np.random.default_rng([self.seed, group, pass_number]).permutation(rows) if self.shuffle else rows

    def _select(self, rows: np.ndarray) -> SelectedDemos:
        demos = self.demos
        starts = demos.offsets[rows]
        lengths = demos.offsets[rows + 1] - starts
        return SelectedDemos(rows, demos.levels[rows], demos.seeds[rows], starts, lengths, demos.actions)


class ExpertSource:
    """New demonstrations by the expert, generated in the background; missions on which it fails are left out.

    Args:
        levels: One level, several, or several with their sampling weights.
        rules: "paper" or "minigrid".
        style: The expert's style.
        seed: Random seed of the sequence of levels.
        first_seed: The seed of each level's first demonstration; the others follow. The seeds reserved for validation
            and test are never reached.
        threads: Number of threads.
        block: Number of demonstrations generated at a time.
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
        self.first_seed = check_seed(first_seed)
        self.block = block
        self._span = VALIDATION_SEED - first_seed if first_seed < VALIDATION_SEED else 2**62
        self._mixture = Mixture(list(weights.values()) if weights else [1.0] * len(self.levels), seed)
        self._counts = [0] * len(self.levels)
        self._threads = threads
        self._own = threading.local()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="babyai-expert")
        # Blocks in progress, each with the position at which it begins; and the one that `take` is reading.
        self._coming: deque[tuple[dict[str, Any], Future[Demos]]] = deque()
        self._begin: dict[str, Any] = self._position()
        self._current: Demos | None = None
        self._taken = 0

    def take(self, count: int) -> SelectedDemos:
        """The next `count` demonstrations; waits until there are enough."""
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

    def recall(self, rows: np.ndarray, levels: np.ndarray, seeds: np.ndarray) -> SelectedDemos:
        """The demonstrations of these levels and seeds, generated again."""
        if len(seeds) and (min(levels.min(), seeds.min()) < 0 or levels.max() >= len(self.levels)):
            raise ValueError("the saved position belongs to another source of demonstrations")
        demos = self._make(np.asarray(levels, dtype=np.int64), np.asarray(seeds, dtype=np.int64))
        if len(demos) != len(seeds):
            raise ValueError("the saved position belongs to an expert that solves missions which this one does not")
        return _join([(demos, np.arange(len(demos)))])

    def state_dict(self) -> dict[str, Any]:
        """The position, as JSON."""
        return {"kind": "expert", "begin": self._begin, "taken": self._taken, "block": self.block}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Moves to a position."""
        if (
            state["kind"] != "expert"
            or state["block"] != self.block
            or len(state["begin"]["counts"]) != len(self.levels)
        ):
            raise ValueError("the saved position belongs to another source of demonstrations")
        self._coming.clear()
        self._mixture.position = state["begin"]["drawn"]
        self._counts = list(state["begin"]["counts"])
        self._begin = self._position()
        self._current = None
        self._taken = 0
        if state["taken"]:
            self._next_block()
            if self._current is None or not 0 < state["taken"] <= len(self._current):
                raise ValueError("the saved position is damaged: its block has fewer demonstrations")
            self._taken = state["taken"]

    def close(self) -> None:
        """Stops the threads."""
        self._pool.shutdown(cancel_futures=True)

    def _position(self) -> dict[str, Any]:
        return {"drawn": self._mixture.position, "counts": list(self._counts)}

    def _next_block(self) -> None:
        """Moves to the next block, and starts generating others."""
        while len(self._coming) <= self._threads:
            begin = self._position()
            self._coming.append((begin, self._pool.submit(self._make, *self._next_missions())))
        self._begin, job = self._coming.popleft()
        self._current = job.result()
        self._taken = 0

    def _next_missions(self) -> tuple[np.ndarray, np.ndarray]:
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
        return demonstrate(expert)[0]

    def _own_engine(self, count: int) -> tuple[Engine, ExpertBatch]:
        """This thread's engine."""
        kept = getattr(self._own, "engine", None)
        if kept is None or kept[0].num_worlds != count:
            engine = Engine(self.levels, count, rules=self.rules)
            engine.reset(0)
            kept = engine, ExpertBatch(engine, self.style)
            self._own.engine = kept
        return kept


def _join(pieces: list[tuple[Demos, np.ndarray]]) -> SelectedDemos:
    """Rows of several packs."""
    taken = [demos.take(rows) for demos, rows in pieces]
    levels, seeds, lengths, actions = (
        np.concatenate([getattr(demos, name) for demos in taken]) for name in ("levels", "seeds", "lengths", "actions")
    )
    rows = np.full(len(seeds), -1, dtype=np.int64)
    return SelectedDemos(rows, levels, seeds, offsets_of(lengths)[:-1], lengths, actions)
