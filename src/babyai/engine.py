"""Many worlds at once: the one door to worlds for everything that plays, learns or measures.

An `Engine` owns N world records and the arrays that a step fills: images, directions, missions, rewards, ends.
Each world has a generator of its own, so the number of threads changes the time taken and nothing else.
"""

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
from babyai.world.codes import MAX_WORDS, Action
from babyai.world.language import Clause, Mission, parse_mission
from babyai.world.state import DONE_ACTIONS, ENDED, MAX_CLAUSES, MAX_DESCRIPTORS, NOT_RESET, RUNNING, WORLD, make_worlds
from babyai.world.view import VIEW_SIZE

Episodes = Literal["stream", "next_seed"]
VIEW_SIZES = range(3, 16, 2)
MAX_SEED = 2**63 - 1
# Below this many worlds a shard, handing work to another thread costs more than it saves.
MIN_SHARD = 1024


def check_seed(seed: Any) -> int:
    """The seed as an int, if it is one that a world can have."""
    if isinstance(seed, bool | np.bool_) or not isinstance(seed, int | np.integer):
        raise TypeError(f"a seed must be an integer, not {seed!r}")
    if not 0 <= seed <= MAX_SEED:
        raise ValueError(f"a seed must be in 0..2**63 - 1, not {seed}")
    return int(seed)


