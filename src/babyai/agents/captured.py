"""Functions of tensors that a GPU replays from a recording (a CUDA graph); without a GPU, they just run.

A model of this size is a few hundred short kernels, and starting them one by one costs more than running them.
"""

import threading
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

# Several runs may share a GPU, but only one of them records at a time, and on a stream that none of them uses: torch
# hands out the same few streams again and again, save for those of high priority, which nobody else here asks for.
_RECORDING = threading.Lock()
TRIAL_RUNS = 3


@cache
def _recording_streams(device: torch.device) -> tuple[torch.cuda.Stream, torch.cuda.Stream]:
    return torch.cuda.Stream(device, priority=-1), torch.cuda.Stream(device, priority=-1)


@contextmanager
def beside() -> Iterator[None]:
    """While recording, what is started within need not wait for what comes after, until `join` is called."""
    if not (torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()):
        yield
        return
    main, side = _recording_streams(torch.device("cuda", torch.cuda.current_device()))
    side.wait_stream(main)
    with torch.cuda.stream(side):
        yield


def join() -> None:
    """Has all that follows wait for what was started within `beside`."""
    if torch.cuda.is_available() and torch.cuda.is_current_stream_capturing():
        main, side = _recording_streams(torch.device("cuda", torch.cuda.current_device()))
        main.wait_stream(side)


class Captured:
    """A function, recorded once for each set of shapes it is called with.

    Args:
        function: Takes tensors on the device, returns tensors (any nesting). It may change tensors in place, but may
            decide nothing on the host that depends on their values.
        device: Where it works.
        changes: Gives the tensors that it changes; they are put back after the trial runs that recording needs.
        enabled: Without it, or without a GPU, the function just runs.
        exact: Whether a GPU must compute float32 as such, and not with the ten bits of mantissa that it takes for it.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        device: torch.device,
        changes: Callable[[], Iterable[Tensor]] = tuple,
        enabled: bool = True,
        exact: bool = False,
    ) -> None:
        self.function, self.device, self.changes, self.exact = function, device, changes, exact
        self.enabled = enabled and device.type == "cuda"
        self._recordings: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, list[Tensor], Any]] = {}

    def __call__(self, *inputs: Tensor) -> Any:
        """What the function returns; if it is recorded, tensors that the next call overwrites.

        Inputs may be on the host. Those in page-locked memory may still be read from when this returns.
        """
        if not self.enabled:
            with _convolutions(self.device, self.exact):
                return self.function(*(tensor.to(self.device, non_blocking=True) for tensor in inputs))
        key = tuple((tensor.shape, tensor.dtype) for tensor in inputs)
        if key not in self._recordings:
            self._recordings[key] = self._record(inputs)
        graph, places, outputs = self._recordings[key]
        for place, tensor in zip(places, inputs, strict=True):
            # Other memory cannot be copied while another thread records.
            ready = tensor if tensor.is_cuda or tensor.is_pinned() else tensor.pin_memory()
            place.copy_(ready, non_blocking=True)
        graph.replay()
        return outputs

    def _record(self, inputs: tuple[Tensor, ...]) -> tuple[torch.cuda.CUDAGraph, list[Tensor], Any]:
        with _RECORDING, _convolutions(self.device, self.exact):
            places = [tensor.to(self.device, copy=True) for tensor in inputs]
            before = [(tensor, tensor.detach().clone()) for tensor in self.changes()]
            current, (stream, _) = torch.cuda.current_stream(), _recording_streams(places[0].device)
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                for _ in range(TRIAL_RUNS):
                    self.function(*places)
            graph = torch.cuda.CUDAGraph()
            with own_workspaces(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                outputs = self.function(*places)
            current.wait_stream(stream)
            with torch.no_grad():
                for tensor, value in before:
                    tensor.copy_(value)
            # What was allocated on one stream and is used on the other must not be freed in between.
            torch.cuda.synchronize()
        return graph, places, outputs


@contextmanager
def own_workspaces() -> Iterator[None]:
    """What is recorded within shares no scratch memory with other recordings, so that they can be replayed at once.

    Matrix products need some, and torch keeps it by stream: recordings made on one stream would all have the same, and
    a product that counts in it which of its parts are done could wait for ever. Kept by none, it is allocated while
    recording, and stays with the recording.
    """
    forget = torch._C._cuda_clearCublasWorkspaces  # pyright: ignore[reportAttributeAccessIssue]
    forget()
    try:
        yield
    finally:
        forget()


@contextmanager
def _convolutions(device: torch.device, exact: bool) -> Iterator[None]:
    """How a GPU computes convolutions within: shapes hardly change, so it tries which way is fastest."""
    if device.type != "cuda":
        yield
        return
    settings = torch.backends.cudnn
    before = settings.benchmark, settings.allow_tf32
    settings.benchmark, settings.allow_tf32 = True, not exact
    try:
        yield
    finally:
        settings.benchmark, settings.allow_tf32 = before


def compile_part(part: Callable[..., Any]) -> Callable[..., Any]:
    """A part of a model, compiled for each shape it meets, when it meets it."""
    # Nothing that a user could do anything about.
    warnings.filterwarnings("ignore", r"\s*Online softmax is disabled", UserWarning)
    # A process that trains many agents meets more shapes than torch expects. Before 2.7 the limit had another name.
    limits = torch._dynamo.config
    setattr(limits, "recompile_limit" if hasattr(limits, "recompile_limit") else "cache_size_limit", 256)
    return torch.compile(part, dynamic=False)
