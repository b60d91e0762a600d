"""Who plays: an agent, the expert, or chance. Whatever has `begin` and `act` can be evaluated."""

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

# Without a GPU a network is no faster on more worlds than this, and fewer of them rest while the last missions end.
WORLDS_ON_CPU = 32


class Player(Protocol):
    """Plays all worlds of an engine at once.

    A player may have an attribute `best_worlds`, the number of worlds that it is fastest with, and `model`, a torch
    module that is to be in evaluation mode while it plays.
    """

    def begin(self, engine: Engine) -> None:
        """Called once, after the first reset of the engine's worlds."""
        ...

    def act(self, engine: Engine, first: np.ndarray) -> np.ndarray:
        """The next action of each world.

        Args:
            engine: What the worlds show: `images`, `missions`, `directions`. Where it is `over`, any action will do.
            first: (N,) bool, where an episode begins.

        Returns:
            (N,) int64, 0 to 6.
        """
        ...


class AgentPlayer:
    """An agent's network.

    Args:
        model: The paper's `Model` or one of your own; see `babyai.agents.actor.Actor`. One that shall see pixels says
            so in its attribute `pixels`. Its weights may be changed in place between evaluations.
        device: Where it shall run, and is moved to; None: where it is.
        precision: "float32" or "bf16"; None: bf16 on a GPU, float32 elsewhere.
        sample: Draw actions from the policy, rather than take its likeliest.
        seed: Decides what is drawn, together with the mission and the step, and with nothing else.
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
        from babyai.agents.actor import observe_for
        from babyai.agents.device import find_device, find_precision, place_model

        if device is not None:
            model = place_model(model, find_device(device))
        where = next((parameter.device for parameter in model.parameters()), find_device("cpu"))
        self.model, self.device = model, where
        self.precision: Precision = find_precision(precision, where)
        self.sample, self.seed = sample, seed
        self.best_worlds = WORLDS_ON_CPU if where.type == "cpu" else None
        self._pixels = observe_for(model) == "rgb"
        self._actor: Actor | None = None

    def begin(self, engine: Engine) -> None:
        """Makes room for as many memories as there are worlds."""
        from babyai.agents.actor import Actor

        # An actor is kept for the next evaluation, since on a GPU it holds a recording of the network at work.
        if self._actor is None or len(self._actor.last_actions) != engine.num_worlds:
            self._actor = Actor(
                self.model, engine.num_worlds, device=self.device, precision=self.precision, sample=self.sample
            )
        self._actor.refresh()

    def act(self, engine: Engine, first: np.ndarray) -> np.ndarray:
        """What the agent does in each world."""
        if self._actor is None:
            raise RuntimeError("call begin(engine) before act(engine, first)")
        images = rgb_views(engine.images) if self._pixels else engine.images
        # The actor's own numbers would depend on how many worlds there are.
        chances = draw_uniforms(engine, self.seed) if self.sample else None
        return self._actor.act(images, engine.missions, engine.directions, first, chances)


class ExpertPlayer:
    """The expert, which plans as "paper" or as "teacher"; see `babyai.expert.expert.ExpertBatch`."""

    def __init__(self, style: Style = "paper") -> None:
        self.style: Style = style
        self._batch: ExpertBatch | None = None

    def begin(self, engine: Engine) -> None:
        """Puts an expert beside each world."""
        self._batch = ExpertBatch(engine, self.style)

    def act(self, engine: Engine, first: np.ndarray) -> np.ndarray:
        """The expert's advice; `done` where it has none."""
        if self._batch is None:
            raise RuntimeError("call begin(engine) before act(engine, first)")
        if first.any():
            self._batch.begin(first)
        advice = self._batch.advise()
        return np.where(advice < 0, int(Action.done), advice)


class RandomPlayer:
    """Chance: each of the seven actions is as likely as the others.

    Args:
        seed: Decides what is drawn, together with the mission and the step, and with nothing else.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed

    def begin(self, engine: Engine) -> None:
        """Nothing has to be prepared."""

    def act(self, engine: Engine, first: np.ndarray) -> np.ndarray:
        """Any action."""
        return (draw_uniforms(engine, self.seed) * NUM_ACTIONS).astype(np.int64)


@contextmanager
def evaluation_mode(player: Any) -> Iterator[None]:
    """The player's network, if it has one, is in evaluation mode within, and afterwards as it was."""
    model = getattr(player, "model", None)
    modes = [] if model is None else [(module, module.training) for module in model.modules()]
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


# ------------------------------------------------------------ chance

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def draw_uniforms(engine: Engine, seed: int) -> np.ndarray:
    """A random number for each world, from its mission's seed, its step and `seed`: the other worlds do not matter.

    Returns:
        (N,) float32 in [0, 1).
    """
    worlds = engine.worlds.view(np.ndarray)
    missions, steps = worlds["seed"].astype(np.uint64), worlds["step_count"].astype(np.uint64)
    bits = _scramble(_scramble(missions + np.uint64(seed * int(_GOLDEN) % 2**64)) + steps * _GOLDEN)
    # As many bits as a float32 holds, so that none is rounded up to 1.
    return (bits >> np.uint64(40)).astype(np.float32) / np.float32(2**24)


def _scramble(bits: np.ndarray) -> np.ndarray:
    """Each bit of the outcome depends on all bits given: (N,) uint64 (SplitMix64, Steele et al. 2014)."""
    bits = (bits ^ bits >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ bits >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return bits ^ bits >> np.uint64(31)
