"""Computing in bf16 while the weights that learn stay in float32."""

from copy import deepcopy
from typing import Any

import torch
from torch import Tensor, nn

from babyai.agents.device import Precision
from babyai.agents.language import AttentiveReader, SentenceReader
from babyai.agents.model import Model

# Statistics need float32, and recurrent cells that read are small and gain nothing.
KEPT = (nn.BatchNorm2d, nn.GRU)


class Working:
    """A model as it computes, beside the model as it is kept.

    In float32 they are one. In bf16, `model` has weights of its own in that precision and shares norms and readers with
    the kept one; `refresh` follows the kept weights, `hand_back` gives them the gradients.

    Args:
        kept: The model in float32, on its device.
        precision: "float32" or "bf16"; a model of one's own computes in float32.
    """

    def __init__(self, kept: nn.Module, precision: Precision = "float32") -> None:
        self.kept = kept
        if precision == "float32" or not isinstance(kept, Model):
            self.model, self._pairs = kept, []
            return
        shared = [module for module in kept.modules() if isinstance(module, KEPT)]
        shared += [module.words for module in kept.modules() if isinstance(module, SentenceReader | AttentiveReader)]
        # What a deep copy finds in its memory is not copied.
        self.model = deepcopy(kept, {id(module): module for module in shared})
        own = {id(parameter) for parameter in kept.parameters()}
        pairs = zip(self.model.parameters(), kept.parameters(), strict=True)
        self._pairs = [(working, parameter) for working, parameter in pairs if id(working) not in own]
        for working, _ in self._pairs:
            working.data = working.data.bfloat16()

    @torch.no_grad()
    def refresh(self) -> None:
        """Brings the weights that compute up to date."""
        _copy_all([working for working, _ in self._pairs], [kept for _, kept in self._pairs])

    @torch.no_grad()
    def hand_back(self) -> None:
        """Gives the gradients to the weights that are kept."""
        # A part that the loss does not use has no gradient: the critic, in imitation.
        used = [(working.grad, kept) for working, kept in self._pairs if working.grad is not None]
        for _, kept in used:
            if kept.grad is None:
                kept.grad = torch.empty_like(kept)
        _copy_all([kept.grad for _, kept in used], [gradient for gradient, _ in used])

    def forget_gradients(self) -> None:
        """Clears all gradients."""
        self.model.zero_grad()
        self.kept.zero_grad()

    def tensors(self) -> list[Tensor]:
        """The weights that are in bf16."""
        return [working for working, _ in self._pairs]


def _copy_all(places: list[Any], values: list[Any]) -> None:
    """Copies many tensors at once, changing precision on the way."""
    if places:
        torch._foreach_copy_(places, values)  # pyright: ignore[reportPrivateImportUsage]
