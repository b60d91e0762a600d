"""Plays a level in Minigrid 3.2.0 and in an engine with one world, and compares them after every step."""

import contextlib
import io
import signal
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import gymnasium
import minigrid  # noqa: F401 - registers its ids with Gymnasium
import numpy as np
from minigrid.utils.baby_ai_bot import BabyAIBot

from babyai import LEVELS, Engine
from babyai.world.codes import AGENT_TYPE, TRIPLES, VOCABULARY, Action
from babyai.world.state import position_of
from tests.reference import encode_grid, generator_state

MINIGRID_IDS = sorted(name for name in gymnasium.registry if name.startswith("BabyAI-"))
# Minigrid's bot never returns on some missions of these levels, or cannot play them at all.
BOT_FAILS_ON = ("Unlock-", "GoToImpUnlock", "UnlockToUnlock", "KeyInBox", "Carrying", "SynthS5R2")
BOT_IDS = [name for name in MINIGRID_IDS if not any(part in name for part in BOT_FAILS_ON)]

# Action probabilities of random players: left, right, forward, pickup, drop, toggle, done.
ACTION_PROBS = {
    "golden": (0.15, 0.15, 0.4, 0.1, 0.08, 0.1, 0.02),
    "walk": (0.1, 0.1, 0.75, 0.0, 0.0, 0.05, 0.0),
    "hands": (0.1, 0.1, 0.25, 0.2, 0.2, 0.15, 0.0),
    "anything": (1 / 7,) * 7,
    "done": (0.1, 0.1, 0.3, 0.1, 0.1, 0.1, 0.2),
}


class StuckError(Exception):
    """Minigrid's reset or its bot would loop forever, as they do on some missions."""


class BoundedBot(BabyAIBot):
    """Minigrid's bot, but raises StuckError where it would search for paths forever.

    In 4 missions of each level, no advice took more than ten searches. A time limit would not do: Python ignores an
    exception that a signal raises in a callback of the garbage collector, and Hypothesis installs such a callback.
    """

    MAX_SEARCHES = 200

    def replan(self, action_taken: Any = None) -> Any:
        self._bound = self.bfs_counter + self.MAX_SEARCHES
        return super().replan(action_taken)

    def _breadth_first_search(self, *args: Any, **kwargs: Any) -> Any:
        if self.bfs_counter >= self._bound:
            raise StuckError(f"more than {self.MAX_SEARCHES} searches for one advice")
        return super()._breadth_first_search(*args, **kwargs)


@contextlib.contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raises StuckError in code that takes longer; does nothing on systems without `signal.setitimer`."""
    if not hasattr(signal, "setitimer"):
        yield
        return

    def raise_stuck(*_: Any) -> None:
        raise StuckError(f"timed out after {seconds} s")

    before = signal.signal(signal.SIGALRM, raise_stuck)
    # Again and again, because one exception may be ignored; see `BoundedBot`.
    signal.setitimer(signal.ITIMER_REAL, seconds, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def level_of(minigrid_id: str) -> str:
    """Returns our name of a Minigrid level."""
    return minigrid_id.removeprefix("BabyAI-").rsplit("-v", 1)[0]


def to_text(tokens: np.ndarray) -> str:
    """Returns the text of mission tokens; independent of `detokenize`."""
    return " ".join(VOCABULARY[token] for token in tokens if token).replace(" then", ", then")


@dataclass
class Twin:
    """Minigrid's environment and our world of the same level; raises AssertionError where they differ."""

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
        """Starts an episode in both; without a seed both generators continue."""
        self.history.append(f"reset({seed})")
        with contextlib.redirect_stdout(io.StringIO()), time_limit(20):
            observation, info = self.env.reset(seed=seed)
        self.engine.reset(None if seed is None else [seed])
        assert info == {}
        self._compare_step(observation)
        self.compare_full_state()
        self.done = False
        self.episodes += 1

    def step(self, action: int) -> None:
        """Takes one action in both."""
        self.history.append(int(action))
        observation, reward, terminated, truncated, _ = self.env.step(int(action))
        self.actions[0] = action
        self.engine.step(self.actions)
        self._require_equal("reward", reward, self.engine.rewards[0])
        self._require_equal("terminated", terminated, bool(self.engine.terminated[0]))
        self._require_equal("truncated", truncated, bool(self.engine.truncated[0]))
        self._compare_step(observation)
        self.done = terminated or truncated
        self.steps += 1
        self.wins += reward > 0
        if self.done:
            self.compare_full_state()

    def _compare_step(self, observation: dict[str, Any]) -> None:
        """Compares everything that is cheap to compare."""
        if not np.array_equal(observation["image"], self.engine.images[0]):
            self._require_equal("image", observation["image"].tolist(), self.engine.images[0].tolist())
        env = self.env
        world = self.world
        self._require_equal("direction", observation["direction"], self.engine.directions[0])
        self._require_equal("position", tuple(map(int, env.agent_pos)), position_of(world.agent))
        self._require_equal("heading", env.agent_dir, world.agent_dir)
        carried = None if env.carrying is None else env.carrying.encode()
        self._require_equal("carrying", carried, tuple(TRIPLES[world.carrying].tolist()) if world.carrying else None)
        self._require_equal("step_count", env.step_count, world.step_count)
        self._require_equal("max_steps", env.max_steps, world.max_steps)
        self._require_equal("mission", observation["mission"], to_text(self.engine.missions[0]))

    def compare_full_state(self) -> None:
        """Compares the full grids and the random number generators."""
        theirs = self.env.grid.encode()
        assert not (theirs[..., 0] == AGENT_TYPE).any()
        self._require_equal("grid", theirs.tolist(), encode_grid(self.world).tolist())
        self._require_equal("generator", self.env.np_random.bit_generator.state, generator_state(self.world))

    def _require_equal(self, what: str, theirs: Any, ours: Any) -> None:
        if theirs != ours:
            raise AssertionError(
                f"{self.minigrid_id}, view_size={self.view_size}, done_actions={self.done_actions}: {what} is {theirs} "
                f"in Minigrid and {ours} here, after {self.history}"
            )


