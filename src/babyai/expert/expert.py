"""The public interface of the expert: `Expert` for one environment, `ExpertBatch` for an engine."""

from typing import Any, Literal

import numpy as np

from babyai._jit import announce_compilation
from babyai.engine import Engine, for_kernels
from babyai.expert import advise
from babyai.expert.plan import describe_plan
from babyai.expert.state import EXPERT, NO_ADVICE, SEARCH, check_experts, make_experts, make_search
from babyai.expert.teacher import FAILURE_MESSAGES
from babyai.expert.teacher_path import PATH_LENGTH
from babyai.world.codes import Action
from babyai.world.state import ENDED, NOT_RESET, WORLD, make_worlds

Style = Literal["paper", "teacher"]
STYLES: dict[str, int] = {"paper": advise.PAPER, "teacher": advise.TEACHER}


class UnsolvableError(RuntimeError):
    """The mission can no longer be solved."""


class ExpertBatch:
    """An expert for every world of an engine.

    Args:
        engine: The worlds to advise on.
        style: "paper" gives the same advice as the reference planner and continues with the teacher where that fails.
            The advice of "teacher" depends only on the world, the cells seen so far and the judge's progress.
    """

    def __init__(self, engine: Engine, style: Style = "paper") -> None:
        if style not in STYLES:
            raise ValueError(f"unknown style {style!r}; expected 'paper' or 'teacher'")
        announce_compilation("expert", "the expert (about half a minute)")
        self.engine = engine
        self.style = style
        self.experts = make_experts(engine.num_worlds)
        self.advice = np.full(engine.num_worlds, int(Action.done), dtype=np.int64)
        self._prepare_kernels()
        self.reset()

    def _prepare_kernels(self) -> None:
        """Builds the views and the scratch memory that the kernels are passed."""
        self._records = for_kernels(self.experts, EXPERT)
        self._searches = [for_kernels(make_search(), SEARCH) for _ in self.engine.shards]
        self._starts = [for_kernels(make_worlds(1), WORLD) for _ in self.engine.shards]

    def reset(self, chosen: np.ndarray | None = None) -> None:
        """Resets the experts of worlds whose episode has just started.

        Args:
            chosen: (N,) bool, the worlds to reset (default: all).
        """
        mask = np.ones(self.engine.num_worlds, dtype=bool) if chosen is None else self._check_shape(chosen, bool)
        advise.reset_batch(self.engine.kernel_worlds, self._records, mask)
        self.advice[mask] = advise.NO_ACTION

    def advise(self, taken: np.ndarray | None = None) -> np.ndarray:
        """Returns the next action for each world; -1 where the mission can no longer be solved (see `failure`).

        Args:
            taken: (N,) the actions taken since the last advice (default: the advised actions). Ignored in worlds whose
                episode has just started.

        Returns:
            (N,) int64, a copy.
        """
        self._require_episodes()
        actions = self.advice.copy() if taken is None else self._check_shape(taken, np.int64)
        actions[self.advice == advise.NO_ACTION] = advise.NO_ACTION
        self.engine.run_shards(
            advise.advise_batch,
            lambda number, first, last: (
                *(self.engine.kernel_worlds, self._records, self._searches[number], actions, STYLES[self.style]),
                *(self.advice, first, last),
            ),
        )
        return self.advice.copy()

    def advise_and_trace(self) -> tuple[np.ndarray, np.ndarray]:
        """The teacher's advice, and where it leads.

        Paths are cells of a square of 51 x 51 around the agent, which faces up, numbered row by row from 25 behind and
        25 to the left: the goal, then the path to it cell by cell, as far as they have been seen; -1 for none.

        Returns:
            advice: (N,) int64, as from `advise`.
            paths: (N, 32) int16.

        Raises:
            ValueError: The style is not "teacher".
        """
        if self.style != "teacher":
            raise ValueError('only the style "teacher" has paths')
        self._require_episodes()
        paths = np.empty((self.engine.num_worlds, PATH_LENGTH), dtype=np.int16)
        self.engine.run_shards(
            advise.advise_and_trace_batch,
            lambda number, first, last: (
                *(self.engine.kernel_worlds, self._records, self._searches[number]),
                *(self.advice, paths, first, last),
            ),
        )
        return self.advice.copy(), paths

    def demonstrate(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Plays every world from its current state to the end of its episode.

        Returns:
            actions: (N, T) uint8, padded with 0.
            lengths: (N,) int64, the number of actions.
            rewards: (N,) float64, 0 where the expert did not succeed.

        Raises:
            RuntimeError: A world has not been reset yet.
        """
        self._require_episodes()
        count = self.engine.num_worlds
        worlds = self.engine.worlds
        # An episode that is running takes at least one step, even if its time limit was lowered meanwhile.
        steps_left = np.maximum(worlds.max_steps - worlds.step_count, 1)
        actions = np.zeros((count, int(steps_left.max())), dtype=np.uint8)
        lengths = np.zeros(count, dtype=np.int64)
        rewards = np.zeros(count)
        self.engine.run_shards(
            advise.demonstrate_batch,
            lambda number, first, last: (
                *(self.engine.kernel_worlds, self._records, self._searches[number], self._starts[number]),
                *(STYLES[self.style], actions, lengths, rewards, first, last),
            ),
        )
        self.engine.done[:] = self.engine.worlds.status == ENDED
        return actions, lengths, rewards

    def load_records(self, experts: np.ndarray) -> None:
        """Continues with the records of other experts, (N,) EXPERT, after checking them.

        Raises:
            ValueError: They are damaged.
        """
        check_experts(experts, len(FAILURE_MESSAGES))
        self.experts[:] = experts

    def _check_shape(self, given: Any, dtype: Any) -> np.ndarray:
        """A copy of an array with one element per world, for kernels."""
        array = np.array(given, dtype=dtype)
        if array.shape != (self.engine.num_worlds,):
            raise ValueError(f"expected one element per world, shape ({self.engine.num_worlds},), not {array.shape}")
        return array

    def _require_episodes(self) -> None:
        """Raises a RuntimeError if a world has not been reset yet: it has no mission to advise on."""
        not_reset = self.engine.worlds.status == NOT_RESET
        if not_reset.any():
            raise RuntimeError(
                f"world {not_reset.argmax()} has not been reset yet: call reset() before asking the expert"
            )

    def __getstate__(self) -> dict[str, Any]:
        """Everything but what `_prepare_kernels` builds: a copy needs views of its own records."""
        rebuilt = ("_records", "_searches", "_starts")
        return {name: value for name, value in vars(self).items() if name not in rebuilt}

    def __setstate__(self, state: dict[str, Any]) -> None:
        vars(self).update(state)
        self._prepare_kernels()

    def failure(self, index: int = 0) -> str:
        """Returns why there is no advice for a world."""
        return FAILURE_MESSAGES[int(self.experts[index].failure)]


class Expert:
    """An expert for one environment.

        env.reset(seed=0)
        expert = babyai.Expert(env)
        env.step(expert.advise())

    Args:
        env: A BabyAI environment, wrapped or not, or an engine with one world.
        style: "paper" or "teacher"; see `ExpertBatch`.
    """

    def __init__(self, env: Any, style: Style = "paper") -> None:
        engine = env if isinstance(env, Engine) else getattr(getattr(env, "unwrapped", env), "engine", None)
        if not isinstance(engine, Engine) or engine.num_worlds != 1:
            raise TypeError(f"expected one BabyAI environment, got {env!r}; for several worlds, use ExpertBatch")
        self._batch = ExpertBatch(engine, style)
        self._steps = 0
        self._episode = (0, 0)

    def advise(self, taken: int | None = None) -> int:
        """Returns the next action.

        Args:
            taken: The action taken since the last advice (default: the advised action).

        Raises:
            UnsolvableError: The mission can no longer be solved; the message says why.
        """
        world = self._batch.engine.worlds[0]
        # Only a reset advances the world's generator; a smaller step count means that a snapshot was restored.
        episode = (int(world.rng_high), int(world.rng_low))
        steps = int(world.step_count)
        if episode != self._episode or steps < self._steps or steps == 0:
            self._batch.reset()
        self._episode = episode
        self._steps = steps
        advice = int(self._batch.advise(None if taken is None else np.array([taken]))[0])
        if advice == NO_ADVICE:
            raise UnsolvableError(self._batch.failure())
        return advice

    def plan(self) -> list[str]:
        """The subgoals at the last advice in words, the current one first; empty where the teacher decides."""
        if self._batch.style == "teacher":
            return []
        return describe_plan(self._batch.experts[0], self._batch.engine.worlds[0])
