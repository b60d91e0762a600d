"""A transformer over packed sequences: of different lengths, laid end to end without padding."""

import math
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from babyai.agents.compilation import compilable_dynamic

try:
    from babyai.agents.map.packed_attention import attend_packed
except ImportError:  # Triton comes with torch for GPUs.
    attend_packed = None

# The kernels are tested with these.
HEAD_DIMS = (32, 64)
# Rows of which GELU is computed at once on a CPU.
GELU_ROWS = 64


class Transformer(nn.ModuleList):
    """Pre-norm layers over packed sequences; the last one only reads out the first token of each.

    Args:
        dim: Width.
        heads: Attention heads.
        layers: Number of layers.
    """

    def __init__(self, dim: int, heads: int, layers: int) -> None:
        super().__init__([*(Layer(dim, heads) for _ in range(layers - 1)), ReadoutLayer(dim, heads)])

    def forward(self, hidden: Tensor, ends: Tensor, longest: int) -> tuple[Tensor, Tensor]:
        """All tokens before the last layer, (T, dim), and the first of each sequence after it, (B, dim).

        Args:
            hidden: (T, dim).
            ends: (B + 1,) int32, where sequences end.
            longest: No sequence is longer.
        """
        layers: list[Any] = list(self)
        parts = layers[0].project(hidden)
        for layer, following in pairwise(layers):
            attended = attend(*parts, ends=ends, longest=longest)
            hidden, parts = layer.finish_and_project(hidden, attended, following)
        readout = layers[-1]
        first = hidden.index_select(0, ends[:-1])
        attended = attend_from_first(readout.query(first), *parts, ends=ends, longest=longest)
        return hidden, readout.finish(first, attended)


class Layer(nn.Module):
    """The weights of a layer, and what it does before and after attention."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    @compilable_dynamic
    def project(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """Query, key and value, (T, heads, dim of a head) each."""
        return self._project(hidden, slice(None))

    def _project(self, hidden: Tensor, which: slice) -> tuple[Tensor, ...]:
        # A product for each: slices of one would be put together again in the backward pass, kernel by kernel.
        normed = self.norm1(hidden)
        parts = zip(self.qkv.weight.chunk(3)[which], self.qkv.bias.chunk(3)[which], strict=True)
        return tuple(functional.linear(normed, *part).view(len(hidden), self.heads, -1) for part in parts)

    @compilable_dynamic
    def finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        """The layer's output, (T, dim)."""
        hidden = hidden + self.out(attended.flatten(1))
        return hidden + self.down(linear_gelu(self.norm2(hidden), self.up))

    @compilable_dynamic
    def finish_and_project(
        self, hidden: Tensor, attended: Tensor, following: "Layer"
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        """The layer's output, and what the next layer projects it to; compiled as one, which saves kernels."""
        hidden = self.finish(hidden, attended)
        return hidden, following.project(hidden)


class ReadoutLayer(Layer):
    """The last layer: only the first token of each sequence attends to the others, which are not needed any more."""

    @compilable_dynamic
    def project(self, hidden: Tensor) -> tuple[Tensor, ...]:
        """Key and value, (T, heads, dim of a head) each."""
        return self._project(hidden, slice(1, None))

    @compilable_dynamic
    def query(self, first: Tensor) -> Tensor:
        """(B, heads, dim of a head); first: (B, dim), the first token of each sequence."""
        (query,) = self._project(first, slice(1))
        return query


def linear_gelu(x: Tensor, linear: nn.Linear) -> Tensor:
    """GELU (tanh approximation) of a linear map; without gradients, a GPU computes both in one kernel."""
    if torch.is_grad_enabled():
        return functional.gelu(linear(x), approximate="tanh")
    if x.is_cuda:
        return torch.ops.aten._addmm_activation(linear.bias, x, linear.weight.t(), use_gelu=True)
    return gelu_on_cpu(linear(x))


def gelu_on_cpu(x: Tensor) -> Tensor:
    """GELU with the tanh approximation, without gradients.

    It is computed from the sigmoid, since (1 + tanh u) / 2 is the sigmoid of 2u: with torch's tanh it takes nearly
    twice the time, more than the matrix product before it.
    """
    scale = math.sqrt(8 / math.pi)
    out = torch.empty_like(x)
    # In parts: intermediate results then stay in the cache, and the memory for them is not allocated again each time.
    for part, destination in zip(x.split(GELU_ROWS), out.split(GELU_ROWS), strict=True):
        y = part.float()
        gate = (y * y).mul_(0.044715 * scale).add_(scale).mul_(y).sigmoid_()
        destination.copy_(gate.mul_(y))
    return out


def attend(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, longest: int) -> Tensor:
    """Attention within each packed sequence: (T, heads, dim of a head)."""
    if attend_packed is not None and has_kernel(query):
        return attend_packed(query, key, value, ends, ends)
    if query.is_cpu:
        return attend_one_by_one(query, key, value, ends, ends)
    return attend_padded(query, key, value, ends, longest)


def attend_from_first(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, longest: int) -> Tensor:
    """Attention of one query per packed sequence: (B, heads, dim of a head)."""
    query_ends = torch.arange(len(ends), dtype=ends.dtype, device=ends.device)
    if attend_packed is not None and has_kernel(query):
        return attend_packed(query, key, value, query_ends, ends)
    if query.is_cpu:
        return attend_one_by_one(query, key, value, query_ends, ends)
    return attend_first_padded(query, key, value, ends, longest)


def has_kernel(query: Tensor) -> bool:
    """Whether there is a kernel for packed sequences with heads of this kind."""
    return query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and query.shape[2] in HEAD_DIMS


def attend_one_by_one(query: Tensor, key: Tensor, value: Tensor, query_ends: Tensor, ends: Tensor) -> Tensor:
    """Attention within each sequence, one after the other: on a CPU, that takes less than half the time of padding."""
    lengths = ends.diff().tolist()
    queries = query.transpose(0, 1)[None].split(query_ends.diff().tolist(), 2)
    keys, values = (part.transpose(0, 1)[None].split(lengths, 2) for part in (key, value))
    attended = [functional.scaled_dot_product_attention(*parts) for parts in zip(queries, keys, values, strict=True)]
    return torch.cat(attended, 2)[0].transpose(0, 1)


def attend_padded(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, longest: int) -> Tensor:
    """`attend` for any device and dtype, with padding; a CUDA graph can capture it."""
    index, present = _pad(ends, longest)
    padded = [part[index].transpose(1, 2) for part in (query, key, value)]
    attended = functional.scaled_dot_product_attention(*padded, attn_mask=present[:, None, None, :])
    # Not `[present]`: how many there are must be known without asking the device, which a CUDA graph does not allow.
    token = torch.arange(len(query), device=ends.device)
    sequence = torch.searchsorted(ends[1:], token, right=True)
    return attended.transpose(1, 2)[sequence, token - ends[sequence]]


def attend_first_padded(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, longest: int) -> Tensor:
    """`attend_from_first` for any device and dtype, with padding."""
    index, present = _pad(ends, longest)
    padded = [part[index].transpose(1, 2) for part in (key, value)]
    mask = present[:, None, None, :]
    return functional.scaled_dot_product_attention(query[:, :, None], *padded, attn_mask=mask)[:, :, 0]


def _pad(ends: Tensor, longest: int) -> tuple[Tensor, Tensor]:
    """Where the tokens of padded sequences are, (B, longest), and which of them exist."""
    steps = torch.arange(longest, device=ends.device)
    present = steps < ends.diff()[:, None]
    return torch.where(present, ends[:-1, None] + steps, 0), present