# ---------------------------------------------------------------- players


@dataclass
class RandomPlayer:
    """Draws every action from one of the ACTION_PROBS."""

    rng: np.random.Generator
    probs: str

    def start(self, twin: Twin) -> None:
        # Drawn in bulk, because a single draw costs more than a step.
        self.actions = self.rng.choice(7, size=4096, p=ACTION_PROBS[self.probs]).tolist()

    def act(self, twin: Twin) -> int:
        if not self.actions:
            self.start(twin)
        return self.actions.pop()


@dataclass
class InteractivePlayer:
    """Walks around, opens and closes doors and boxes, and carries objects around.

    With done actions, it often plays `done` after fulfilling a clause.
    """

    rng: np.random.Generator

    def start(self, twin: Twin) -> None:
        pass

    def act(self, twin: Twin) -> int:
        ahead = twin.engine.images[0, twin.view_size // 2, twin.view_size - 2]
        draw = self.rng.random()
        if twin.done_actions and draw < 0.6 and _has_matched(twin.env.instrs):
            return Action.done
        if ahead[0] == 4 and ahead[2] and draw < 0.7:
            return Action.toggle
        if ahead[0] in (5, 6, 7) and draw < 0.6:
            return Action.pickup if draw < 0.5 else Action.toggle
        if twin.world.carrying and draw < 0.2:
            return Action.drop
        if draw < 0.25:
            # Playing `done` too early fails the mission, which would end most episodes.
            return int(self.rng.integers(6 if twin.done_actions and self.rng.random() < 0.8 else 7))
        return Action.forward if draw < 0.75 else Action.left if draw < 0.88 else Action.right


def _has_matched(instruction: Any) -> bool:
    parts = [getattr(instruction, name) for name in ("instr_a", "instr_b") if hasattr(instruction, name)]
    return any(map(_has_matched, parts)) or getattr(instruction, "lastStepMatch", False)


@dataclass
class BotPlayer:
    """Follows Minigrid's bot except for some random actions; continues as an InteractivePlayer if the bot fails."""

    rng: np.random.Generator
    deviation: float = 0.0

    def start(self, twin: Twin) -> None:
        self.bot = BoundedBot(twin.env)
        self.taken = None
        self.fallback = InteractivePlayer(self.rng)

    def act(self, twin: Twin) -> int:
        if self.bot is None:
            return self.fallback.act(twin)
        try:
            advice = int(self.bot.replan(self.taken))
        except Exception:
            # The bot fails an assertion, recurses too deeply, or is stuck.
            self.bot = None
            return self.fallback.act(twin)
        self.taken = advice if self.rng.random() >= self.deviation else int(self.rng.integers(7))
        return self.taken


Player = RandomPlayer | InteractivePlayer | BotPlayer


def play(twin: Twin, player: Player, max_steps: int) -> None:
    """Plays the current episode until it ends, for at most `max_steps` steps."""
    player.start(twin)
    for _ in range(max_steps):
        if twin.done:
            break
        twin.step(player.act(twin))
    twin.compare_full_state()


assert {level_of(name) for name in MINIGRID_IDS} <= set(LEVELS)
