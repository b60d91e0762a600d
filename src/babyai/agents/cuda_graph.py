"""CUDA graphs: a function of tensors is captured once for each set of shapes and replayed; without a GPU it just runs.

A model of this size is a few hundred short kernels, and launching them one by one takes longer than running them.
"""

import gc
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from typing import Any

import torch
from torch import Tensor

from babyai.agents.compilation import compiling
from babyai.tree import tree_leaves, tree_map

# Several threads may use a GPU, but only one captures at a time, and on a stream that none of them uses: torch hands
# out the same few streams of each priority again and again, so priorities -1 and -3 are for capturing only. Streams
# that launch work have priority 0 or -2. A graph's kernels have the priority of the stream that it is captured on.
_CAPTURE_LOCK = threading.Lock()
WARM_UP_RUNS = 3
CAPTURE_PRIORITY = -1
# For what somebody waits for while something else is computed, such as actions next to a gradient step.
URGENT_CAPTURE_PRIORITY = -3
URGENT_STREAM_PRIORITY = -2


class UndeclaredMutationError(RuntimeError):
    """A captured function changes a tensor in place that it does not declare; the warm-up runs would corrupt it."""


class CudaGraphFunction:
    """A function that a GPU replays from a CUDA graph, one for each structure and set of shapes of its arguments.

    Args:
        function: Takes structures of tensors (see `babyai.tree`) and returns one. It may change tensors in place, but
            must not make decisions on the host that depend on their values. Keyword arguments are constants, such as
            sizes: there is a graph for each set of them.
        device: Where it runs.
        mutated: Returns the tensors that the function changes in place. Capturing needs warm-up runs, after which
            these are restored. A tensor that is changed but not listed raises `UndeclaredMutationError`.
        enabled: Whether to use CUDA graphs and torch.compile on a GPU. Without it, the function just runs.
        compiled: Whether to compile the parts marked `@compilable`.
        exact: Whether convolutions in float32 use full precision instead of TF32.
        max_graphs: How many graphs to keep; the oldest is dropped first. Default: all.
        check_mutations: Whether to check, at the first capture, that `mutated` is complete. It cannot be checked if
            another thread changes tensors meanwhile.
        priority: CAPTURE_PRIORITY, or URGENT_CAPTURE_PRIORITY: if two graphs are replayed at the same time, the kernels
            of this one go first.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        device: torch.device,
        mutated: Callable[[], Iterable[Tensor]] = tuple,
        *,
        enabled: bool = True,
        compiled: bool = False,
        exact: bool = False,
        max_graphs: int | None = None,
        check_mutations: bool = True,
        priority: int = CAPTURE_PRIORITY,
    ) -> None:
        self.function = function
        self.device = device
        self.mutated = mutated
        self.enabled = enabled and device.type == "cuda"
        self.compiled = compiled
        self.exact = exact
        self.max_graphs = max_graphs
        self.priority = priority
        self._must_check = check_mutations
        self._graphs: dict[tuple[Any, ...], tuple[torch.cuda.CUDAGraph, list[Tensor | None], Any]] = {}

    def __call__(self, *inputs: Any, **constants: Hashable) -> Any:
        """What the function returns; when replayed, tensors that the next call overwrites.

        Inputs may be on the host. Those in page-locked memory may still be read from when this returns.
        """
        if not self.enabled:
            with _cudnn_settings(self.device, self.exact):
                moved = tree_map(lambda tensor: tensor.to(self.device, non_blocking=True), inputs)
                return self.function(*moved, **constants)
        leaves = tree_leaves(inputs, with_none=True)
        shapes = (None if leaf is None else (leaf.shape, leaf.dtype) for leaf in leaves)
        key = (*shapes, *constants.items())
        if key not in self._graphs:
            self._graphs[key] = self._capture(partial(self.function, **constants), inputs)
        graph, places, outputs = self._graphs[key]
        for place, tensor in zip(places, leaves, strict=True):
            if place is None:
                continue
            # Pageable memory cannot be copied while another thread captures.
            ready = tensor if tensor.is_cuda or tensor.is_pinned() else tensor.pin_memory()
            place.copy_(ready, non_blocking=True)
        graph.replay()
        return outputs

    def _capture(
        self, function: Callable[..., Any], inputs: tuple[Any, ...]
    ) -> tuple[torch.cuda.CUDAGraph, list[Tensor | None], Any]:
        with _CAPTURE_LOCK, _cudnn_settings(self.device, self.exact), compiling(self.compiled):
            self._make_room()
            placed = tree_map(lambda tensor: tensor.to(self.device, copy=True), inputs)
            before = [(tensor, tensor.detach().clone()) for tensor in self.mutated()]
            current = torch.cuda.current_stream()
            stream = _capture_stream(torch.cuda.current_device(), self.priority)
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                with checking_mutations(tensor for tensor, _ in before) if self._must_check else nullcontext():
                    function(*placed)
                self._must_check = False
                for _ in range(WARM_UP_RUNS - 1):
                    function(*placed)
            graph = torch.cuda.CUDAGraph()
            try:
                with own_workspaces(), torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
                    outputs = function(*placed)
            except RuntimeError as error:
                reason = str(error).partition("\n")[0]
                raise RuntimeError(
                    f"this policy cannot be captured in a CUDA graph ({reason}): it must not copy tensors between host "
                    f"and device, nor branch on their values. Train it with --no-cuda-graphs."
                ) from error
            current.wait_stream(stream)
            with torch.no_grad():
                for tensor, value in before:
                    tensor.copy_(value)
            # What was allocated on one stream and is used on the other must not be freed in between.
            torch.cuda.synchronize()
        return graph, tree_leaves(placed, with_none=True), outputs

    def _make_room(self) -> None:
        """Drops the oldest graph if there are enough; not while another thread captures, which forbids waiting."""
        if self.max_graphs is not None and len(self._graphs) >= self.max_graphs:
            # It may still be replaying.
            torch.cuda.synchronize(self.device)
            del self._graphs[next(iter(self._graphs))]


@contextmanager
def checking_mutations(declared: Iterable[Tensor]) -> Iterator[None]:
    """Raises if a tensor that exists before is changed in place within and is not declared.

    Tensors have version counters, which in-place operations increment (but for running statistics, which
    `functional.batch_norm` changes without). Gradients may change: they are recomputed.
    """
    allowed = {_memory(tensor) for tensor in declared}
    before = [(tensor, tensor._version) for tensor in _existing_tensors()]
    yield
    allowed |= {_memory(t.grad) for t in _existing_tensors() if _is_leaf(t) and t.grad is not None}
    changed = [tensor for tensor, version in before if tensor._version != version and _memory(tensor) not in allowed]
    if changed:
        names = ", ".join(f"{tuple(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}" for tensor in changed[:5])
        raise UndeclaredMutationError(
            f"an update changes {len(changed)} tensor(s) in place that it does not declare ({names}); add them to what "
            f"`mutated` returns, so that they survive the warm-up runs of a CUDA graph"
        )


def _memory(tensor: Tensor) -> int:
    """What tensors that share memory have in common."""
    return tensor.untyped_storage().data_ptr()


def _is_leaf(tensor: Tensor) -> bool:
    """`is_leaf`, which raises for one of several views of a weight that an update has since changed."""
    return not (tensor._is_view() and tensor.requires_grad) and tensor.is_leaf


def _existing_tensors() -> list[Tensor]:
    tensors = [thing for thing in gc.get_objects() if type(thing) in (Tensor, torch.nn.Parameter)]
    return [tensor for tensor in tensors if not tensor.is_inference()]


# ------------------------------------------------------------ streams


@cache
def _capture_stream(device: int, priority: int) -> torch.cuda.Stream:
    return torch.cuda.Stream(device, priority=priority)


@cache
def _side_stream(device: int) -> torch.cuda.Stream:
    _capture_stream(device, CAPTURE_PRIORITY)  # so that this is another one
    return torch.cuda.Stream(device, priority=CAPTURE_PRIORITY)


@contextmanager
def side_stream() -> Iterator[None]:
    """While capturing, kernels launched within run in parallel to those launched after, until `join_side_stream`."""
    if not _is_capturing():
        yield
        return
    side = _side_stream(torch.cuda.current_device())
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        yield


def join_side_stream() -> None:
    """While capturing, kernels launched from here on wait for those of `side_stream`."""
    if _is_capturing():
        torch.cuda.current_stream().wait_stream(_side_stream(torch.cuda.current_device()))


def _is_capturing() -> bool:
    return torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()


@contextmanager
def own_workspaces() -> Iterator[None]:
    """Graphs captured within share no cuBLAS workspace with other graphs, so that they can be replayed concurrently.

    torch keeps one workspace per stream: graphs captured on one stream would all have the same one, and a product that
    counts in it which of its parts are done could wait forever. With none kept, the workspace is allocated while
    capturing, and belongs to the graph.
    """
    clear = getattr(torch._C, "_cuda_clearCublasWorkspaces", None)
    if clear is None:
        raise RuntimeError(f"torch {torch.__version__} cannot clear cuBLAS workspaces; train with --no-cuda-graphs")
    clear()
    try:
        yield
    finally:
        clear()


@contextmanager
def _cudnn_settings(device: torch.device, exact: bool) -> Iterator[None]:
    """On a GPU, cuDNN picks the fastest convolution algorithm for each shape; shapes hardly change."""
    if device.type != "cuda":
        yield
        return
    cudnn = torch.backends.cudnn
    before = cudnn.benchmark, cudnn.allow_tf32
    cudnn.benchmark = True
    cudnn.allow_tf32 = not exact
    try:
        yield
    finally:
        cudnn.benchmark, cudnn.allow_tf32 = before
