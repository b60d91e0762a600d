"""Random batches and recurrent states, and the gradients of a simple loss."""

from dataclasses import fields, replace
from typing import Any

import torch
from torch import Tensor, nn

from babyai.agents.film_lstm.model import FilmLSTM
from babyai.batch import Batch

T = 6
N = 4
NUM_MISSIONS = 7
NUM_WORDS = 9


def random_batch(pixels: bool = False, seed: int = 0) -> Batch:
    """T steps of N lanes as tensors; missions have different lengths, and some occur more than once."""
    generator = torch.Generator().manual_seed(seed)
    image_shape, image_values = ((56, 56, 3), 256) if pixels else ((7, 7, 3), 6)
    missions = torch.randint(1, 33, (NUM_MISSIONS, NUM_WORDS), generator=generator).to(torch.uint8)
    missions[:, 5:] *= torch.rand(NUM_MISSIONS, 1, generator=generator) < 0.5
    starts = torch.rand(T, N, generator=generator) < 0.3
    # An episode starts at the first step, one at the last, and one lane continues throughout.
    starts[0, 0] = True
    starts[-1, 1] = True
    starts[:, 3] = False
    return Batch(
        images=torch.randint(0, image_values, (T, N, *image_shape), generator=generator).to(torch.uint8),
        directions=torch.randint(0, 4, (T, N), generator=generator),
        last_actions=torch.randint(-1, 7, (T, N), generator=generator),
        missions=missions,
        mission_index=torch.randint(0, NUM_MISSIONS, (T, N), generator=generator).int(),
        starts=starts,
    )


def random_state(model: FilmLSTM, dtype: torch.dtype = torch.float32) -> Any:
    """A recurrent state of N lanes that is not the initial one."""
    return tuple(torch.randn(part.shape, dtype=dtype) for part in model.initial_state(N))


def first_steps(batch: Batch, steps: int) -> Batch:
    """The first steps of a batch."""
    names = [field.name for field in fields(batch) if field.name not in ("missions", "state")]
    return replace(batch, **{name: array[:steps] for name in names if (array := getattr(batch, name)) is not None})


def gradients(model: nn.Module, logits: Tensor, values: Tensor) -> dict[str, Tensor]:
    """The gradient of each parameter that a simple loss depends on."""
    model.zero_grad()
    target = torch.linspace(-1, 1, logits.numel()).view_as(logits)
    ((logits - target).square().mean() + values.square().mean()).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.grad is not None}
