"""Mixed precision: compute in bf16 while the weights that are optimized stay in float32."""

from contextlib import AbstractContextManager
from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from babyai.agents.device import Precision


class MixedPrecision:
    """A model's float32 weights, and the model that computes.

    In float32 the two are one. In bf16 there are two ways. A policy that has `float32_modules()` is copied: `compute`
    has weights of its own in bf16, except for those modules, which it shares; `update_weights` casts the float32
    weights to it, `copy_gradients` casts its gradients back. Any other policy runs under `torch.autocast`.

    Args:
        model: The model in float32, on its device.
        precision: "float32" or "bf16".

    Attributes:
        model: The model with the float32 weights.
        compute: The model to call, inside `autocast()`.
    """

    def __init__(self, model: nn.Module, precision: Precision = "float32") -> None:
        self.model = model
        self.compute: Any = model
        self._pairs: list[tuple[nn.Parameter, nn.Parameter]] = []
        copied = precision == "bf16" and hasattr(model, "float32_modules")
        self._autocast = precision == "bf16" and not copied
        self._device_type = next((parameter.device.type for parameter in model.parameters()), "cpu")
        if copied:
            self._copy_model(model.float32_modules())  # pyright: ignore[reportCallIssue]

    def _copy_model(self, shared: list[nn.Module]) -> None:
        # A deep copy takes what it finds in its memo instead of copying it.
        self.compute = deepcopy(self.model, {id(module): module for module in shared})
        own = {id(parameter) for parameter in self.model.parameters()}
        pairs = zip(self.compute.parameters(), self.model.parameters(), strict=True)
        self._pairs = [(half, full) for half, full in pairs if id(half) not in own]
        for half, _ in self._pairs:
            half.data = half.data.bfloat16()

    def autocast(self) -> AbstractContextManager[object]:
        """The context in which to call `compute`."""
        # A cache of casts would outlive the CUDA graph that made them.
        return torch.autocast(self._device_type, torch.bfloat16, enabled=self._autocast, cache_enabled=False)

    @torch.no_grad()
    def update_weights(self) -> None:
        """Casts the float32 weights to the copy that computes, which is put in the same mode (training, evaluation)."""
        if self.compute is not self.model:
            for copied, module in zip(self.compute.modules(), self.model.modules(), strict=True):
                copied.training = module.training
        _copy_all([half for half, _ in self._pairs], [full for _, full in self._pairs])

    def backward(self, loss: Tensor) -> None:
        """Sets the gradients of the float32 weights."""
        self.compute.zero_grad()
        self.model.zero_grad()
        loss.backward()
        self.copy_gradients()

    @torch.no_grad()
    def copy_gradients(self) -> None:
        """Casts the gradients of the copy that computes to those of the float32 weights."""
        # A part that the loss does not use has no gradient: the critic, in imitation learning.
        used = [(half.grad, full) for half, full in self._pairs if half.grad is not None]
        for _, full in used:
            if full.grad is None:
                full.grad = torch.empty_like(full)
        _copy_all([full.grad for _, full in used], [gradient for gradient, _ in used])

    def half_weights(self) -> list[Tensor]:
        """The weights in bf16."""
        return [half for half, _ in self._pairs]


def _copy_all(targets: list[Any], sources: list[Any]) -> None:
    """Copies many tensors at once, casting them on the way."""
    if targets:
        torch._foreach_copy_(targets, sources)  # pyright: ignore[reportPrivateImportUsage]
