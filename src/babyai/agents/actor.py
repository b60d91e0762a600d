"""Acting: N episodes side by side, their memories kept, from what the worlds show to what the agent does."""

from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from babyai.agents.captured import Captured
from babyai.agents.device import Precision, find_device
from babyai.agents.precision import Working
from babyai.agents.unroll import Steps, Unroller

# Missions are cut to the longest of them, rounded up to this, so that few shapes occur.
WORDS_AT_A_TIME = 8


def count_words(missions: np.ndarray, before: int, device: torch.device) -> int:
    """How many columns of (M, 72) token ids to read: those in use, rounded up.

    A GPU makes a recording for each shape, so there it is never fewer than `before`. Elsewhere it depends on the
    missions alone, and a run that is resumed computes what it would have computed.
    """
    used = int(np.count_nonzero(missions.any(0)))
    words = min(missions.shape[1], max(1, -(-used // WORDS_AT_A_TIME)) * WORDS_AT_A_TIME)
    return max(words, before) if device.type == "cuda" else words


class Packer:
    """Takes what N worlds show to the device in one copy: each world's bytes in one row, (N, 6 + L + image).

    A row is: whether an episode begins, the heading, the four bytes of a number that decides what is drawn, the L words
    of the mission, the image.
    """

    def __init__(self, count: int, device: torch.device) -> None:
        self.count, self.device = count, device
        self._words, self._shape = 0, ()
        self._host = torch.empty(0)
        self._lanes = torch.arange(count, device=device)[None]

    def pack(
        self,
        images: np.ndarray,
        missions: np.ndarray,
        directions: np.ndarray,
        first: np.ndarray,
        chances: np.ndarray | None = None,
    ) -> Tensor:
        """The rows, in memory that the next call overwrites."""
        if first.any() or not self._words:
            self._words = count_words(missions, self._words, self.device)
        self._shape, image = images.shape[1:], 6 + self._words
        width = image + images[0].size
        if self._host.shape != (self.count, width):
            self._host = torch.empty((self.count, width), dtype=torch.uint8, pin_memory=self.device.type == "cuda")
        rows = self._host.numpy()
        rows[:, 0], rows[:, 1], rows[:, 6:image] = first, directions, missions[:, : self._words]
        if chances is not None:
            rows[:, 2:6] = np.ascontiguousarray(chances, np.float32).view(np.uint8).reshape(self.count, 4)
        rows[:, image:] = images.reshape(self.count, -1)
        return self._host

    def unpack(self, rows: Tensor, last_actions: Tensor) -> tuple[Steps, Tensor]:
        """The rows as one step of N lanes, and the chances; last_actions: (N,), what was done on the step before."""
        first, image = rows[:, 0].bool(), rows.shape[1] - int(np.prod(self._shape))
        steps = Steps(
            images=rows[:, image:].reshape(1, self.count, *self._shape),
            directions=rows[None, :, 1],
            last_actions=torch.where(first, -1, last_actions)[None],
            first=first[None],
            missions=rows[:, 6:image],
            mission_index=self._lanes,
        )
        # Numbers must begin where their size divides the address, which a row's bytes do not.
        chances = rows[:, 2:6].clone(memory_format=torch.contiguous_format)
        return steps, chances.view(torch.float32)[:, 0]


class Actor:
    """A model that plays N episodes at once.

    Args:
        model: On its device already. It acts in the mode it is in; for evaluation that is `model.eval()`.
        count: N.
        device: Where the model is.
        precision: "bf16" computes with a copy of the weights in that precision; see `refresh`.
        sample: Whether actions are drawn from the policy, rather than its likeliest taken.
        seed: Decides what is drawn.
    """

    def __init__(
        self,
        model: nn.Module,
        count: int,
        *,
        device: str | torch.device = "cpu",
        precision: Precision = "float32",
        sample: bool = False,
        seed: int = 0,
    ) -> None:
        self.device, self.sample, self.count = find_device(str(device)), sample, count
        self.memory: Tensor = model.initial_memory(count, self.device)  # pyright: ignore[reportCallIssue]
        self.last_actions = torch.full((count,), -1, dtype=torch.long, device=self.device)
        self._generator = np.random.default_rng(seed)
        self._working = Working(model, precision)
        self._packer, self._unroll = Packer(count, self.device), Unroller(self._working.model)
        changes, exact = (self.memory, self.last_actions), precision == "float32"
        # A recording cannot choose whether to draw, so there is one of each kind.
        self._steps = {
            sample: Captured(partial(self._decide, sample), self.device, lambda: changes, exact=exact)
            for sample in (False, True)
        }

    def act(
        self,
        images: np.ndarray,
        missions: np.ndarray,
        directions: np.ndarray,
        first: np.ndarray,
        chances: np.ndarray | None = None,
    ) -> np.ndarray:
        """The next action of each episode; memories are cleared where one begins.

        Args:
            images: (N, 7, 7, 3) uint8, or pixels.
            missions: (N, 72) uint8, token ids.
            directions: (N,) integers.
            first: (N,) bool, where an episode begins.
            chances: (N,) float32 from [0, 1), which decide what is drawn; None: from the actor's own generator.

        Returns:
            (N,) int64.
        """
        if self.sample and chances is None:
            chances = self._generator.random(self.count, dtype=np.float32)
        rows = self._packer.pack(images, missions, directions, first, chances)
        with torch.no_grad():
            actions: Tensor = self._steps[self.sample](rows)
        return actions.cpu().numpy()

    def refresh(self) -> None:
        """Follows weights that have been changed in place."""
        self._working.refresh()

    def _decide(self, sample: bool, rows: Tensor) -> Tensor:
        """rows: see `Packer` -> (N,) actions; keeps memory and last action."""
        steps, chances = self._packer.unpack(rows, self.last_actions)
        logits, _, memory = self._unroll(steps, self.memory)
        actions = draw_actions(logits[0], chances if sample else None)
        self.memory.copy_(memory)
        self.last_actions.copy_(actions)
        return actions


def draw_actions(logits: Tensor, chances: Tensor | None = None) -> Tensor:
    """The likeliest actions or, given (N,) numbers from [0, 1), actions drawn from the policy: (N,) int64."""
    if chances is None:
        return logits.argmax(1)
    below = logits.softmax(1).cumsum(1) <= chances[:, None]
    return below.sum(1).clamp(max=logits.shape[1] - 1)


def observe_for(model: nn.Module) -> Any:
    """Whether a model sees pixels: "rgb", or "symbolic"."""
    config = getattr(model, "config", None)
    return "rgb" if getattr(config, "pixels", getattr(model, "pixels", False)) else "symbolic"
