"""Functions of tensors that a GPU replays from a recording (a CUDA graph); without a GPU, they just run.

A model of this size is a few hundred short kernels, and starting them one by one costs more than running them.
"""

import threading
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor

# Recording must have the allocator for itself, also when several runs share a GPU.
_RECORDING = threading.Lock()
TRIAL_RUNS = 3


class Captured:
    """A function, recorded once for each set of shapes it is called with.

    Args:
        function: Takes tensors, returns tensors (any nesting). It may change tensors in place, but may decide nothing
            on the host that depends on their values.
        changes: Gives the tensors that it changes; they are put back after the trial runs that recording needs.
        enabled: Without it, or where tensors are not on a GPU, the function just runs.
    """

    def __init__(
        self, function: Callable[..., Any], changes: Callable[[], Iterable[Tensor]] = tuple, enabled: bool = True
    ) -> None:
        self.function, self.changes, self.enabled = function, changes, enabled
        self._recordings: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], Any]] = {}

    def __call__(self, *inputs: Tensor) -> Any:
        """What the function returns; on a GPU, tensors that the next call overwrites."""
        if not self.enabled or not any(tensor.is_cuda for tensor in inputs):
            return self.function(*inputs)
        key = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if key not in self._recordings:
            self._recordings[key] = self._record(inputs)
        graph, places, outputs = self._recordings[key]
        for place, tensor in zip(places, inputs, strict=True):
            place.copy_(tensor, non_blocking=True)
        graph.replay()
        return outputs

    def _record(self, inputs: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Any]:
        with _RECORDING:
            places = [tensor.clone() for tensor in inputs]
            before = [(tensor, tensor.detach().clone()) for tensor in self.changes()]
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for _ in range(TRIAL_RUNS):
                    self.function(*places)
            torch.cuda.current_stream().wait_stream(stream)
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                outputs = self.function(*places)
            with torch.no_grad():
                for tensor, value in before:
                    tensor.copy_(value)
        return graph, places, outputs
