"""The batched engine: environments, expert, demonstrations, training and benchmarks all step worlds through it.

An `Engine` owns N world records and the arrays that a step fills: images, directions, missions, rewards, terminated
and truncated. Each world has its own random generator, so results do not depend on the number of threads.
"""

import copy
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any, Literal

import numpy as np

from babyai import _jit, engine_kernels
from babyai.levels.catalog import Level, Rules, find_level
from babyai.levels.draft import DRAFT, LEVEL, make_draft
from babyai.levels.layout import parse_layout, place_layout
from babyai.seeds import VALIDATION_SEED
from babyai.world.codes import MAX_WORDS, Action
from babyai.world.language import Clause, Mission, parse_mission
from babyai.world.state import DONE_ACTIONS, ENDED, MAX_CLAUSES, MAX_DESCRIPTORS, NOT_RESET, RUNNING, WORLD, make_worlds
from babyai.world.validation import FAULT_MESSAGES
from babyai.world.view import VIEW_SIZE

Episodes = Literal["stream", "next_seed"]
VIEW_SIZES = range(3, 16, 2)
MAX_SEED = 2**63 - 1
# With fewer worlds per shard, another thread costs more than it saves.
MIN_SHARD = 1024


def check_seed(seed: Any) -> int:
    """The seed as an int.

    Raises:
        TypeError: The seed is not an integer.
        ValueError: The seed is not in 0..2**63 - 1.
    """
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer):
        raise TypeError(f"a seed must be an integer, not {seed!r}")
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"a seed must be in 0..2**63 - 1, not {seed}")
    return int(seed)


