"""The agent: a policy, its configuration, and the recurrent states of the episodes it plays."""

from collections.abc import Mapping
from dataclasses import asdict
from functools import lru_cache
from typing import Any, Self

import numpy as np
import torch
from torch import nn

from babyai.agents.actor import Actor
from babyai.agents.checkpoint import Dtype, load_policy, save_agent
from babyai.agents.config import AnyConfig
from babyai.agents.custom import PIXELS_SHAPE, SYMBOLIC_SHAPE, build_policy, make_config
from babyai.agents.device import Precision, find_device, find_precision, place_model
from babyai.atomic_io import PathLike
from babyai.world.codes import MAX_WORDS, VOCABULARY
from babyai.world.language import tokenize

KEYS = ("image", "direction", "mission")


class Agent:
    """A policy that plays one environment, or N in parallel. Use `Agent.create` or `Agent.load`.

        agent = Agent.load("runs/local")
        obs, info = env.reset()
        agent.reset()
        action = agent.act(obs)

    Args:
        model: The policy: the paper's, or one of your own.
        config: Its configuration.
        device: "cpu", "cuda", "cuda:1", or "auto": a GPU if there is one.
        precision: "float32", or "bf16" for mixed precision.
        seed: Random seed for sampling actions.

    Attributes:
        model: The policy, on the device. It acts in the mode it is in, initially `eval()`.
        config: Its configuration.
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
        self.model = place_model(model, self.device).eval()
        self.config = config
        self._actor: Actor | None = None
        self._count = 0
        self._seed = seed
        self._has_acted = False

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
        """A new agent with random weights.

        Args:
            architecture: One of the paper's five, or a policy class of your own, or its import path.
            size: "small" (default) or "big".
            seed: Random seed of the weights; default: torch's global generator.
            device: Where it runs.
            settings: Fields of `AgentConfig`, such as `memory_dim=512`, or keyword arguments of your own class.
        """
        config = make_config(architecture, size, **settings)
        own = architecture if isinstance(architecture, type) else None
        if seed is None:
            return cls(build_policy(config, own), config, device=device)
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(seed)
            model = build_policy(config, own)
        return cls(model, config, device=device, seed=seed)

    @classmethod
    def load(
        cls,
        path: PathLike,
        *,
        device: str | torch.device = "auto",
        precision: Precision = "float32",
        seed: int = 0,
        model_class: type[nn.Module] | str | None = None,
        trust: bool = False,
    ) -> Self:
        """The agent of a checkpoint or a run.

        Args:
            path: A checkpoint's folder or file, or a run's folder: of that the best checkpoint, or else the newest. Or
                "map", the agent for all levels that comes with the package.
            device: Where it runs; "auto": a GPU if there is one.
            precision: "float32", or "bf16" for mixed precision.
            seed: Random seed for sampling actions.
            model_class: The class of a policy of your own, or its import path.
            trust: Import the class that the checkpoint names. That runs code; without it, loading never does.
        """
        chosen = find_device(str(device))
        model, config = load_policy(path, model_class=model_class, trust=trust)
        return cls(model, config, device=chosen, precision=precision, seed=seed)

    def save(self, folder: PathLike, *, dtype: Dtype = "float32") -> None:
        """Writes the agent to `folder`; an older one there is replaced, and survives any error.

        Args:
            folder: Where to; created if needed.
            dtype: "float32" or, in half the space, "bf16".
        """
        save_agent(folder, self.model, self.config, dtype=dtype)

    @property
    def num_parameters(self) -> int:
        """Number of trainable parameters."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def __repr__(self) -> str:
        return f"Agent({_describe(self.config)}, {self.num_parameters:,} parameters, {self.device})"

    def _repr_html_(self) -> str:
        """The configuration as HTML, for notebooks."""
        from babyai.render.notebook import html_table

        rows = {"parameters": self.num_parameters, "device": str(self.device), "precision": self.precision}
        return html_table(f"Agent: {_describe(self.config)}", rows | asdict(self.config))

    # ------------------------------------------------------------ playing

    def act(self, observation: Mapping[str, Any], *, episode_start: Any = None, sample: bool = False) -> Any:
        """The next action, or (N,) int64 actions; the recurrent state is kept until the episode ends.

        Args:
            observation: Of a single environment, or of a vector environment with N worlds: `image`, `direction`, and
                `mission` as a sentence or as token ids.
            episode_start: Where this is the first observation of an episode, bool or (N,) bool: the recurrent state is
                reset. Default: nowhere, except on the first call and on the one after `reset`, which always start
                episodes.
            sample: Sample actions from the policy, rather than take the argmax.
        """
        images, directions, missions, single = self._unpack(observation)
        actor = self._actor_for(len(images))
        starts = _check_starts(episode_start, len(images)) | (not self._has_acted)
        actor.sample = sample
        self._has_acted = True
        actions = actor.act(images, missions, directions, starts)
        return int(actions[0]) if single else actions

    def reset(self) -> None:
        """Resets the recurrent states: the next observations start new episodes, with the model's current weights."""
        self._has_acted = False
        if self._actor is not None:
            self._actor.update_weights()

    def _actor_for(self, count: int) -> Actor:
        """An actor for this many episodes."""
        if self._actor is not None and self._count == count:
            return self._actor
        if self._has_acted:
            raise ValueError(
                f"got {count} observations after {self._count}; call agent.reset() before playing other environments"
            )
        self._actor = Actor(self.model, count, device=self.device, precision=self.precision, seed=self._seed)
        self._count = count
        # Samples must not repeat when the number of worlds changes.
        self._seed += 1
        return self._actor

    def _unpack(self, observation: Mapping[str, Any]) -> tuple[np.ndarray, np.ndarray, np.ndarray, bool]:
        """Images (N, ...) uint8, directions (N,), missions (N, 72) uint8, and whether there is one world only."""
        if not isinstance(observation, Mapping) or any(key not in observation for key in KEYS):
            given = list(observation) if isinstance(observation, Mapping) else type(observation).__name__
            raise ValueError(f"an observation needs image, direction and mission, not {given}")
        images = np.asarray(observation["image"])
        expected = PIXELS_SHAPE if self.config.pixels else SYMBOLIC_SHAPE
        single = images.ndim == len(expected)
        images = images[None] if single else images
        if images.shape[1:] != expected or not len(images) or images.dtype.kind not in "iu":
            kind = "rgb" if self.config.pixels else "symbolic"
            raise ValueError(
                f"this agent reads integer images of shape {expected}, or N of them, not {images.shape[single:]} "
                f"{images.dtype}; create the environment with observation={kind!r}"
            )
        directions = np.asarray(observation["direction"]).reshape(-1)
        missions = _tokens([observation["mission"]] if single else observation["mission"])
        if len(directions) != len(images) or len(missions) != len(images):
            raise ValueError(f"got {len(images)} images, {len(directions)} directions and {len(missions)} missions")
        return images.astype(np.uint8, copy=False), directions, missions, single


