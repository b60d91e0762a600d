"""From chunks in the computer's memory to tensors where the model is, a chunk ahead of the learning."""

from collections.abc import Iterator
from dataclasses import fields
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from babyai.agents.actor import count_words
from babyai.demos.replay import Chunk, Kind
from babyai.world.view import VIEW_SIZE


class ChunkSource(Protocol):
    """What gives chunks without end; `babyai.demos.replay.Replay` is one."""

    def __next__(self) -> Chunk: ...


class Fed(NamedTuple):
    """A chunk on the model's device; shapes as in `Chunk`, missions cut to what is in use."""

    images: Tensor
    directions: Tensor
    actions: Tensor
    taken: Tensor
    first: Tensor
    missions: Tensor
    mission_index: Tensor


def page_locked(count: int, steps: int, lanes: int, kind: Kind = "symbolic", view_size: int = VIEW_SIZE) -> list[Chunk]:
    """Chunks to be filled, in memory that a GPU reads without the processor's help."""
    chunks = [Chunk.empty(steps, lanes, view_size, kind) for _ in range(count)]
    for chunk in chunks:
        for field in fields(chunk):
            array = getattr(chunk, field.name)
            if isinstance(array, np.ndarray):
                setattr(chunk, field.name, torch.from_numpy(array).pin_memory().numpy())
    return chunks


class Feed:
    """An endless sequence of chunks as tensors.

    Args:
        source: Where the chunks come from. It may use a chunk's memory again once it is asked for the next one.
        device: Where the tensors go.
    """

    def __init__(self, source: ChunkSource, device: torch.device) -> None:
        self.source, self.device = source, device
        self._copying = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._copied = torch.cuda.Event() if device.type == "cuda" else None
        self._words = 0
        self.begun = 0
        """How many episodes began in the chunks so far."""

    def __iter__(self) -> Iterator[Fed]:
        return self

    def __next__(self) -> Fed:
        if self._copied is not None:
            self._copied.synchronize()
        chunk = next(self.source)
        self.begun += int(np.count_nonzero(chunk.first))
        missions, index = pad_missions(chunk)
        self._words = count_words(missions, self._words, self.device)
        taken = chunk.actions if chunk.taken is None else chunk.taken
        arrays = (chunk.images, chunk.directions, chunk.actions, taken, chunk.first, missions, index)
        if self._copying is None:
            # The source may fill a chunk's arrays again while this one is still learned from.
            tensors = [torch.from_numpy(array).clone() for array in arrays]
        else:
            assert self._copied is not None
            with torch.cuda.stream(self._copying):
                tensors = [torch.from_numpy(array).to(self.device, non_blocking=True) for array in arrays]
                self._copied.record()
            learning = torch.cuda.current_stream()
            learning.wait_event(self._copied)
            for tensor in tensors:
                tensor.record_stream(learning)
        fed = Fed(*tensors)
        return fed._replace(missions=fed.missions[:, : self._words])


def pad_missions(chunk: Chunk) -> tuple[np.ndarray, np.ndarray]:
    """Each mission that occurs, once; and which of them holds where.

    A recording is made for each shape, so there should be few: empty missions fill the table up to the next of few
    sizes.

    Returns:
        missions (M, 72), mission_index (T, N) int32.
    """
    rows = np.ascontiguousarray(chunk.missions).view(f"V{chunk.missions.shape[1]}")[:, 0]
    _, places, numbers = np.unique(rows, return_index=True, return_inverse=True)
    size = chunk.first.shape[1]
    while size < len(places):
        size *= 2
    missions = np.zeros((size, chunk.mission_table.shape[1]), dtype=np.uint8)
    missions[: len(places)] = chunk.mission_table[places]
    return missions, numbers.astype(np.int32)[chunk.mission_index]
