"""A transformer over packed sequences: of different lengths, laid end to end without padding."""

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


class Layer(nn.Module):
    """A pre-norm transformer layer over packed sequences."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1 = nn.LayerNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.out = nn.Linear(dim, dim)
        self.norm2 = nn.LayerNorm(dim)
        self.up = nn.Linear(dim, 4 * dim)
        self.down = nn.Linear(4 * dim, dim)

    def forward(self, hidden: Tensor, ends: Tensor, longest: int) -> Tensor:
        """(T, dim); ends: (B + 1,) where sequences end."""
        query, key, value = self._project(hidden)
        return self._finish(hidden, attend(query, key, value, ends, longest))

    @compilable_dynamic
    def _project(self, hidden: Tensor) -> tuple[Tensor, ...]:
        # Three products: slices of one would be put together again in the backward pass, kernel by kernel.
        normed = self.norm1(hidden)
        parts = zip(self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
        return tuple(functional.linear(normed, *part).view(len(hidden), self.heads, -1) for part in parts)

    @compilable_dynamic
    def _finish(self, hidden: Tensor, attended: Tensor) -> Tensor:
        hidden = hidden + self.out(attended.flatten(1))
        return hidden + self.down(functional.gelu(self.up(self.norm2(hidden)), approximate="tanh"))


class ReadoutLayer(Layer):
    """The last layer: only the first token of each sequence attends to the others, which are not needed any more."""

    def forward(self, hidden: Tensor, ends: Tensor, longest: int) -> Tensor:
        """(B, dim); hidden: (T, dim)."""
        first = hidden[ends[:-1].long()]
        query, key, value = self._project_first(first, hidden)
        return self._finish(first, attend_from_first(query, key, value, ends, longest))

    @compilable_dynamic
    def _project_first(self, first: Tensor, hidden: Tensor) -> tuple[Tensor, ...]:
        inputs = (self.norm1(first), *[self.norm1(hidden)] * 2)
        parts = zip(inputs, self.qkv.weight.chunk(3), self.qkv.bias.chunk(3), strict=True)
        return tuple(functional.linear(*part).view(len(part[0]), self.heads, -1) for part in parts)


def attend(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, longest: int) -> Tensor:
    """Attention within each packed sequence: (T, heads, dim of a head)."""
    if attend_packed is not None and has_kernel(query):
        return attend_packed(query, key, value, ends, ends, longest, longest)
    return attend_padded(query, key, value, ends, longest)


def attend_from_first(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, longest: int) -> Tensor:
    """Attention of one query per packed sequence: (B, heads, dim of a head)."""
    if attend_packed is not None and has_kernel(query):
        query_ends = torch.arange(len(ends), dtype=ends.dtype, device=ends.device)
        return attend_packed(query, key, value, query_ends, ends, 1, longest)
    return attend_first_padded(query, key, value, ends, longest)


def has_kernel(query: Tensor) -> bool:
    """Whether there is a kernel for packed sequences with heads of this kind."""
    return query.is_cuda and query.dtype in (torch.bfloat16, torch.float16) and query.shape[2] in HEAD_DIMS


def attend_padded(query: Tensor, key: Tensor, value: Tensor, ends: Tensor, longest: int) -> Tensor:
    """`attend` for any device and dtype, with padding."""
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
