"""One level played by Minigrid 3.2.0 and by an engine of one world, compared after every step."""

import contextlib
import io
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import minigrid  # noqa: F401 - puts its ids into Gymnasium's registry
import numpy as np

from babyai import LEVELS, Engine
from babyai.world.codes import AGENT_TYPE, TRIPLES, VOCABULARY, Action
from babyai.world.state import position_of
from tests.reference import encode_grid, generator_state

MINIGRID_IDS = sorted(name for name in gymnasium.registry if name.startswith("BabyAI-"))
# Minigrid's bot never returns on some missions of these, or cannot play them at all.
BEYOND_THE_BOT = ("Unlock-", "GoToImpUnlock", "UnlockToUnlock", "KeyInBox", "Carrying", "SynthS5R2")
BOT_IDS = [name for name in MINIGRID_IDS if not any(part in name for part in BEYOND_THE_BOT)]

# How often each action is played: left, right, forward, pickup, drop, toggle, done.
MIXES = {
    "golden": (0.15, 0.15, 0.4, 0.1, 0.08, 0.1, 0.02),
    "walk": (0.1, 0.1, 0.75, 0.0, 0.0, 0.05, 0.0),
    "hands": (0.1, 0.1, 0.25, 0.2, 0.2, 0.15, 0.0),
    "anything": (1 / 7,) * 7,
    "done": (0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.2),
}


