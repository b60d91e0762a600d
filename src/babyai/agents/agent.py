"""An agent that plays: a model, its settings, and the memory of the episodes it is in."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from babyai.agents.actor import Actor
from babyai.agents.checkpoint import PathLike, load_model, save_model
from babyai.agents.config import AnyConfig
from babyai.agents.custom import PIXELS_SHAPE, TILES_SHAPE, build_model, make_config
from babyai.agents.device import Precision, find_device, find_precision, place_model
from babyai.agents.tensors import Dtype
from babyai.world.codes import MAX_WORDS, VOCABULARY
from babyai.world.language import tokenize

KEYS = ("image", "direction", "mission")


class Agent:
    """A model that plays one environment, or N side by side. `Agent.create` and `Agent.load` make one.

        agent = Agent.load("runs/local")
        obs, info = env.reset()
        agent.reset()
        action = agent.act(obs)

    Args:
        model: Of the paper, or one of your own.
        config: What it was made with.
        device: "cpu", "cuda", "cuda:1", or "auto": a GPU if there is one.
        precision: "float32" or "bf16", of matrix products.
        seed: Decides what is drawn where actions are sampled.

    Attributes:
        model: On the device. It acts in the mode it is in, at first `eval()`.
        config: What it was made with.
    """

    def __init__(
        self,
        model: nn.Module,
        config: AnyConfig,
        *,
        device: str | torch.device = "cpu",
        precision: Precision = "float32",
        seed: int = 0,
    ) -> None:
        self.device = find_device(str(device))
        self.precision: Precision = find_precision(precision, self.device)
        self.model, self.config = place_model(model, self.device).eval(), config
        self._actor: Actor | None = None
        self._count, self._seed, self._begun = 0, seed, False

    @classmethod
    def create(
        cls,
        architecture: str | type[nn.Module] = "bow_endpool_res",
        size: str | None = None,
        *,
        seed: int | None = None,
        device: str | torch.device = "cpu",
        **settings: Any,
    ) -> Self:
        """An agent that has not learned anything yet.

        Args:
            architecture: One of the paper's five, or a class of your own or its import path.
            size: "small" (unless told) or "big".
            seed: Decides the weights; None draws them from torch's own generator.
            device: Where it runs.
            settings: Of `AgentConfig`, such as `memory_dim=512`, or of your own class.
        """
        config = make_config(architecture, size, **settings)
        own = architecture if isinstance(architecture, type) else None
        if seed is None:
            return cls(build_model(config, own), config, device=device)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = build_model(config, own)
        return cls(model, config, device=device, seed=seed)

    @classmethod
    def load(
        cls,
        folder: PathLike,
        *,
        device: str | torch.device = "auto",
        precision: Precision = "float32",
        seed: int = 0,
        model_class: type[nn.Module] | str | None = None,
        trust: bool = False,
    ) -> Self:
        """The agent that a folder holds.

        Args:
            folder: A checkpoint, or a run: of that the best checkpoint, or else the newest.
            device: Where it runs; "auto": on a GPU if there is one.
            precision: "float32" or "bf16".
            seed: Decides what is drawn where actions are sampled.
            model_class: The class of a model of your own, or its import path.
            trust: Import the class that the folder names. That runs code; without it, loading never does.
        """
        chosen = find_device(str(device))
        model, config = load_model(folder, model_class=model_class, trust=trust)
        return cls(model, config, device=chosen, precision=precision, seed=seed)

    def save(self, folder: PathLike, *, dtype: Dtype = "float32", max_part_bytes: int | None = None) -> None:
        """Makes `folder` this agent's checkpoint; an older one is replaced, and survives any error.

        Args:
            folder: Its place.
            dtype: "float32" or, in half the space, "bf16".
            max_part_bytes: No file is larger.
        """
        save_model(folder, self.model, self.config, dtype=dtype, max_part_bytes=max_part_bytes)

    @property
    def num_parameters(self) -> int:
        """How many numbers it learns."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    # ------------------------------------------------------------ playing

    def act(self, observation: Mapping[str, Any], *, first: Any = None, sample: bool = False) -> Any:
        """The next action, or (N,) int64 of them; what has been seen is remembered until the episode ends.

        Args:
            observation: Of a single environment, or of a vector environment with N worlds: `image`, `direction`, and
                `mission` as a sentence or as token ids.
            first: Where this is the first observation of an episode, bool or (N,) bool: memory is cleared before. None:
                nowhere, except on the first call and on the one after `reset`, which always begin episodes.
            sample: Draw actions from the policy, rather than take the likeliest.
        """
        images, directions, missions, single = self._unpack(observation)
        actor = self._actor_for(len(images))
        begins = _check_first(first, len(images)) | (not self._begun)
        actor.sample, self._begun = sample, True
        actions = actor.act(images, missions, directions, begins)
        return int(actions[0]) if single else actions

    def reset(self) -> None:
        """Forgets all episodes; the next observations begin new ones, with the weights that the model has now."""
        self._begun = False
        if self._actor is not None:
            self._actor.refresh()

    def _actor_for(self, count: int) -> Actor:
        """The one that remembers this many episodes."""
        if self._actor is not None and self._count == count:
            return self._actor
        if self._begun:
            raise ValueError(
                f"{count} observations came after {self._count}; call agent.reset() before playing in other worlds"
            )
        self._actor = Actor(self.model, count, device=self.device, precision=self.precision, seed=self._seed)
        # What is drawn must not repeat itself when the number of worlds changes.
        self._count, self._seed = count, self._seed + 1
        return self._actor

    def _unpack(self, observation: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """Images (N, ...) uint8, directions (N,), missions (N, 72) uint8, and whether there is one world only."""
        if not isinstance(observation, Mapping) or any(key not in observation for key in KEYS):
            given = list(observation) if isinstance(observation, Mapping) else type(observation).__name__
            raise ValueError(f"an observation must have image, direction and mission, not {given}")
        images = np.asarray(observation["image"])
        expected = PIXELS_SHAPE if self.config.pixels else TILES_SHAPE
        single = images.ndim == len(expected)
        images = images[None] if single else images
        if images.shape[1:] != expected or not len(images) or images.dtype.kind not in "iu":
            kind = "rgb" if self.config.pixels else "symbolic"
            raise ValueError(
                f"this agent sees images of {expected} integers, one or N of them, not {images.shape[single:]} "
                f"{images.dtype}; make the environment with observation={kind!r}"
            )
        directions = np.asarray(observation["direction"]).reshape(-1)
        missions = _tokens([observation["mission"]] if single else observation["mission"])
        if len(directions) != len(images) or len(missions) != len(images):
            raise ValueError(f"{len(images)} images came with {len(directions)} directions, {len(missions)} missions")
        return images.astype(np.uint8, copy=False), directions, missions, single


def _check_first(first: Any, count: int) -> np.ndarray:
    mask = np.asarray(False if first is None else first)
    if mask.dtype != bool or mask.shape not in ((), (count,)):
        raise ValueError(f"`first` must be a bool or ({count},) bool, not {mask.shape} {mask.dtype}")
    return np.broadcast_to(mask, count)


@lru_cache(maxsize=4096)
def _tokenize(sentence: str) -> np.ndarray:
    """A sentence stays the same for a whole episode."""
    return tokenize(sentence)


def _tokens(missions: Any) -> np.ndarray:
    """Missions as (N, 72) uint8 token ids, given as such with any number of columns, or as N sentences."""
    if not isinstance(missions, np.ndarray) or missions.dtype.kind not in "iu":
        missions = np.stack([np.asarray(_tokenize(each) if isinstance(each, str) else each) for each in missions])
    if missions.ndim != 2 or missions.dtype.kind not in "iu" or missions.shape[1] > MAX_WORDS:
        raise ValueError(
            f"missions must be sentences, or at most {MAX_WORDS} token ids each, not {missions.shape} {missions.dtype}"
        )
    if missions.min(initial=0) < 0 or missions.max(initial=0) >= len(VOCABULARY):
        raise ValueError(f"tokens are 0 to {len(VOCABULARY) - 1} (see babyai.VOCABULARY), not up to {missions.max()}")
    return np.pad(missions.astype(np.uint8, copy=False), ((0, 0), (0, MAX_WORDS - missions.shape[1])))
