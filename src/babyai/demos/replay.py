"""Replay: demonstrations become what learners eat, chunks of T steps x N lanes, filled off the training thread.

Demonstrations are laid end to end into lanes, so that every cell of a chunk is a real step and nothing is padding;
where a chunk ends, the next one goes on. Observations of any kind come out of the worlds themselves.
"""

import itertools
import queue
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, Self

import numpy as np

from babyai.demos import kernels
from babyai.demos.sources import Batch, DemoSource
from babyai.engine import Engine
from babyai.render.blit import blit_views, view_tiles
from babyai.world.codes import MAX_WORDS
from babyai.world.view import VIEW_SIZE

Kind = Literal["symbolic", "rgb"]
TILE_PIXELS = 8


@dataclass
class Chunk:
    """T steps of N lanes. Every cell is a real step; M episodes occur in it.

    Attributes:
        images: (T, N, n, n, 3) uint8, what the agent sees before it acts; pixels if the replay says so.
        directions: (T, N) uint8.
        actions: (T, N) uint8, what to learn to do: what the demonstration did.
        first: (T, N) bool, where an episode begins; elsewhere the state of the step before, or chunk before, goes on.
        mission_index: (T, N) int32, the row of `missions` that holds.
        mission_table: (capacity, 72) uint8, of which the first M rows are in use.
        count: M.
        levels, seeds: (capacity,), of each episode: its place in the levels of the source, and its seed.
    """

    images: np.ndarray
    directions: np.ndarray
    actions: np.ndarray
    first: np.ndarray
    mission_index: np.ndarray
    mission_table: np.ndarray
    levels: np.ndarray
    seeds: np.ndarray
    count: int = 0
    taken: np.ndarray | None = None
    """(T, N) uint8, what was done, where that is not what is to be learned; None: `actions`."""
    position: dict[str, Any] = field(default_factory=dict, repr=False)
    """Where the replay stands after this chunk; see `Replay.state_dict`."""

    @property
    def missions(self) -> np.ndarray:
        """(M, 72) uint8, the token ids of each episode's mission; the first N are those of the chunk's first step."""
        return self.mission_table[: self.count]

    @classmethod
    def empty(cls, steps: int, lanes: int, view_size: int = VIEW_SIZE, kind: Kind = "symbolic") -> "Chunk":
        """Arrays to be filled."""
        side = view_size * TILE_PIXELS if kind == "rgb" else view_size
        cells, episodes = (steps, lanes), lanes * (steps + 1)
        return cls(
            images=np.empty((*cells, side, side, 3), dtype=np.uint8),
            directions=np.empty(cells, dtype=np.uint8),
            actions=np.empty(cells, dtype=np.uint8),
            first=np.empty(cells, dtype=bool),
            mission_index=np.empty(cells, dtype=np.int32),
            mission_table=np.empty((episodes, MAX_WORDS), dtype=np.uint8),
            levels=np.empty(episodes, dtype=np.int32),
            seeds=np.empty(episodes, dtype=np.int64),
        )