class StuckError(Exception):
    """Minigrid did not answer in time: it never leaves some worlds, and its bot never leaves some plans."""


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises StuckError in code that takes longer; does nothing on systems without this alarm."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def give_up(*_: Any) -> None:
        raise StuckError(f"no answer in {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def level_of(minigrid_id: str) -> str:
    """Our name of one of Minigrid's levels."""
    return minigrid_id.removeprefix("BabyAI-").rsplit("-v", 1)[0]


def in_words(tokens: np.ndarray) -> str:
    return " ".join(VOCABULARY[token] for token in tokens if token).replace(" then", ", then")


@dataclass
class Twin:
    """Minigrid's environment and our world of the same level; raises AssertionError where they part."""

    minigrid_id: str
    view_size: int = 7
    done_actions: bool = False
    steps: int = 0
    episodes: int = 0
    wins: int = 0
    done: bool = True
    history: list[Any] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.env = gymnasium.make(
            self.minigrid_id, agent_view_size=self.view_size, disable_env_checker=True
        ).unwrapped  # fmt: skip
        self.engine = Engine(
            level_of(self.minigrid_id), rules="minigrid", view_size=self.view_size, done_actions=self.done_actions
        )
        self.actions = np.zeros(1, dtype=np.int64)

    @property
    def world(self) -> np.record:
        return self.engine.worlds[0]

    def reset(self, seed: int | None = None) -> None:
        """Begins an episode in both; without a seed both generators go on."""
        self.history.append(f"reset({seed})")
        with contextlib.redirect_stdout(io.StringIO()), time_limit(20):
            observation, info = self.env.reset(seed=seed)
        self.engine.reset(None if seed is None else [seed])
        assert info == {}
        self._compare(observation)
        self.compare_deeply()
        self.done = False
        self.episodes += 1

    def step(self, action: int) -> None:
        """Plays one action in both."""
        self.history.append(int(action))
        observation, reward, terminated, truncated, _ = self.env.step(int(action))
        self.actions[0] = action
        self.engine.step(self.actions)
        self._require("reward", reward, self.engine.rewards[0])
        self._require("terminated", terminated, bool(self.engine.terminated[0]))
        self._require("truncated", truncated, bool(self.engine.truncated[0]))
        self._compare(observation)
        self.done = terminated or truncated
        self.steps += 1
        self.wins += reward > 0
        if self.done:
            self.compare_deeply()

    def _compare(self, observation: dict[str, Any]) -> None:
        """Compares what is quick to compare."""
        if not np.array_equal(observation["image"], self.engine.images[0]):
            self._require("image", observation["image"].tolist(), self.engine.images[0].tolist())
        env, world = self.env, self.world
        self._require("direction", observation["direction"], self.engine.directions[0])
        self._require("position", tuple(map(int, env.agent_pos)), position_of(world.agent))
        self._require("heading", env.agent_dir, world.agent_dir)
        carried = None if env.carrying is None else env.carrying.encode()
        self._require("carrying", carried, tuple(TRIPLES[world.carrying].tolist()) if world.carrying else None)
        self._require("step_count", env.step_count, world.step_count)
        self._require("max_steps", env.max_steps, world.max_steps)
        self._require("mission", observation["mission"], in_words(self.engine.missions[0]))

    def compare_deeply(self) -> None:
        """Compares whole grids and the generators."""
        theirs = self.env.grid.encode()
        assert not (theirs[..., 0] == AGENT_TYPE).any()
        self._require("grid", theirs.tolist(), encode_grid(self.world).tolist())
        self._require("generator", self.env.np_random.bit_generator.state, generator_state(self.world))

    def _require(self, what: str, theirs: Any, ours: Any) -> None:
        if theirs != ours:
            raise AssertionError(
                f"{self.minigrid_id}, view_size={self.view_size}, done_actions={self.done_actions}: {what} is {theirs} "
                f"in Minigrid and {ours} here, after {self.history}"
            )


# ---------------------------------------------------------------- who plays


@dataclass
class RandomPlayer:
    """Draws every action from one of the mixes."""

    rng: np.random.Generator
    mix: str

    def begin(self, twin: Twin) -> None:
        # Drawn in one go, since a draw costs more than a step of ours.
        self.actions = self.rng.choice(7, size=4096, p=MIXES[self.mix]).tolist()

    def act(self, twin: Twin) -> int:
        if not self.actions:
            self.begin(twin)
        return self.actions.pop()


@dataclass
class Meddler:
    """Walks about, opens and closes what it meets, takes things in hand and puts them down elsewhere.

    With done actions, it often says so when it has done something that was asked for.
    """

    rng: np.random.Generator

    def begin(self, twin: Twin) -> None:
        pass

    def act(self, twin: Twin) -> int:
        ahead = twin.engine.images[0, twin.view_size // 2, twin.view_size - 2]
        chance = self.rng.random()
        if twin.done_actions and chance < 0.6 and _has_matched(twin.env.instrs):
            return Action.done
        if ahead[0] == 4 and ahead[2] and chance < 0.7:
            return Action.toggle
        if ahead[0] in (5, 6, 7) and chance < 0.6:
            return Action.pickup if chance < 0.5 else Action.toggle
        if twin.world.carrying and chance < 0.2:
            return Action.drop
        if chance < 0.25:
            # Saying done too early loses the mission, so that there would be little to see.
            return int(self.rng.integers(6 if twin.done_actions and self.rng.random() < 0.8 else 7))
        return Action.forward if chance < 0.75 else Action.left if chance < 0.88 else Action.right


def _has_matched(instruction: Any) -> bool:
    parts = [getattr(instruction, name) for name in ("instr_a", "instr_b") if hasattr(instruction, name)]
    return any(map(_has_matched, parts)) or getattr(instruction, "lastStepMatch", False)


@dataclass
class BotPlayer:
    """Does what Minigrid's bot says, but for some random actions; goes on as a meddler where the bot gives up."""

    rng: np.random.Generator
    deviation: float = 0.0

    def begin(self, twin: Twin) -> None:
        from minigrid.utils.baby_ai_bot import BabyAIBot

        self.bot, self.taken = BabyAIBot(twin.env), None
        self.fallback = Meddler(self.rng)

    def act(self, twin: Twin) -> int:
        if self.bot is None:
            return self.fallback.act(twin)
        try:
            with time_limit(2):
                advice = int(self.bot.replan(self.taken))
        except Exception:
            # It asserts, recurses too deeply, or is stuck: none of this is our concern.
            self.bot = None
            return self.fallback.act(twin)
        self.taken = advice if self.rng.random() >= self.deviation else int(self.rng.integers(7))
        return self.taken


Player = RandomPlayer | Meddler | BotPlayer


def play(twin: Twin, player: Player, most_steps: int) -> None:
    """Plays the episode that was just begun until it ends or `most_steps` are made."""
    player.begin(twin)
    for _ in range(most_steps):
        if twin.done:
            break
        twin.step(player.act(twin))
    twin.compare_deeply()


assert {level_of(name) for name in MINIGRID_IDS} <= set(LEVELS)
