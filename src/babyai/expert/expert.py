"""The expert as people use it: beside one environment, or over a whole engine."""

from typing import Any, Literal

import numpy as np

from babyai._jit import announce_compilation
from babyai.engine import Engine, for_kernels
from babyai.expert import advise
from babyai.expert.state import EXPERT, NO_ADVICE, SEARCH, make_experts, make_search
from babyai.expert.teacher import TROUBLE
from babyai.world.codes import Action
from babyai.world.state import ENDED, WORLD, make_worlds

Style = Literal["paper", "teacher"]
STYLES: dict[str, int] = {"paper": advise.PAPER, "teacher": advise.TEACHER}


class UnsolvableError(RuntimeError):
    """The mission cannot be carried out any more."""


class ExpertBatch:
    """An expert for every world of an engine.

    Args:
        engine: The worlds to advise on.
        style: "paper" plans as the reference does, and goes on where that fails. "teacher" depends on nothing but the
            world, what has been seen of it, and what the judge holds to be done.
    """

    def __init__(self, engine: Engine, style: Style = "paper") -> None:
        if style not in STYLES:
            raise ValueError(f"unknown style {style!r}; an expert advises as 'paper' or as 'teacher'")
        announce_compilation("expert", "the expert (about ten seconds)")
        self.engine, self.style = engine, style
        self.experts = make_experts(engine.num_worlds)
        self.advice = np.full(engine.num_worlds, int(Action.done), dtype=np.int64)
        self._records = for_kernels(self.experts, EXPERT)
        self._searches = [for_kernels(make_search(), SEARCH) for _ in engine.shards]
        self._starts = [for_kernels(make_worlds(1), WORLD) for _ in engine.shards]
        self.begin()

    def begin(self, chosen: np.ndarray | None = None) -> None:
        """Begins anew where an episode has begun (everywhere, if None)."""
        mask = (
            np.ones(self.engine.num_worlds, dtype=bool) if chosen is None else np.ascontiguousarray(chosen, dtype=bool)
        )
        advise.begin_advising_batch(self.engine.kernel_worlds, self._records, mask)
        self.advice[mask] = advise.NOTHING_TAKEN

    def advise(self, taken: np.ndarray | None = None) -> np.ndarray:
        """The next action for each world; -1 where the mission cannot be carried out (`trouble` says why).

        Args:
            taken: (N,) what was really done since the last advice; None: what was advised. Ignored in a world that has
                just begun.

        Returns:
            (N,) int64, a copy.
        """
        done = self.advice.copy() if taken is None else np.array(taken, dtype=np.int64)
        done[self.advice == advise.NOTHING_TAKEN] = advise.NOTHING_TAKEN
        self.engine.run_shards(
            advise.advise_batch,
            lambda number, first, last: (
                *(self.engine.kernel_worlds, self._records, self._searches[number], done, STYLES[self.style]),
                *(self.advice, first, last),
            ),
        )
        return self.advice.copy()

    def demonstrate(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Plays every world's episode from where it stands to its end.

        Returns:
            actions (N, T) uint8, lengths (N,) int64, rewards (N,) float64; reward 0 where the expert did not succeed.
        """
        count = self.engine.num_worlds
        left = self.engine.worlds.max_steps - self.engine.worlds.step_count
        actions = np.zeros((count, int(left.max())), dtype=np.uint8)
        lengths, rewards = np.zeros(count, dtype=np.int64), np.zeros(count)
        self.engine.run_shards(
            advise.demonstrate_batch,
            lambda number, first, last: (
                *(self.engine.kernel_worlds, self._records, self._searches[number], self._starts[number]),
                *(STYLES[self.style], actions, lengths, rewards, first, last),
            ),
        )
        self.engine.done[:] = self.engine.worlds.status == ENDED
        return actions, lengths, rewards

    def trouble(self, index: int = 0) -> str:
        """Why there is no advice for a world."""
        return TROUBLE[int(self.experts[index].trouble)]


class Expert:
    """An expert that watches one environment.

        env.reset(seed=0)
        expert = babyai.Expert(env)
        env.step(expert.advise())

    Args:
        env: A BabyAI environment, wrapped or not; or an engine of one world.
        style: "paper" or "teacher"; see `ExpertBatch`.
    """

    def __init__(self, env: Any, style: Style = "paper") -> None:
        engine = env if isinstance(env, Engine) else getattr(getattr(env, "unwrapped", env), "engine", None)
        if not isinstance(engine, Engine) or engine.num_worlds != 1:
            raise TypeError(f"an Expert advises on one BabyAI environment, not on {env!r}; for many, use ExpertBatch")
        self._batch = ExpertBatch(engine, style)
        self._steps, self._episode = 0, (0, 0)

    def advise(self, taken: int | None = None) -> int:
        """The next action.

        Args:
            taken: What was really done since the last advice; None: what was advised.

        Raises:
            UnsolvableError: The mission cannot be carried out any more; the message says why.
        """
        world = self._batch.engine.worlds[0]
        # Only a reset uses the world's generator; a step count that went back means that a snapshot was restored.
        episode, steps = (int(world.rng_high), int(world.rng_low)), int(world.step_count)
        if episode != self._episode or steps < self._steps or steps == 0:
            self._batch.begin()
        self._episode, self._steps = episode, steps
        advice = int(self._batch.advise(None if taken is None else np.array([taken]))[0])
        if advice == NO_ADVICE:
            raise UnsolvableError(self._batch.trouble())
        return advice