class Replay:
    """An endless sequence of chunks.

        with Replay(FileSource("boss.parquet"), steps=20, lanes=256) as replay:
            for chunk in replay:
                ...

    A chunk's arrays are used again: they hold until the next chunk is asked for.

    Args:
        source: Where the demonstrations come from; closed with the replay if it can be.
        steps: T.
        lanes: N.
        kind: "symbolic", or "rgb" for pixels as in Minigrid's wrapper, 8 a tile.
        view_size: The side of the agent's view.
        threads: How many threads fill a chunk. Chunks do not depend on it.
        ahead: How many chunks are kept ready.
        buffers: Chunks to fill instead of own ones (in page-locked memory, for instance), at least `ahead + 1`.
    """

    def __init__(
        self,
        source: DemoSource,
        *,
        steps: int,
        lanes: int,
        kind: Kind = "symbolic",
        view_size: int = VIEW_SIZE,
        threads: int = 1,
        ahead: int = 2,
        buffers: Sequence[Chunk] | None = None,
    ) -> None:
        if steps < 1 or lanes < 1 or ahead < 1 or threads < 1:
            given = f"{steps}, {lanes}, {threads} and {ahead}"
            raise ValueError(f"steps, lanes, threads and ahead must be from 1 on, not {given}")
        if kind not in ("symbolic", "rgb"):
            raise ValueError(f"unknown kind {kind!r}; observations are 'symbolic' or 'rgb'")
        self.source, self.steps, self.lanes = source, steps, lanes
        self.kind: Kind = kind
        self.engine = Engine(source.levels, lanes, rules=source.rules, view_size=view_size)
        self._size = view_size
        # What each agent sees now; a reset writes it, too.
        self._views = self.engine.images.reshape(lanes, -1)
        self._symbols = np.empty((steps, lanes, self._views.shape[1]), dtype=np.uint8) if kind == "rgb" else None
        self._actions = np.zeros((lanes, 64), dtype=np.uint8)
        self._rows = np.full(lanes, -1, dtype=np.int64)
        self._lengths, self._at = np.zeros(lanes, dtype=np.int64), np.zeros(lanes, dtype=np.int64)
        self._shards = _split(lanes, threads)
        self._pool = ThreadPoolExecutor(threads - 1, "babyai-replay") if threads > 1 else None
        self._ahead = ahead
        self._buffers = list(buffers or [])
        if buffers is not None and len(self._buffers) <= ahead:
            raise ValueError(f"{ahead} chunks ahead need at least {ahead + 1} buffers, not {len(buffers)}")
        self._worker: _Worker | None = None

    # ------------------------------------------------------------ chunks

    def fill(self, chunk: Chunk) -> None:
        """Fills a chunk here and now, without the thread that iterating uses."""
        filled = np.zeros(self.lanes, dtype=np.int64)
        numbers = np.arange(self.lanes, dtype=np.int64)
        chunk.count = self.lanes
        self._copy_names(chunk, numbers, numbers)
        symbols = chunk.images.reshape(self.steps, self.lanes, -1) if self._symbols is None else self._symbols
        while filled.min() < self.steps:
            needy = np.flatnonzero((self._at == self._lengths) & (filled < self.steps))
            if len(needy):
                self._refill(needy, filled, numbers, chunk)
            self._play(filled, numbers, chunk, symbols)
        if self._symbols is not None:
            self._draw(chunk, self._symbols)
        chunk.position = self._position()

    def __iter__(self) -> Iterator[Chunk]:
        return self

    def __next__(self) -> Chunk:
        if self._worker is None:
            while len(self._buffers) <= self._ahead:
                self._buffers.append(Chunk.empty(self.steps, self.lanes, self._size, self.kind))
            self._worker = _Worker(self, self._buffers, self._ahead)
        return self._worker.next()

    def close(self) -> None:
        """Ends all threads."""
        self._stop()
        if self._pool is not None:
            self._pool.shutdown()
        close = getattr(self.source, "close", None)
        if close is not None:
            close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    # ------------------------------------------------------------ positions

    def state_dict(self) -> dict[str, Any]:
        """Where the last chunk handed out ended, in the types of JSON: a replay that loads it goes on from there."""
        position = self._worker.position if self._worker is not None else self._position()
        return {key: value.tolist() if isinstance(value, np.ndarray) else value for key, value in position.items()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes to where another replay stood, of the same source and with as many lanes.

        Raises:
            ValueError: It was of another source, or had another number of lanes.
        """
        if len(state["rows"]) != self.lanes:
            raise ValueError(f"this position is one of {len(state['rows'])} lanes, and this replay has {self.lanes}")
        self._stop()
        rows, levels, seeds, at = (np.array(state[key], dtype=np.int64) for key in ("rows", "levels", "seeds", "at"))
        lanes = np.flatnonzero(at > 0)
        self.source.load(state["source"])
        batch = self.source.recall(rows[lanes], levels[lanes].astype(np.int32), seeds[lanes])
        self._at[:], self._lengths[:] = 0, 0
        self._load(lanes, batch)
        if (at > self._lengths).any():
            raise ValueError("this position belongs to another source of demonstrations")
        # A demonstration that has come to its end is done with.
        under_way = np.where(at < self._lengths, at, 0)
        if kernels.skip_lanes(self.engine.kernel_worlds, self._actions, under_way) != kernels.FINE:
            raise ValueError("this position does not fit its demonstrations")
        self._at[:] = at
        kernels.show_lanes(self.engine.kernel_worlds, under_way > 0, self._size, self._views)

    def _position(self) -> dict[str, Any]:
        worlds = self.engine.worlds
        lanes = {"rows": self._rows, "levels": worlds["level"], "seeds": worlds["seed"], "at": self._at}
        return {"source": self.source.state()} | {name: values.copy() for name, values in lanes.items()}

    # ------------------------------------------------------------ the work

    def _refill(self, needy: np.ndarray, filled: np.ndarray, numbers: np.ndarray, chunk: Chunk) -> None:
        """Gives new demonstrations to lanes that are at the end of theirs."""
        self._load(needy, self.source.take(len(needy)))
        # An episode that begins with the chunk takes the place of the one that ended with the chunk before.
        fresh = needy[filled[needy] > 0]
        numbers[fresh] = chunk.count + np.arange(len(fresh))
        chunk.count += len(fresh)
        self._copy_names(chunk, needy, numbers[needy])

    def _load(self, lanes: np.ndarray, batch: Batch) -> None:
        """Puts demonstrations into lanes, and makes their worlds."""
        longest = int(batch.lengths.max(initial=0))
        if longest > self._actions.shape[1]:
            wider = np.zeros((self.lanes, 2 * longest), dtype=np.uint8)
            wider[:, : self._actions.shape[1]] = self._actions
            self._actions = wider
        kernels.load_lanes(lanes, batch.starts, batch.lengths, batch.actions, self._actions)
        self._rows[lanes], self._lengths[lanes], self._at[lanes] = batch.rows, batch.lengths, 0
        self.engine.worlds.level[lanes] = batch.levels
        chosen = np.zeros(self.lanes, dtype=bool)
        chosen[lanes] = True
        seeds = np.zeros(self.lanes, dtype=np.int64)
        seeds[lanes] = batch.seeds
        self.engine.reset(seeds, chosen)

    def _copy_names(self, chunk: Chunk, lanes: np.ndarray, numbers: np.ndarray) -> None:
        worlds = self.engine.worlds
        chunk.mission_table[numbers] = self.engine.missions[lanes]
        chunk.levels[numbers], chunk.seeds[numbers] = worlds["level"][lanes], worlds["seed"][lanes]

    def _play(self, filled: np.ndarray, numbers: np.ndarray, chunk: Chunk, symbols: np.ndarray) -> None:
        """Plays all lanes as far as they go."""
        answers = self._share(
            kernels.play_lanes,
            self._shards,
            *(self.engine.kernel_worlds, self._actions, self._lengths, self._at, filled, self._size, self._views),
            *(numbers, symbols, chunk.directions, chunk.actions, chunk.first, chunk.mission_index),
        )
        for lane in answers:
            if lane != kernels.FINE:
                world = self.engine.worlds[int(lane)]
                level = self.source.levels[world.level].name
                where = f"row {self._rows[lane]}" if self._rows[lane] >= 0 else "a demonstration"
                raise RuntimeError(
                    f"{where} (level {level!r}, seed {world.seed}) does not end where its episode does; run "
                    f"`babyai demos verify` on the file"
                )

    def _draw(self, chunk: Chunk, symbols: np.ndarray) -> None:
        """Turns symbols into pixels."""
        cells = self.steps * self.lanes
        views = symbols.reshape(cells, self._size, self._size, 3)
        frames = chunk.images.reshape(cells, *chunk.images.shape[2:])
        self._share(blit_views, _split(cells, len(self._shards)), views, *view_tiles(TILE_PIXELS), frames)

    def _share(self, kernel: Any, shards: list[tuple[int, int]], *arguments: Any) -> list[Any]:
        """Runs a kernel on each shard, one thread each; returns its answers."""
        if self._pool is None:
            return [kernel(*arguments, *shards[0])]
        jobs = [self._pool.submit(kernel, *arguments, *shard) for shard in shards[1:]]
        return [kernel(*arguments, *shards[0]), *(job.result() for job in jobs)]

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.stop()
            self._worker = None


def _split(count: int, parts: int) -> list[tuple[int, int]]:
    bounds = np.linspace(0, count, parts + 1).astype(int).tolist()
    return list(itertools.pairwise(bounds))


class _Worker:
    """The thread that fills chunks while learners learn, and the two queues between it and them."""

    def __init__(self, replay: Replay, buffers: Sequence[Chunk], ahead: int) -> None:
        self.position = replay._position()
        self._replay, self._stopped = replay, threading.Event()
        self._free: queue.SimpleQueue[Chunk | None] = queue.SimpleQueue()
        self._ready: queue.SimpleQueue[Chunk | BaseException] = queue.SimpleQueue()
        self._lent: Chunk | None = None
        for chunk in buffers[: ahead + 1]:
            self._free.put(chunk)
        self._thread = threading.Thread(target=self._work, name="babyai-replay", daemon=True)
        self._thread.start()

    def next(self) -> Chunk:
        """The next chunk; takes the last one back."""
        if self._lent is not None:
            self._free.put(self._lent)
            self._lent = None
        chunk = self._ready.get()
        if isinstance(chunk, BaseException):
            # Whoever asks again is told again.
            self._ready.put(chunk)
            raise chunk
        self._lent, self.position = chunk, chunk.position
        return chunk

    def stop(self) -> None:
        """Ends the thread."""
        self._stopped.set()
        self._free.put(None)
        self._thread.join()

    def _work(self) -> None:
        try:
            while (chunk := self._free.get()) is not None and not self._stopped.is_set():
                self._replay.fill(chunk)
                self._ready.put(chunk)
        except BaseException as error:
            self._ready.put(error)
