"""Data parallelism: the processes that torchrun started train one agent, each on some lanes of every batch.

    torchrun --nproc-per-node 2 -m babyai.cli train imitation --levels BossLevel --size big --endless

Every process replays the same batches and takes its lanes of them, so a run computes what one process would have
computed, up to rounding, and can be resumed with another number of processes. Process 0 validates, logs and saves.
"""

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from importlib import import_module
from typing import Any, Self

import torch
from torch import Tensor, distributed, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from babyai.agents.device import find_device
from babyai.tree import tree_leaves

# The others wait while process 0 collects demonstrations or validates. If it dies, torchrun ends them.
TIMEOUT = timedelta(days=1)


@dataclass(frozen=True)
class ProcessGroup:
    """The processes that train one agent; by default, this one alone.

    Attributes:
        rank: This process's number; 0 writes to the run's folder.
        size: How many there are.
        device: Where this process trains.
    """

    rank: int = 0
    size: int = 1
    device: torch.device = torch.device("cpu")  # noqa: RUF009 - it is immutable

    @classmethod
    def join(cls, device_name: str) -> Self:
        """Joins the processes that torchrun started; without torchrun, a group of this process alone.

        Raises:
            ValueError: There are fewer GPUs than processes.
        """
        size = count_processes()
        device = find_device(device_name)
        if size == 1:
            return cls(device=device)
        if device.type == "cuda":
            device = _own_gpu()
            torch.cuda.set_device(device)
        # Its functions have the group as a default argument. Imported later, by torch's compiler, they would keep the
        # group alive after `close`, and its threads, which then sometimes abort the process when Python exits.
        import_module("torch.distributed.nn.functional")
        backend = "cpu:gloo,cuda:nccl" if device.type == "cuda" else "gloo"
        distributed.init_process_group(backend, timeout=TIMEOUT)
        return cls(distributed.get_rank(), size, device)

    def close(self) -> None:
        """Leaves the group, and ends its threads."""
        if self.size > 1:
            distributed.destroy_process_group()

    @property
    def is_first(self) -> bool:
        """Whether this is process 0."""
        return self.rank == 0

    # ------------------------------------------------------------ agreement

    def broadcast(self, value: Any) -> Any:
        """The value that process 0 has."""
        if self.size == 1:
            return value
        values = [value]
        distributed.broadcast_object_list(values, src=0, device=torch.device("cpu"))
        return values[0]

    @contextlib.contextmanager
    def first_alone(self) -> Iterator[None]:
        """Within, process 0 comes first, and the others when it is done."""
        if not self.is_first:
            self.broadcast(None)
        yield
        if self.is_first:
            self.broadcast(None)

    @torch.no_grad()
    def broadcast_tensors(self, tensors: list[Tensor]) -> None:
        """Gives all processes the tensors of process 0."""
        if self.size > 1:
            for tensor in tensors:
                distributed.broadcast(tensor, src=0)

    # ------------------------------------------------------------ lanes

    def own_lanes(self, lanes: int, rank: int | None = None) -> slice:
        """The lanes of each batch that a process learns from; default: this one.

        Raises:
            ValueError: There are fewer lanes than processes.
        """
        if lanes < self.size:
            raise ValueError(f"a batch of {lanes} lanes cannot be divided among {self.size} processes")
        rank = self.rank if rank is None else rank
        return slice(lanes * rank // self.size, lanes * (rank + 1) // self.size)

    @torch.no_grad()
    def gather_lanes(self, state: Any) -> None:
        """Completes a recurrent state, (N, ...), of which each process has updated its own lanes."""
        if self.size == 1:
            return
        for tensor in tree_leaves(state):
            for rank in range(self.size):
                lanes = tensor[self.own_lanes(len(tensor), rank)].contiguous()
                distributed.broadcast(lanes, src=rank)
                tensor[self.own_lanes(len(tensor), rank)] = lanes

    # ------------------------------------------------------------ gradients

    @torch.no_grad()
    def add_gradients(self, model: nn.Module, metrics: Tensor) -> Tensor:
        """Sums gradients over all processes, in place; returns the sum of the metrics."""
        if self.size == 1:
            return metrics
        gradients = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        parts = [*gradients, metrics]
        summed = torch.cat([part.flatten() for part in parts])
        distributed.all_reduce(summed)
        *sums, total = summed.split([part.numel() for part in parts])
        for gradient, each in zip(gradients, sums, strict=True):
            gradient.copy_(each.view_as(gradient))
        return total

    def whole_batch_norm(self) -> contextlib.AbstractContextManager[object]:
        """Within, batch normalization in training uses the statistics of all processes' lanes."""
        return contextlib.nullcontext() if self.size == 1 else _WholeBatchNorm(self)


def count_processes() -> int:
    """How many processes torchrun started; 1 without it."""
    return int(os.environ["WORLD_SIZE"]) if distributed.is_torchelastic_launched() else 1


def _own_gpu() -> torch.device:
    number = int(os.environ["LOCAL_RANK"])
    processes = int(os.environ["LOCAL_WORLD_SIZE"])
    if processes > torch.cuda.device_count():
        raise ValueError(
            f"torchrun started {processes} processes, but this machine has {torch.cuda.device_count()} GPU(s); pass "
            f"--nproc-per-node {torch.cuda.device_count()}, or --device cpu"
        )
    return torch.device("cuda", number)


# ------------------------------------------------------------ batch normalization


class _WholeBatchNorm(TorchFunctionMode):
    """Replaces `functional.batch_norm`, which all layers call; torch's own SyncBatchNorm works on GPUs only."""

    def __init__(self, group: ProcessGroup) -> None:
        super().__init__()
        self.group = group

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.batch_norm:
            return self.batch_norm(*args, **kwargs or {})
        return func(*args, **kwargs or {})

    def batch_norm(
        self,
        x: Tensor,
        running_mean: Tensor | None,
        running_var: Tensor | None,
        weight: Tensor | None = None,
        bias: Tensor | None = None,
        training: bool = False,
        momentum: float = 0.1,
        eps: float = 1e-5,
    ) -> Tensor:
        """`functional.batch_norm` over the lanes of all processes."""
        if not training:
            return functional.batch_norm(x, running_mean, running_var, weight, bias, False, momentum, eps)
        mean, var, count = self.statistics(x.float())
        with torch.no_grad():
            if running_mean is not None:
                running_mean.lerp_(mean, momentum)
            if running_var is not None:
                running_var.lerp_(var * count / (count - 1), momentum)
        scale = torch.rsqrt(var + eps) * (1.0 if weight is None else weight)
        shift = -mean * scale + (0.0 if bias is None else bias)
        shape = [1, -1] + [1] * (x.ndim - 2)
        return (x.float() * scale.view(shape) + shift.view(shape)).to(x.dtype)

    def statistics(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Mean and population variance of each channel of (B, C, ...), and the number of values, over all processes."""
        dims = [0, *range(2, x.ndim)]
        var, mean = torch.var_mean(x, dims, correction=0)
        count = torch.full_like(mean, x.numel() / len(mean))
        # Each process fills its own row; the sum, through which gradients flow back to all of them, has all rows.
        row = torch.stack([count, mean, var])
        before = row.new_zeros(self.group.rank, *row.shape)
        after = row.new_zeros(self.group.size - self.group.rank - 1, *row.shape)
        counts, means, variances = _differentiable_sum(torch.cat([before, row[None], after])).unbind(1)
        share = counts / counts.sum(0)
        mean = (share * means).sum(0)
        var = (share * (variances + (means - mean) ** 2)).sum(0)
        return mean, var, counts.sum(0)


class _Sum(torch.autograd.Function):
    """The sum over all processes, whose gradient is the sum of theirs."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        x = x.clone()
        distributed.all_reduce(x)
        return x

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # pyright: ignore[reportIncompatibleMethodOverride]
        gradient = gradient.clone()
        distributed.all_reduce(gradient)
        return gradient


def _differentiable_sum(x: Tensor) -> Tensor:
    return _Sum.apply(x)  # pyright: ignore[reportReturnType]
