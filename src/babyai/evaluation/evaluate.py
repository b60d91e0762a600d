"""Evaluation: a player's success rate over many missions, each with a seed of its own.

`babyai.seeds` says which seeds are for training, validation and test.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import numpy as np

from babyai.engine import Engine, check_seed
from babyai.evaluation.players import Player, evaluation_mode
from babyai.evaluation.statistics import SOLVED, wilson_interval
from babyai.levels.catalog import Level, Rules
from babyai.seeds import TEST_SEED

MISSIONS = 512
# The result of each is kept in memory.
MAX_MISSIONS = 10**8
# More worlds help a GPU little, and most of them would idle while the last episodes end.
MAX_WORLDS = 512

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Evaluation:
    """A player's results on a level. A mission succeeds if its reward is positive."""

    level: str
    rules: Rules
    missions: int
    first_seed: int
    """Mission k has the seed first_seed + k."""
    successes: int
    success_rate: float
    low: float
    high: float
    """The 95 % interval of the success rate (Wilson)."""
    mean_reward: float
    std_reward: float
    mean_length: float
    std_length: float
    """Standard deviations are those of the population."""
    mean_success_length: float | None
    """The mean length of the missions that succeeded; None if none did."""
    seconds: float = field(compare=False)
    rewards: np.ndarray = field(repr=False, compare=False)
    """(missions,) float64, in the order of seeds."""
    lengths: np.ndarray = field(repr=False, compare=False)
    """(missions,) int64."""
    unreadable_answers: int | None = None
    """How many answers of a text agent named no action, or more than one; None for other players."""

    @property
    def failed_seeds(self) -> np.ndarray:
        """The seeds of the missions that failed."""
        return self.first_seed + np.flatnonzero(self.rewards <= 0)

    def proves(self, threshold: float = SOLVED) -> bool:
        """Whether the whole interval is at or above the threshold."""
        return self.low >= threshold

    def to_dict(self) -> dict[str, Any]:
        """All but the individual missions, as JSON; `unreadable_answers` only of text agents."""
        left_out = ("rewards", "lengths", *(["unreadable_answers"] if self.unreadable_answers is None else []))
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name not in left_out}


def evaluate(
    player: Player,
    level: str | Level,
    *,
    missions: int = MISSIONS,
    first_seed: int = TEST_SEED,
    worlds: int | None = None,
    rules: Rules = "paper",
    progress: Progress | None = None,
) -> Evaluation:
    """Plays the missions first_seed, first_seed + 1, ... of a level, many in parallel.

    The number of parallel worlds does not change the result, except for rounding in a network.

    Args:
        player: See `babyai.evaluation.players`. A network is put in evaluation mode.
        level: The level or its name.
        missions: Number of missions.
        first_seed: Seed of the first mission.
        worlds: Number of parallel worlds; default: what suits the player.
        rules: "paper" or "minigrid".
        progress: Called with the number of finished missions and the total.
    """
    settings = {"first_seed": first_seed, "worlds": worlds, "rules": rules, "progress": progress}
    (result,) = evaluate_levels(player, [level], missions=missions, **settings).values()  # pyright: ignore[reportArgumentType]
    return result


