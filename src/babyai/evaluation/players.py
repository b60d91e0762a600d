"""Players: an agent, the expert, or a random policy. Anything with `begin` and `act` can be evaluated."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from babyai.engine import Engine
from babyai.expert.expert import ExpertBatch, Style
from babyai.render.blit import rgb_views
from babyai.world.codes import NUM_ACTIONS, Action

if TYPE_CHECKING:
    from torch import nn

    from babyai.agents.actor import Actor
    from babyai.agents.device import Precision

# On a CPU, a network is no faster with more worlds, and fewer of them idle while the last episodes end.
WORLDS_ON_CPU = 32


class Player(Protocol):
    """Plays all worlds of an engine at once.

    A player may have the attributes `best_worlds`, the number of worlds with which it is fastest, `model`, a torch
    module that is put in evaluation mode while it plays, and `unreadable`, (N,) int64, the number of answers in each
    world's episode that no action could be read from (see `babyai.evaluation.text_player`).
    """

    def begin(self, engine: Engine) -> None:
        """Called once, after the first reset of the engine's worlds."""
        ...

    def act(self, engine: Engine, starts: np.ndarray) -> np.ndarray:
        """The next action of each world.

        Args:
            engine: The observations: `images`, `missions`, `directions`. Where it is `done`, any action will do.
            starts: (N,) bool, where an episode starts.

        Returns:
            (N,) int64, 0 to 6.
        """
        ...


class AgentPlayer:
    """An agent.

    Args:
        model: A policy, the paper's or one of your own; see `babyai.agents.policy`. Its weights may change in place
            between evaluations.
        device: The device to move it to; default: where it is.
        precision: "float32" or "bf16"; default: bf16 on a GPU, float32 elsewhere.
        sample: Sample actions from the policy, rather than take the argmax.
        seed: Random seed for sampling. Samples depend on it, on the episode's seed and on the step only.
    """

    def __init__(
        self,
        model: "nn.Module",
        *,
        device: str | None = None,
        precision: "Precision | None" = None,
        sample: bool = False,
        seed: int = 0,
    ) -> None:
        from babyai.agents.device import find_device, find_precision, place_model
        from babyai.agents.policy import observation_kind

        if device is not None:
            model = place_model(model, find_device(device))
        where = next((parameter.device for parameter in model.parameters()), find_device("cpu"))
        self.model = model
        self.device = where
        self.precision: Precision = find_precision(precision, where)
        self.sample = sample
        self.seed = seed
        self.best_worlds: int | None = WORLDS_ON_CPU if where.type == "cpu" else getattr(model, "best_worlds", None)
        self._pixels = observation_kind(model) == "rgb"
        self._actor: Actor | None = None

    def begin(self, engine: Engine) -> None:
        """Allocates recurrent states for all worlds."""
        from babyai.agents.actor import Actor

        # The actor is kept for the next evaluation, because on a GPU it holds a CUDA graph.
        if self._actor is None or len(self._actor.last_actions) != engine.num_worlds:
            self._actor = Actor(
                self.model, engine.num_worlds, device=self.device, precision=self.precision, sample=self.sample
            )
        self._actor.update_weights()

    def act(self, engine: Engine, starts: np.ndarray) -> np.ndarray:
        """The agent's actions."""
        if self._actor is None:
            raise RuntimeError("call begin(engine) before act(engine, starts)")
        images = rgb_views(engine.images) if self._pixels else engine.images
        # The actor's own random numbers would depend on the number of worlds.
        uniforms = draw_uniforms(engine, self.seed) if self.sample else None
        return self._actor.act(images, engine.missions, engine.directions, starts, uniforms)


class ExpertPlayer:
    """The expert, in the style "paper" or "teacher"; see `babyai.expert.expert.ExpertBatch`."""

    def __init__(self, style: Style = "paper") -> None:
        self.style: Style = style
        self._batch: ExpertBatch | None = None

    def begin(self, engine: Engine) -> None:
        """Creates an expert for each world."""
        self._batch = ExpertBatch(engine, self.style)

    def act(self, engine: Engine, starts: np.ndarray) -> np.ndarray:
        """The expert's advice; `done` where it has none."""
        if self._batch is None:
            raise RuntimeError("call begin(engine) before act(engine, starts)")
        if starts.any():
            self._batch.reset(starts)
        advice = self._batch.advise()
        return np.where(advice < 0, int(Action.done), advice)


class RandomPlayer:
    """A uniformly random policy.

    Args:
        seed: Random seed. Actions depend on it, on the episode's seed and on the step, and on nothing else.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def begin(self, engine: Engine) -> None:
        """Does nothing."""

    def act(self, engine: Engine, starts: np.ndarray) -> np.ndarray:
        """Random actions."""
        return (draw_uniforms(engine, self.seed) * NUM_ACTIONS).astype(np.int64)


@contextmanager
def evaluation_mode(player: Any) -> Iterator[None]:
    """Puts the player's `model`, if it has one, in evaluation mode; restores its mode afterwards."""
    model = getattr(player, "model", None)
    modes = [] if model is None else [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


# ------------------------------------------------------------ random numbers

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draw_uniforms(engine: Engine, seed: int) -> np.ndarray:
    """A random number for each world, a function of its episode's seed, its step and `seed`.

    Returns:
        (N,) float32 in [0, 1).
    """
    worlds = engine.worlds.view(np.ndarray)
    seeds = worlds["seed"].astype(np.uint64)
    steps = worlds["step_count"].astype(np.uint64)
    bits = _scramble(_scramble(seeds + np.uint64(seed * int(_GOLDEN) % 2**64)) + steps * _GOLDEN)
    # 24 bits, as many as a float32 holds, so that none is rounded up to 1.
    return (bits >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


def _scramble(bits: np.ndarray) -> np.ndarray:
    """Hashes (N,) uint64 with SplitMix64 (Steele et al. 2014)."""
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return bits ^ bits >> np.uint64(31)
