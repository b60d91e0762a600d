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
        function: Takes tensors on the device, returns tensors (any nesting). It may change tensors in place, but may
            decide nothing on the host that depends on their values.
        device: Where it works.
        changes: Gives the tensors that it changes; they are put back after the trial runs that recording needs.
        enabled: Without it, or without a GPU, the function just runs.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        device: torch.device,
        changes: Callable[[], Iterable[Tensor]] = tuple,
        enabled: bool = True,
    ) -> None:
        self.function, self.device, self.changes = function, device, changes
        self.enabled = enabled and device.type == "cuda"
        self._recordings: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], Any]] = {}

    def __call__(self, *inputs: Tensor) -> Any:
        """What the function returns; if it is recorded, tensors that the next call overwrites.

        Inputs may be on the host. Those in page-locked memory may still be read from when this returns.
        """
        if not self.enabled:
            return self.function(*(tensor.to(self.device, non_blocking=True) for tensor in inputs))
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
            places = [tensor.to(self.device, copy=True) for tensor in inputs]
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


def compile_part(part: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a model, compiled for each shape it meets, when it meets it."""
    # A process that trains many agents meets more shapes than torch expects.
    torch._dynamo.config.recompile_limit = 256  # pyright: ignore[reportAttributeAccessIssue]
    return torch.compile(part, dynamic=False)