def evaluate_levels(
    player: Player,
    levels: Sequence[str | Level],
    *,
    missions: int = MISSIONS,
    first_seed: int = TEST_SEED,
    worlds: int | None = None,
    rules: Rules = "paper",
    progress: Progress | None = None,
) -> dict[str, Evaluation]:
    """Plays the missions of several levels, all levels in parallel; see `evaluate`.

    Levels with long episodes should come first: the last episodes are played while other worlds idle.

    Returns:
        The results by level. `seconds` is each level's share of the time, by its number of steps.
    """
    if missions < 1 or (worlds is not None and worlds < 1):
        raise ValueError(f"there must be at least one mission and one world, not {missions} and {worlds}")
    if missions > MAX_MISSIONS:
        raise ValueError(f"there can be at most {MAX_MISSIONS:,} missions, not {missions:,}")
    if isinstance(levels, str | Level):
        raise TypeError(f"expected several levels, not {levels!r}; `evaluate` plays one")
    first_seed = check_seed(first_seed)
    check_seed(first_seed + missions - 1)
    started = time.perf_counter()
    count = min(missions * len(levels), worlds or getattr(player, "best_worlds", None) or MAX_WORLDS)
    numbers = np.repeat(np.arange(len(levels)), missions)
    seeds = np.tile(first_seed + np.arange(missions), len(levels))
    engine = Engine(levels, count, rules=rules, assignment=numbers[:count])
    if len({level.name for level in engine.levels}) < len(levels):
        raise ValueError("a level occurs more than once")
    with evaluation_mode(player):
        rewards, lengths, unreadable = _play(player, engine, numbers, seeds, progress)
    rewards = rewards.reshape(len(levels), missions)
    lengths = lengths.reshape(len(levels), missions)
    counts = [None] * len(levels) if unreadable is None else unreadable.reshape(len(levels), missions).sum(1).tolist()
    seconds = (time.perf_counter() - started) * lengths.sum(1) / lengths.sum()
    return {
        level.name: _summarize(level.name, rules, first_seed, rewards[k], lengths[k], float(seconds[k]), counts[k])
        for k, level in enumerate(engine.levels)
    }


def _play(
    player: Player, engine: Engine, levels: np.ndarray, seeds: np.ndarray, progress: Progress | None
) -> tuple[np.ndarray, np.ndarray, np.ndarray | None]:
    """Reward, length and, of text agents, unreadable answers of each mission, given its level and seed."""
    missions = len(seeds)
    rewards = np.zeros(missions)
    lengths = np.zeros(missions, dtype=np.int64)
    worlds = engine.worlds.view(np.ndarray)
    playing = np.arange(engine.num_worlds)  # the mission of each world
    num_started = engine.num_worlds
    num_finished = 0
    engine.reset(seeds[playing])
    player.begin(engine)
    unreadable_so_far = getattr(player, "unreadable", None)
    unreadable = None if unreadable_so_far is None else np.zeros(missions, dtype=np.int64)
    starts = np.ones(engine.num_worlds, dtype=bool)
    while num_finished < missions:
        engine.step(player.act(engine, starts), skip_done=True)
        starts = np.zeros(engine.num_worlds, dtype=bool)
        ended = np.flatnonzero(engine.terminated | engine.truncated)
        if not ended.size:
            continue
        # Only the last step of an episode is rewarded.
        rewards[playing[ended]] = engine.rewards[ended]
        lengths[playing[ended]] = worlds["step_count"][ended]
        if unreadable is not None and unreadable_so_far is not None:
            unreadable[playing[ended]] = unreadable_so_far[ended]
        num_finished += ended.size
        free = ended[: missions - num_started]
        if free.size:
            playing[free] = num_started + np.arange(free.size)
            num_started += free.size
            starts[free] = True
            worlds["level"][free] = levels[playing[free]]
            engine.reset(seeds[playing], starts)
        if progress is not None:
            progress(num_finished, missions)
    return rewards, lengths, unreadable


def _summarize(
    level: str,
    rules: Rules,
    first_seed: int,
    rewards: np.ndarray,
    lengths: np.ndarray,
    seconds: float,
    unreadable_answers: int | None = None,
) -> Evaluation:
    won = rewards > 0
    successes = int(won.sum())
    missions = len(rewards)
    low, high = wilson_interval(successes, missions)
    return Evaluation(
        level=level,
        rules=rules,
        missions=missions,
        first_seed=first_seed,
        successes=successes,
        success_rate=successes / missions,
        low=low,
        high=high,
        mean_reward=float(rewards.mean()),
        std_reward=float(rewards.std()),
        mean_length=float(lengths.mean()),
        std_length=float(lengths.std()),
        mean_success_length=float(lengths[won].mean()) if successes else None,
        seconds=seconds,
        rewards=rewards,
        lengths=lengths,
        unreadable_answers=unreadable_answers,
    )