def _describe(config: AnyConfig) -> str:
    """The architecture, and its size if it has one."""
    size = getattr(config, "size", None)
    return f"{config.architecture}, {size}" if size else config.architecture


def _check_starts(episode_start: Any, count: int) -> np.ndarray:
    mask = np.asarray(False if episode_start is None else episode_start)
    if mask.dtype != bool or mask.shape not in ((), (count,)):
        raise ValueError(f"episode_start must be a bool or ({count},) bool, not {mask.shape} {mask.dtype}")
    return np.broadcast_to(mask, count)


@lru_cache(maxsize=4096)
def _tokenize(sentence: str) -> np.ndarray:
    """Cached, because a mission stays the same for a whole episode."""
    return tokenize(sentence)


def _tokens(missions: Any) -> np.ndarray:
    """Missions as (N, 72) uint8 token ids, given as such with any number of columns, or as N sentences."""
    if not isinstance(missions, np.ndarray) or missions.dtype.kind not in "iu":
        missions = np.stack([np.asarray(_tokenize(each) if isinstance(each, str) else each) for each in missions])
    if missions.ndim != 2 or missions.dtype.kind not in "iu" or missions.shape[1] > MAX_WORDS:
        raise ValueError(
            f"missions must be sentences or at most {MAX_WORDS} token ids each, not {missions.shape} {missions.dtype}"
        )
    if missions.min(initial=0) < 0 or missions.max(initial=0) >= len(VOCABULARY):
        raise ValueError(f"token ids are 0..{len(VOCABULARY) - 1} (see babyai.VOCABULARY), not up to {missions.max()}")
    return np.pad(missions.astype(np.uint8, copy=False), ((0, 0), (0, MAX_WORDS - missions.shape[1])))
