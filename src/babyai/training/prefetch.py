"""Prefetching: batches are copied to the device while the one before is learned from."""

from collections.abc import Iterator, Sequence

import numpy as np
import torch
from torch import Tensor

from babyai.batch import Batch, ObservationKind, count_words
from babyai.tree import tree_map


class Prefetcher:
    """An endless iterator of batches as tensors on the device.

    Args:
        batches: Batches of NumPy arrays. Their memory may be reused once the next one is requested.
        device: Where the tensors go.
        fields: The fields of a batch that the learner needs; the others are not copied.
        lanes: The lanes that the learner needs; default: all.

    Attributes:
        episodes: Number of episodes that started in the batches so far.
    """

    def __init__(
        self, batches: Iterator[Batch], device: torch.device, fields: Sequence[str], lanes: slice = slice(None)
    ) -> None:
        self.batches = batches
        self.device = device
        self.fields = fields
        self.lanes = lanes
        self.episodes = 0
        self._copy_stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._copied = torch.cuda.Event() if device.type == "cuda" else None
        self._words = 0

    def __iter__(self) -> Iterator[Batch]:
        return self

    def __next__(self) -> Batch:
        if self._copied is not None:
            self._copied.synchronize()
        batch = next(self.batches)
        self.episodes += int(np.count_nonzero(batch.starts))
        batch = batch.only(self.fields).select_lanes(self.lanes).deduplicate_missions()
        # A CUDA graph is captured for each shape, so on a GPU the number of words never decreases. Elsewhere it depends
        # on the missions alone, so that a resumed run computes what it would have computed.
        self._words = count_words(batch.missions, self._words if self.device.type == "cuda" else 0)
        tensors = self._to_device({name: torch.from_numpy(getattr(batch, name)) for name in self.fields})
        tensors["missions"] = tensors["missions"][:, : self._words]
        return Batch(**tensors)

    def _to_device(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        if self._copy_stream is None or self._copied is None:
            return {name: tensor.clone() for name, tensor in tensors.items()}
        with torch.cuda.stream(self._copy_stream):
            tensors = {name: tensor.to(self.device, non_blocking=True) for name, tensor in tensors.items()}
            self._copied.record()
        learning = torch.cuda.current_stream()
        learning.wait_event(self._copied)
        for tensor in tensors.values():
            tensor.record_stream(learning)
        return tensors


def page_locked_batches(count: int, steps: int, lanes: int, kind: ObservationKind = "symbolic") -> list[Batch]:
    """Batches to be filled, in page-locked memory, which a GPU reads asynchronously."""
    return [
        tree_map(lambda array: torch.from_numpy(array).pin_memory().numpy(), Batch.empty(steps, lanes, kind))
        for _ in range(count)
    ]
