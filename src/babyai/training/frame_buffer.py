"""A replay buffer of single frames, on the device."""

from typing import NamedTuple

import torch
from torch import Tensor

from babyai.agents.map.tokens import Frames
from babyai.tree import tree_map

NO_LABEL = 255


class Labels(NamedTuple):
    """What is to be predicted from B frames."""

    actions: Tensor
    """(B,) uint8, the teacher's; NO_LABEL where it has no advice."""
    progress: Tensor
    """(B,) uint8, bits: whether the first side of the mission is done, then each clause."""
    paths: Tensor
    """(B, 32) int16, the teacher's goal and path, as from `ExpertBatch.advise_and_trace`."""


class LabeledFrames(NamedTuple):
    """Frames, and what is to be predicted from each."""

    frames: Frames
    labels: Labels


class PlayedFrames(NamedTuple):
    """The frames of one step of all worlds."""

    all: LabeledFrames
    revisits: LabeledFrames
    """Those in which the agent is in a state in which it has been before."""


class FrameBuffer:
    """The newest frames, in a ring.

    Args:
        capacity: Number of frames.

    Attributes:
        size: Number of frames that it holds.
    """

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.size = 0
        self._next = 0
        self._stored: LabeledFrames | None = None

    def add(self, new: LabeledFrames) -> None:
        """Stores frames; the oldest make room."""
        new = tree_map(lambda tensor: tensor[-self.capacity :], new)
        count = len(new.labels.actions)
        if self._stored is None:
            self._stored = tree_map(lambda tensor: tensor.new_zeros((self.capacity, *tensor.shape[1:])), new)
        place = (self._next + torch.arange(count, device=new.labels.actions.device)) % self.capacity

        def store(ring: Tensor, tensor: Tensor) -> Tensor:
            return ring.index_copy_(0, place, tensor)

        tree_map(store, self._stored, new)
        self._next = (self._next + count) % self.capacity
        self.size = min(self.capacity, self.size + count)

    def sample(self, count: int) -> LabeledFrames:
        """Random frames, with replacement."""
        if self._stored is None:
            raise RuntimeError("the buffer is empty")
        index = torch.randint(self.size, (count,), device=self._stored.labels.actions.device)
        return tree_map(lambda tensor: tensor[index], self._stored)
