"""The gradient step that all algorithms share: unroll the policy, compute the loss, backpropagate, step Adam."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from babyai.agents.cuda_graph import CudaGraphFunction
from babyai.agents.device import Precision
from babyai.agents.policy import State, Unrolled, allows_cuda_graphs, unroll
from babyai.agents.precision import MixedPrecision
from babyai.batch import Batch
from babyai.training.distributed import ProcessGroup
from babyai.training.optimizer import make_adam, optimizer_state, set_learning_rate

BatchNorm = Literal["chunk", "step"]
# The loss of a policy's outputs on a batch, and (K,) metrics to be averaged.
Loss = Callable[[Unrolled, Batch], tuple[Tensor, Tensor]]


class Learner:
    """A policy and its optimizer.

    Args:
        policy: On its device already.
        loss: What is minimized.
        metrics: The names of the metrics that the loss returns.
        learning_rate: Adam's.
        max_grad_norm: Gradient clipping threshold; default: no clipping. The norm before clipping is a metric.
        batch_norm: What batch normalization averages over: all T steps of a batch ("chunk"), or each one ("step").
        precision: "float32", or "bf16" for mixed precision with weights in float32.
        cuda_graphs: Whether a GPU uses CUDA graphs and torch.compile.
        group: The processes that train the policy. Each one's loss and metrics are its part of the whole; default: one.
    """

    def __init__(
        self,
        policy: nn.Module,
        loss: Loss,
        metrics: Sequence[str],
        *,
        learning_rate: float,
        max_grad_norm: float | None = None,
        batch_norm: BatchNorm = "chunk",
        precision: Precision = "float32",
        cuda_graphs: bool = True,
        group: ProcessGroup | None = None,
    ) -> None:
        self.group = group or ProcessGroup()
        self.policy = policy
        self.loss = loss
        self.device = next(policy.parameters()).device
        self.mixed = MixedPrecision(policy, precision)
        self.optimizer = make_adam(policy, learning_rate)
        self.max_grad_norm = max_grad_norm
        self.batch_norm = batch_norm
        self.precision: Precision = precision
        self.cuda_graphs = cuda_graphs and allows_cuda_graphs(policy) and self.group.size == 1
        self._num_loss_metrics = len(metrics)
        self._names = [*metrics, *(["gradient_norm"] if max_grad_norm is not None else [])]
        # How many gradient steps since the last call of `metrics`, and the sums of their metrics.
        self.totals = torch.zeros(1 + len(self._names), dtype=torch.float64, device=self.device)

    def gradient_step(self, batch: Batch, state: State) -> State:
        """One step of Adam on a batch that continues from `state`; returns the state after the batch."""
        with self.mixed.autocast(), self.group.whole_batch_norm():
            unrolled = unroll(self.mixed.compute, batch, state, step_by_step=self.batch_norm == "step")
        loss, metrics = self.loss(unrolled, batch)
        if metrics.shape != (self._num_loss_metrics,):
            names = ", ".join(self._names[: self._num_loss_metrics])
            raise ValueError(f"the loss returned metrics of shape {tuple(metrics.shape)}, but these are named: {names}")
        self.mixed.backward(loss)
        metrics = self.group.add_gradients(self.policy, metrics)
        if self.max_grad_norm is not None:
            norm = nn.utils.clip_grad_norm_(self.policy.parameters(), self.max_grad_norm)
            metrics = torch.cat([metrics, norm[None]])
        self.optimizer.step()
        self.mixed.update_weights()
        with torch.no_grad():
            self.totals += torch.cat([torch.ones_like(metrics[:1]), metrics])
        return unrolled.state

    def graph(self, function: Callable[..., Any], mutated: Callable[[], Iterable[Tensor]]) -> CudaGraphFunction:
        """A function that makes gradient steps, replayed from a CUDA graph on a GPU.

        Args:
            function: Calls `gradient_step` once or more.
            mutated: The tensors that it changes in place besides the learner's own.
        """
        return CudaGraphFunction(
            function,
            self.device,
            lambda: [*self.mutated(), *mutated()],
            enabled=self.cuda_graphs,
            compiled=True,
            exact=self.precision == "float32",
        )

    def mutated(self) -> list[Tensor]:
        """The tensors that a gradient step changes in place."""
        model = self.mixed.model
        moments = optimizer_state(self.optimizer)
        return [*model.parameters(), *model.buffers(), *self.mixed.half_weights(), *moments, self.totals]

    def set_learning_rate(self, learning_rate: float) -> None:
        """Changes Adam's learning rate, also inside CUDA graphs."""
        set_learning_rate(self.optimizer, learning_rate)

    def metrics(self) -> dict[str, float]:
        """Means over the gradient steps since the last call; resets them, and waits for the device."""
        count, *sums = self.totals.tolist()
        self.totals.zero_()
        return {name: total / max(1.0, count) for name, total in zip(self._names, sums, strict=True)}