class Engine:
    """N worlds that are reset and stepped together.

    Args:
        levels: A level or its name, or several; world i plays number `i % len(levels)`, unless `assignment` says which.
        num_worlds: How many worlds.
        rules: "paper" (the world of the paper) or "minigrid" (Minigrid 3.2.0 to the bit).
        episodes: How an episode without a seed of its own begins. "stream": the world's generator goes on, as in
            Gymnasium. "next_seed": with the world's last seed plus `num_worlds`, so that every episode has a name.
        view_size: The side of the agent's view, odd, 3 to 15.
        done_actions: An instruction counts only once the agent plays `done` on the step after fulfilling it.
        threads: How many threads share the work; results do not depend on it.
        assignment: (N,) the number in `levels` that each world plays.

    Attributes:
        worlds: (N,) records; see `babyai.world.state.WORLD`.
        images: (N, n, n, 3) uint8, what each agent sees.
        directions: (N,) int64.
        missions: (N, 72) uint8, token ids padded with 0.
        rewards: (N,) float64.
        terminated, truncated: (N,) bool, of the last step.
        done: (N,) bool, where no episode is in progress.
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
    ) -> None:
        if num_worlds < 1 or threads < 1:
            raise ValueError(f"there must be at least one world and one thread, not {num_worlds} and {threads}")
        if view_size not in VIEW_SIZES:
            raise ValueError(f"view_size must be odd and between 3 and 15, not {view_size}")
        if episodes not in ("stream", "next_seed"):
            raise ValueError(f"episodes must be 'stream' or 'next_seed', not {episodes!r}")
        given = [levels] if isinstance(levels, str | Level) else list(levels)
        self.levels = [find_level(level, rules) for level in given]
        if not self.levels:
            raise ValueError("an engine needs at least one level")
        self.num_worlds, self.rules, self.episodes, self.view_size = num_worlds, rules, episodes, view_size
        self.worlds = make_worlds(num_worlds)
        self.worlds.level = self._check_assignment(assignment)
        self.worlds.options = DONE_ACTIONS if done_actions else 0
        self._rows = np.array([level.row(rules) for level in self.levels], dtype=LEVEL).view(np.recarray)
        self.images = np.zeros((num_worlds, view_size, view_size, 3), dtype=np.uint8)
        self._view_buffer = self.images.reshape(-1)
        self.directions = np.zeros(num_worlds, dtype=np.int64)
        self.missions = np.zeros((num_worlds, MAX_WORDS), dtype=np.uint8)
        self.rewards = np.zeros(num_worlds, dtype=np.float64)
        self.terminated = np.zeros(num_worlds, dtype=bool)
        self.truncated = np.zeros(num_worlds, dtype=bool)
        self.done = np.ones(num_worlds, dtype=bool)
        self._unseeded: np.ndarray | None = np.ones(num_worlds, dtype=bool)
        self.shards = self._split(threads)
        self._pool = ThreadPoolExecutor(len(self.shards) - 1) if len(self.shards) > 1 else None
        self._drafts = [for_kernels(make_draft(), DRAFT) for _ in self.shards]
        self.kernel_worlds, self._kernel_rows = for_kernels(self.worlds, WORLD), for_kernels(self._rows, LEVEL)
        self._own_resets = {
            number: engine_kernels.compile_reset(level.recipe)
            for number, level in enumerate(self.levels)
            if callable(level.recipe)
        }
        _jit.announce_compilation("engine_kernels.py", "the world (about half a minute)")

    # ------------------------------------------------------------ the two verbs

    def reset(
        self, seeds: int | Sequence[int | None] | np.ndarray | None = None, chosen: np.ndarray | None = None
    ) -> None:
        """Begins a new episode in the chosen worlds (all, if None).

        Args:
            seeds: An int s gives world i the seed s + i; a sequence gives one seed a world, None to go on without.
            chosen: (N,) bool.
        """
        mask = np.ones(self.num_worlds, dtype=bool) if chosen is None else self._check_mask(chosen)
        self._reset(mask, self._check_seeds(seeds, mask))

    def step(self, actions: Sequence[int] | np.ndarray, *, skip_done: bool = False) -> None:
        """Plays one action in each world, and fills images, directions, rewards, terminated, truncated and done.

        Args:
            actions: (N,) integers 0..6; see `babyai.Action`.
            skip_done: Leave worlds whose episode has ended as they are. Without it, stepping one is an error.
        """
        chosen = self._check_actions(actions)
        if self._pool is not None:
            # One shard must not step while another refuses to.
            misfit = engine_kernels.find_misfit(chosen, self.done, skip_done, 0, self.num_worlds)
            if misfit != engine_kernels.FINE:
                self._explain_misfit(misfit, chosen)
        answers = self.run_shards(
            engine_kernels.step_batch,
            lambda number, first, last: (
                *(self.kernel_worlds, chosen, self.done, skip_done, self.view_size, self._view_buffer, self.directions),
                *(self.rewards, self.terminated, self.truncated, first, last),
            ),
        )
        if faults := _faults(answers):
            self._explain_misfit(min(faults), chosen)

    def reset_done(self) -> np.ndarray:
        """Begins the next episode wherever one is over; returns which worlds (a copy)."""
        ended = self.done.copy()
        if ended.any():
            self._reset(ended, self._following_seeds(ended))
        return ended

    # ------------------------------------------------------------ single worlds

    def instruct(self, index: int, mission: str | Mission, *, own_limit: bool = True) -> None:
        """Gives one world another instruction and begins its episode anew, with everything where it is.

        Raises:
            MissionError: The sentence is not in the Baby Language.
            ValueError: It does not fit this world.
        """
        index = self._check_index(index)
        sentence = parse_mission(mission) if isinstance(mission, str) else mission
        world, before = self.worlds[index], self.worlds[index].copy()
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
        """Replaces one world by a drawing (see `babyai.levels.layout`) and gives it an instruction."""
        index, layout = self._check_index(index), parse_layout(drawing)
        before = self.worlds[index].copy()
        place_layout(self.worlds[index], layout)
        try:
            self.instruct(index, mission, own_limit=False)
        except ValueError:
            self.worlds[index] = before
            raise

    def observe(self, index: int) -> None:
        """Brings image, direction and mission of one world up to date after it was changed by hand."""
        index = self._check_index(index)
        chosen = np.zeros(self.num_worlds, dtype=bool)
        chosen[index] = True
        engine_kernels.observe_batch(
            *(self.kernel_worlds, chosen, self.view_size, self._view_buffer, self.directions, self.missions),
            *(index, index + 1),
        )

    def snapshot(self, index: int) -> bytes:
        """One world, whole, its generator included: a value to keep, compare, or give to `restore`."""
        return self.worlds[self._check_index(index)].tobytes()

    def restore(self, index: int, snapshot: bytes) -> None:
        """Puts a world back where a snapshot was taken, of this engine or of one with the same levels."""
        index = self._check_index(index)
        if not isinstance(snapshot, bytes) or len(snapshot) != WORLD.itemsize:
            raise ValueError("not a snapshot of a world, or one of another version of babyai")
        world = np.frombuffer(snapshot, dtype=WORLD)[0]
        if not 0 <= world["level"] < len(self.levels) or world["status"] not in (RUNNING, ENDED):
            raise ValueError("this snapshot is of a world that this engine does not have")
        self.worlds[index] = world
        self.done[index] = world["status"] == ENDED
        if world["rng_inc_low"]:
            self._note_seeded(np.arange(self.num_worlds) == index)
        self.observe(index)

    def close(self) -> None:
        """Ends the worker threads."""
        if self._pool is not None:
            self._pool.shutdown()

    # ------------------------------------------------------------ the work

    def _reset(self, mask: np.ndarray, seeds: np.ndarray) -> None:
        kernels = {engine_kernels.reset_batch: mask}
        if self._own_resets:
            played = self.worlds.level
            kernels = {kernel: mask & (played == number) for number, kernel in self._own_resets.items()}
            kernels[engine_kernels.reset_batch] = mask & ~np.isin(played, list(self._own_resets))
        for kernel, chosen in kernels.items():
            if not chosen.any():
                continue
            answers = self.run_shards(
                kernel,
                lambda number, first, last, chosen=chosen: (
                    *(self.kernel_worlds, chosen, seeds, self._kernel_rows, self._drafts[number], self.view_size),
                    *(self._view_buffer, self.directions, self.missions, first, last),
                ),
            )
            if faults := _faults(answers):
                self.done[mask] = self.worlds.status[mask] != RUNNING
                level = self.levels[self.worlds[min(faults)].level]
                raise RuntimeError(
                    f"level {level.name!r} could not be generated in {engine_kernels.MAX_ATTEMPTS} attempts: its rooms "
                    f"may be too small for its objects, or its recipe asks for the impossible"
                )
        self._note_seeded(mask)
        self.done &= ~mask

    def run_shards(self, kernel: Any, arguments: Callable[[int, int, int], tuple[Any, ...]]) -> list[Any]:
        """Runs a kernel once for each shard, on a thread of its own; returns its answers.

        Args:
            kernel: Compiled code that releases the GIL.
            arguments: What to call it with, given the shard's number and the first and last (exclusive) of its worlds.
        """
        calls = [arguments(number, *shard) for number, shard in enumerate(self.shards)]
        if self._pool is None:
            return [kernel(*calls[0])]
        jobs = [self._pool.submit(kernel, *call) for call in calls[1:]]
        return [kernel(*calls[0]), *(job.result() for job in jobs)]

    def _split(self, threads: int) -> list[tuple[int, int]]:
        count = max(1, min(threads, self.num_worlds // MIN_SHARD))
        bounds = np.linspace(0, self.num_worlds, count + 1).astype(int).tolist()
        return list(pairwise(bounds))

    # ------------------------------------------------------------ checks

    def _check_assignment(self, assignment: Sequence[int] | np.ndarray | None) -> np.ndarray:
        if assignment is None:
            return np.arange(self.num_worlds) % len(self.levels)
        numbers = np.asarray(assignment)
        if numbers.shape != (self.num_worlds,) or numbers.min() < 0 or numbers.max() >= len(self.levels):
            raise ValueError(
                f"assignment must give one of the {len(self.levels)} levels to each of {self.num_worlds} worlds"
            )
        return numbers

    def _check_index(self, index: int) -> int:
        if not 0 <= index < self.num_worlds:
            raise IndexError(f"there is no world {index}; they are numbered 0..{self.num_worlds - 1}")
        return int(index)

    def _check_mask(self, chosen: np.ndarray) -> np.ndarray:
        mask = np.asarray(chosen)
        if mask.dtype != bool or mask.shape != (self.num_worlds,):
            raise ValueError(
                f"the worlds to reset must be given as ({self.num_worlds},) bool, not {mask.shape} {mask.dtype}"
            )
        return np.ascontiguousarray(mask)

    def _check_seeds(self, seeds: Any, mask: np.ndarray) -> np.ndarray:
        if seeds is None:
            return self._following_seeds(mask)
        if not isinstance(seeds, Sequence | np.ndarray) or isinstance(seeds, str):
            check_seed(check_seed(seeds) + self.num_worlds - 1)
            return int(seeds) + np.arange(self.num_worlds, dtype=np.int64)
        if len(seeds) != self.num_worlds:
            raise ValueError(f"{len(seeds)} seeds were given for {self.num_worlds} worlds")
        if isinstance(seeds, np.ndarray) and seeds.dtype.kind == "i" and seeds.ndim == 1 and seeds.min() >= 0:
            return seeds.astype(np.int64)
        following = self._following_seeds(mask)
        return np.array(
            [following[i] if seed is None else check_seed(seed) for i, seed in enumerate(seeds)], dtype=np.int64
        )

    def _following_seeds(self, mask: np.ndarray) -> np.ndarray:
        """The seeds of worlds that are given none: where they are in their streams, or the next in line."""
        if self.episodes == "next_seed":
            seeds = self.worlds.seed + self.num_worlds
            if (seeds[mask] < 0).any():
                raise ValueError("there are no seeds left beyond 2**63 - 1; reset with smaller ones")
        else:
            seeds = np.full(self.num_worlds, engine_kernels.NO_SEED, dtype=np.int64)
        if self._unseeded is not None:
            unborn = mask & self._unseeded
            fresh = np.frombuffer(os.urandom(8 * self.num_worlds), dtype=np.int64) & MAX_SEED
            # Seeds from 10^9 on are kept for validation and test.
            seeds[unborn] = (fresh % 10**9 if self.episodes == "next_seed" else fresh)[unborn]
        return seeds

    def _note_seeded(self, mask: np.ndarray) -> None:
        """Remembers which worlds have a generator under way, until all have."""
        if self._unseeded is not None:
            self._unseeded &= ~mask
            if not self._unseeded.any():
                self._unseeded = None

    def _check_actions(self, actions: Any) -> np.ndarray:
        chosen = np.asarray(actions)
        if chosen.shape != (self.num_worlds,):
            raise ValueError(
                f"there must be one action for each of {self.num_worlds} worlds, not an array of {chosen.shape}"
            )
        if chosen.dtype.kind not in "iu":
            raise TypeError(f"actions must be integers 0..6, not {chosen.dtype}")
        return np.ascontiguousarray(chosen, dtype=np.int64)

    def _explain_misfit(self, index: int, actions: np.ndarray) -> None:
        if not 0 <= actions[index] < len(Action):
            names = ", ".join(f"{action.value} {action.name}" for action in Action)
            raise ValueError(f"world {index} was given action {actions[index]}; actions are {names}")
        if self.worlds[index].status == NOT_RESET:
            raise RuntimeError(f"world {index} has not been reset yet: call reset() before step()")
        raise RuntimeError(f"the episode of world {index} is over: call reset() before the next step()")


def for_kernels(records: np.recarray, dtype: np.dtype) -> np.ndarray:
    """The same memory as compiled code recognizes it fastest; without a compiler, records need their attributes."""
    return records.view(np.ndarray).view(dtype) if _jit.COMPILED else records


def _faults(answers: list[int]) -> list[int]:
    """The worlds that kernels found fault with."""
    return [answer for answer in answers if answer != engine_kernels.FINE]


def _explain_faults(faults: int, mission: Mission) -> str:
    """Says in words which parts of the mission name nothing, or cannot be put where they should go."""
    clauses: dict[int, Clause] = dict(enumerate(mission.first)) | dict(enumerate(mission.second, 2))
    for k in range(MAX_DESCRIPTORS):
        if faults >> k & 1:
            clause = clauses[k // 2]
            return f"there is no {str(clause.target if k % 2 else clause.object).split(' ', 1)[1]!r} in it"
    for k in range(MAX_CLAUSES):
        if faults >> 8 + k & 1:
            return f"in {str(clauses[k])!r} an object is to lie next to itself, or already lies there"
    return "it names nothing in it"