class Engine:
    """N worlds that are reset and stepped together.

    Args:
        levels: One level or several, given as `Level` or by name.
        num_worlds: Number of worlds, N.
        rules: Rule set: "paper" (the world of the paper) or "minigrid" (identical to Minigrid 3.2.0).
        episodes: Seeding of episodes that are reset without a seed. "stream": the world's generator continues, as in
            Gymnasium. "next_seed": the world's last seed plus `num_worlds`, so every episode can be reproduced by its
            seed.
        view_size: Side length of the agent's view: odd, 3 to 15.
        done_actions: Whether an instruction only counts as fulfilled if the next action is `done`.
        threads: Number of threads. Results do not depend on it.
        assignment: (N,) index in `levels` of the level that each world plays (default: `i % len(levels)`).
        min_shard: Worlds per thread, at least. Expert advice is slow enough to be worth a thread for fewer worlds.

    Attributes:
        worlds: (N,) records; see `babyai.world.state.WORLD`.
        images: (N, n, n, 3) uint8, the agents' views, where n is `view_size`.
        directions: (N,) int64, the agents' headings.
        missions: (N, 72) uint8, token ids padded with 0.
        rewards: (N,) float64, of the last step.
        terminated, truncated: (N,) bool, of the last step.
        done: (N,) bool, true where no episode is in progress.
    """

    def __init__(
        self,
        levels: str | Level | Sequence[str | Level],
        num_worlds: int = 1,
        *,
        rules: Rules = "paper",
        episodes: Episodes = "stream",
        view_size: int = VIEW_SIZE,
        done_actions: bool = False,
        threads: int = 1,
        assignment: Sequence[int] | np.ndarray | None = None,
        min_shard: int = MIN_SHARD,
    ) -> None:
        if num_worlds < 1 or threads < 1:
            raise ValueError(f"num_worlds and threads must be at least 1, not {num_worlds} and {threads}")
        if min_shard < 1:
            raise ValueError(f"min_shard must be at least 1, not {min_shard}")
        if view_size not in VIEW_SIZES:
            raise ValueError(f"view_size must be odd and between 3 and 15, not {view_size}")
        if episodes not in ("stream", "next_seed"):
            raise ValueError(f"episodes must be 'stream' or 'next_seed', not {episodes!r}")
        given = [levels] if isinstance(levels, str | Level) else list(levels)
        self.levels = [find_level(level, rules) for level in given]
        if not self.levels:
            raise ValueError("an engine needs at least one level")
        self.num_worlds = num_worlds
        self.rules: Rules = rules
        self.episodes = episodes
        self.view_size = view_size
        self.worlds = make_worlds(num_worlds)
        self.worlds.level = self._check_assignment(assignment)
        self.worlds.options = DONE_ACTIONS if done_actions else 0
        self._rows = np.array([level.row(rules) for level in self.levels], dtype=LEVEL).view(np.recarray)
        self.images = np.zeros((num_worlds, view_size, view_size, 3), dtype=np.uint8)
        self.directions = np.zeros(num_worlds, dtype=np.int64)
        self.missions = np.zeros((num_worlds, MAX_WORDS), dtype=np.uint8)
        self.rewards = np.zeros(num_worlds, dtype=np.float64)
        self.terminated = np.zeros(num_worlds, dtype=bool)
        self.truncated = np.zeros(num_worlds, dtype=bool)
        self.done = np.ones(num_worlds, dtype=bool)
        self._unseeded: np.ndarray | None = np.ones(num_worlds, dtype=bool)
        self.shards = self._split(threads, min_shard)
        self._prepare_kernels()
        _jit.announce_compilation("engine_kernels.py", "the world (about half a minute)")

    def _prepare_kernels(self) -> None:
        """Builds what the kernels are passed besides the arrays: views of them, scratch memory, threads."""
        self._view_buffer = self.images.reshape(-1)
        self._pool = self._start_threads()
        self._drafts = [for_kernels(make_draft(), DRAFT) for _ in self.shards]
        self.kernel_worlds = for_kernels(self.worlds, WORLD)
        self._kernel_rows = for_kernels(self._rows, LEVEL)
        # Levels with a user's own recipe have their own compiled reset.
        self._custom_resets = {
            number: engine_kernels.compile_reset(level.recipe)
            for number, level in enumerate(self.levels)
            if callable(level.recipe)
        }

    # ------------------------------------------------------------ copies

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the views and threads of `_prepare_kernels`, which a copy must build for its own arrays."""
        rebuilt = ("_view_buffer", "_pool", "_pool_process", "_drafts", "kernel_worlds", "_kernel_rows")
        return {name: value for name, value in vars(self).items() if name not in (*rebuilt, "_custom_resets")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare_kernels()

    def __copy__(self) -> "Engine":
        """A full copy: two engines never share worlds."""
        return copy.deepcopy(self)

    # ------------------------------------------------------------ reset and step

    def reset(
        self, seeds: int | Sequence[int | None] | np.ndarray | None = None, chosen: np.ndarray | None = None
    ) -> None:
        """Starts a new episode in the chosen worlds.

        Args:
            seeds: An int s gives world i the seed s + i; a sequence has one seed per world, or None for a world that
                is reset without a seed (see `episodes`).
            chosen: (N,) bool, the worlds to reset (default: all).
        """
        mask = np.ones(self.num_worlds, dtype=bool) if chosen is None else self._check_mask(chosen)
        self._reset(mask, self._check_seeds(seeds, mask))

    def step(self, actions: Sequence[int] | np.ndarray, *, skip_done: bool = False) -> None:
        """Takes one action in each world and updates images, directions, rewards, terminated, truncated and done.

        Args:
            actions: (N,) integers 0..6; see `babyai.Action`.
            skip_done: Leave worlds whose episode has ended unchanged. If False, stepping such a world is an error.
        """
        chosen = self._check_actions(actions)
        if self._pool is not None:
            # Checked for all shards first: if one action is invalid, no shard may step.
            invalid = engine_kernels.find_invalid_step(chosen, self.done, skip_done, 0, self.num_worlds)
            if invalid != engine_kernels.OK:
                self._raise_step_error(invalid, chosen)
        results = self.run_shards(
            engine_kernels.step_batch,
            lambda number, first, last: (
                *(self.kernel_worlds, chosen, self.done, skip_done, self.view_size, self._view_buffer, self.directions),
                *(self.rewards, self.terminated, self.truncated, first, last),
            ),
        )
        if failed := _failed_worlds(results):
            self._raise_step_error(min(failed), chosen)

    def reset_done(self) -> np.ndarray:
        """Starts the next episode in every world whose episode has ended; returns these worlds, (N,) bool (a copy)."""
        ended = self.done.copy()
        if ended.any():
            self._reset(ended, self._following_seeds(ended))
        return ended

    # ------------------------------------------------------------ single worlds

    def instruct(self, index: int, mission: str | Mission, *, own_limit: bool = True) -> None:
        """Gives one world a new mission and restarts its episode without moving anything.

        Args:
            index: The world.
            mission: A mission, or its sentence in the Baby Language.
            own_limit: Whether the level's time limit applies, if it has one; otherwise the limit depends on the
                mission.

        Raises:
            MissionError: The sentence is not in the Baby Language.
            ValueError: The mission does not fit this world.
        """
        index = self._check_index(index)
        sentence = parse_mission(mission) if isinstance(mission, str) else mission
        world = self.worlds[index]
        before = world.copy()
        sentence.write(world)
        faults = engine_kernels.instruct_world(
            self.kernel_worlds, index, self._kernel_rows, self._drafts[0], int(world.definite), own_limit
        )
        if faults:
            self.worlds[index] = before
            raise ValueError(f"{str(sentence)!r} does not fit this world: {_explain_faults(faults, sentence)}")
        self.done[index] = False
        self.observe(index)

    def lay_out(self, index: int, drawing: str, mission: str | Mission) -> None:
        """Replaces one world with a layout drawn as text (see `babyai.levels.layout`) and gives it a mission."""
        index = self._check_index(index)
        layout = parse_layout(drawing)
        before = self.worlds[index].copy()
        place_layout(self.worlds[index], layout)
        try:
            self.instruct(index, mission, own_limit=False)
        except ValueError:
            self.worlds[index] = before
            raise

    def observe(self, index: int) -> None:
        """Updates image, direction and mission of one world after its record was changed directly."""
        index = self._check_index(index)
        chosen = np.zeros(self.num_worlds, dtype=bool)
        chosen[index] = True
        engine_kernels.observe_batch(
            *(self.kernel_worlds, chosen, self.view_size, self._view_buffer, self.directions, self.missions),
            *(index, index + 1),
        )

    def snapshot(self, index: int) -> bytes:
        """The complete state of one world, including its random generator, for `restore`."""
        return self.worlds[self._check_index(index)].tobytes()

    def restore(self, index: int, snapshot: bytes) -> None:
        """Restores one world from a snapshot taken from this engine or from one with the same levels.

        Raises:
            ValueError: The bytes are not a snapshot, or not one of a possible world; nothing has been changed.
        """
        index = self._check_index(index)
        if not isinstance(snapshot, bytes) or len(snapshot) != WORLD.itemsize:
            raise ValueError("this is not a snapshot, or it was taken with another version of babyai")
        record = np.frombuffer(bytearray(snapshot), dtype=WORLD).view(np.recarray)
        world = record[0]
        if not 0 <= world["level"] < len(self.levels) or world["status"] not in (RUNNING, ENDED):
            raise ValueError("this snapshot is of a level that this engine does not have, or of a world never reset")
        # Kernels trust the record, and a damaged one would make them write anywhere in memory.
        if fault := engine_kernels.find_world_fault(for_kernels(record, WORLD), 0, True):
            raise ValueError(f"this snapshot is damaged: {FAULT_MESSAGES[fault]}")
        self.worlds[index] = world
        self.done[index] = world["status"] == ENDED
        self.mark_seeded(np.arange(self.num_worlds) == index, seeded=bool(world["rng_inc_low"]))
        self.observe(index)

    def set_time_limit(self, level: int, max_steps: int) -> None:
        """Sets the time limit of the next episodes of a level, given by its index in `levels`."""
        self._rows[level].max_steps = max_steps

    def close(self) -> None:
        """Stops the worker threads."""
        if self._pool is not None:
            self._pool.shutdown()

    # ------------------------------------------------------------ kernels and threads

    def _reset(self, mask: np.ndarray, seeds: np.ndarray) -> None:
        """Starts new episodes where `mask`, (N,) bool, is true; `seeds` is (N,) int64, NO_SEED to continue a stream."""
        kernels = {engine_kernels.reset_batch: mask}
        if self._custom_resets:
            played = self.worlds.level
            kernels = {kernel: mask & (played == number) for number, kernel in self._custom_resets.items()}
            kernels[engine_kernels.reset_batch] = mask & ~np.isin(played, list(self._custom_resets))
        for kernel, chosen in kernels.items():
            if not chosen.any():
                continue
            results = self.run_shards(
                kernel,
                lambda number, first, last, chosen=chosen: (
                    *(self.kernel_worlds, chosen, seeds, self._kernel_rows, self._drafts[number], self.view_size),
                    *(self._view_buffer, self.directions, self.missions, first, last),
                ),
            )
            if failed := _failed_worlds(results):
                self.done[mask] = self.worlds.status[mask] != RUNNING
                self._raise_reset_error(min(failed))
        self.mark_seeded(mask)
        self.done &= ~mask

    def run_shards(self, kernel: Any, arguments: Callable[[int, int, int], tuple[Any, ...]]) -> list[Any]:
        """Runs a kernel once per shard, each on its own thread; returns one result per shard.

        Args:
            kernel: Compiled function that releases the GIL.
            arguments: Function that returns the kernel's arguments for a shard, given its number, its first world and
                its last world (exclusive).
        """
        calls = [arguments(number, *shard) for number, shard in enumerate(self.shards)]
        if self._pool is None:
            return [kernel(*calls[0])]
        if self._pool_process != os.getpid():
            # Threads do not survive a fork, and a pool without threads would wait forever.
            self._pool = self._start_threads()
            assert self._pool is not None
        jobs = [self._pool.submit(kernel, *call) for call in calls[1:]]
        return [kernel(*calls[0]), *(job.result() for job in jobs)]

    def _start_threads(self) -> ThreadPoolExecutor | None:
        """A thread for each shard but the first, which runs on the caller's."""
        self._pool_process = os.getpid()
        return ThreadPoolExecutor(len(self.shards) - 1) if len(self.shards) > 1 else None

    def _split(self, threads: int, min_shard: int) -> list[tuple[int, int]]:
        count = max(1, min(threads, self.num_worlds // min_shard))
        bounds = np.linspace(0, self.num_worlds, count + 1).astype(int).tolist()
        return list(pairwise(bounds))

    # ------------------------------------------------------------ checks

    def _check_assignment(self, assignment: Sequence[int] | np.ndarray | None) -> np.ndarray:
        if assignment is None:
            return np.arange(self.num_worlds) % len(self.levels)
        numbers = np.asarray(assignment)
        if numbers.shape != (self.num_worlds,) or numbers.min() < 0 or numbers.max() >= len(self.levels):
            raise ValueError(
                f"assignment must have {self.num_worlds} integers, one per world, in 0..{len(self.levels) - 1}"
            )
        return numbers

    def _check_index(self, index: int) -> int:
        if not 0 <= index < self.num_worlds:
            raise IndexError(f"there is no world {index}; worlds are numbered 0..{self.num_worlds - 1}")
        return int(index)

    def _check_mask(self, chosen: np.ndarray) -> np.ndarray:
        mask = np.asarray(chosen)
        if mask.dtype != bool or mask.shape != (self.num_worlds,):
            raise ValueError(
                f"chosen must be an array of shape ({self.num_worlds},) and dtype bool, not {mask.shape} {mask.dtype}"
            )
        return np.ascontiguousarray(mask)

    def _check_seeds(self, seeds: Any, mask: np.ndarray) -> np.ndarray:
        if seeds is None:
            return self._following_seeds(mask)
        if not isinstance(seeds, Sequence | np.ndarray) or isinstance(seeds, str):
            check_seed(check_seed(seeds) + self.num_worlds - 1)
            return int(seeds) + np.arange(self.num_worlds, dtype=np.int64)
        if len(seeds) != self.num_worlds:
            raise ValueError(f"expected one seed per world ({self.num_worlds}), got {len(seeds)}")
        if isinstance(seeds, np.ndarray) and seeds.dtype.kind == "i" and seeds.ndim == 1 and seeds.min() >= 0:
            return seeds.astype(np.int64)
        following = self._following_seeds(mask)
        return np.array(
            [following[i] if seed is None else check_seed(seed) for i, seed in enumerate(seeds)], dtype=np.int64
        )

    def _following_seeds(self, mask: np.ndarray) -> np.ndarray:
        """Seeds for worlds that are reset without one, (N,) int64: the next seed, or NO_SEED to continue the stream."""
        if self.episodes == "next_seed":
            seeds = self.worlds.seed + self.num_worlds
            if (seeds[mask] < 0).any():
                raise ValueError("the next seed would exceed 2**63 - 1; reset with smaller seeds")
        else:
            seeds = np.full(self.num_worlds, engine_kernels.NO_SEED, dtype=np.int64)
        if self._unseeded is not None:
            first_reset = mask & self._unseeded
            random_seeds = np.frombuffer(os.urandom(8 * self.num_worlds), dtype=np.int64) & MAX_SEED
            if self.episodes == "next_seed":
                # These seeds name episodes, and must not be those reserved for validation and test.
                random_seeds = random_seeds % VALIDATION_SEED
            seeds[first_reset] = random_seeds[first_reset]
        return seeds

    def is_seeded(self, index: int) -> bool:
        """Whether the generator of a world has been seeded, so that the world can be reset without a seed."""
        return self._unseeded is None or not self._unseeded[index]

    def mark_seeded(self, mask: np.ndarray, seeded: bool = True) -> None:
        """Records that the generators of these worlds are seeded, or not; `_unseeded` is None while all are."""
        if not seeded:
            self._unseeded = mask if self._unseeded is None else self._unseeded | mask
        elif self._unseeded is not None:
            self._unseeded &= ~mask
            if not self._unseeded.any():
                self._unseeded = None

    def _check_actions(self, actions: Any) -> np.ndarray:
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_worlds,):
            raise ValueError(f"actions must have shape ({self.num_worlds},), one action per world, not {chosen.shape}")
        if chosen.dtype.kind not in "iu":
            raise TypeError(f"actions must be integers 0..6, not {chosen.dtype}")
        return np.ascontiguousarray(chosen, dtype=np.int64)

    def _raise_reset_error(self, failed: int) -> None:
        """Raises the error that explains why a world could not be generated; `failed` is what the kernel returned."""
        refused = failed < engine_kernels.OK
        index = engine_kernels.REFUSED - failed if refused else failed
        level = self.levels[self.worlds[index].level]
        if refused:
            fault = engine_kernels.find_world_fault(self.kernel_worlds, index, False)
            raise ValueError(
                f"the recipe of level {level.name!r} returned True for an invalid world: {FAULT_MESSAGES[fault]}; see "
                f"docs/adding-a-level.md"
            )
        raise RuntimeError(
            f"level {level.name!r} could not be generated in {engine_kernels.MAX_ATTEMPTS} attempts: its rooms may be "
            f"too small for its objects, or its recipe cannot be satisfied"
        )

    def _raise_step_error(self, index: int, actions: np.ndarray) -> None:
        """Raises the error that explains why world `index` cannot take its action."""
        if not 0 <= actions[index] < len(Action):
            names = ", ".join(f"{action.value} {action.name}" for action in Action)
            raise ValueError(f"unknown action {actions[index]} for world {index}; actions are {names}")
        if self.worlds[index].status == NOT_RESET:
            raise RuntimeError(f"world {index} has not been reset yet: call reset() before step()")
        raise RuntimeError(f"the episode of world {index} is over: call reset() before the next step()")


def for_kernels(records: np.recarray, dtype: np.dtype) -> np.ndarray:
    """A view of the records for kernels.

    Numba dispatches faster on plain structured arrays. With the compiler off, kernels need the record array's attribute
    access.
    """
    return records.view(np.ndarray).view(dtype) if _jit.COMPILED else records


def _failed_worlds(results: list[int]) -> list[int]:
    """The worlds that kernels reported as failed, at most one per shard."""
    return [result for result in results if result != engine_kernels.OK]


def _explain_faults(faults: int, mission: Mission) -> str:
    """Explains the first fault of a mission: it refers to nothing in the world, or a put-next cannot be fulfilled."""
    clauses: dict[int, Clause] = dict(enumerate(mission.first)) | dict(enumerate(mission.second, 2))
    for k in range(MAX_DESCRIPTORS):
        if faults >> k & 1:
            clause = clauses[k // 2]
            return f"there is no {str(clause.target if k % 2 else clause.object).split(' ', 1)[1]!r} in it"
    for k in range(MAX_CLAUSES):
        if faults >> 8 + k & 1:
            return f"in {str(clauses[k])!r} an object is to be put next to itself, or is already next to its target"
    return "it refers to no object in it"
