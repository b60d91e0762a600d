"""Attention within short packed sequences on a GPU: Triton kernels.

Half of the frames have fewer than 50 tokens, and the tiles of FlashAttention are 128 x 128. These are 64 x 64, and each
program has one head of one block of one sequence.
"""

# Triton comes with torch for GPUs, and kernels have no types.
# pyright: reportMissingImports=false, reportIndexIssue=false

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

BLOCK = 64
LOG2_E = tl.constexpr(1.4426950408889634)


def attend_packed(
    query: Tensor, key: Tensor, value: Tensor, query_ends: Tensor, ends: Tensor, longest_query: int, longest: int
) -> Tensor:
    """Attention within each sequence: (Q, heads, dim of a head), like the queries.

    Args:
        query: (Q, heads, dim of a head); dims are powers of two, at least 16.
        key: (T, heads, dim of a head).
        value: Like `key`.
        query_ends: (S + 1,) int32, where the queries of sequences end.
        ends: (S + 1,) int32, where their keys and values end.
        longest_query: No sequence has more queries.
        longest: No sequence has more keys.
    """
    return _Attention.apply(query, key, value, query_ends, ends, longest_query, longest)  # pyright: ignore[reportReturnType]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        *tensors, longest_query, longest = inputs
        query, key, value, query_ends, ends = (tensor.contiguous() for tensor in tensors)
        out = torch.empty_like(query)
        log_sums = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)
        arrays = (query, key, value, out, log_sums, query_ends, ends)
        _forward[_grid(query_ends, query, longest_query)](*arrays, **_constants(query))
        ctx.save_for_backward(*arrays)
        ctx.longest = longest_query, longest
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, value, out, log_sums, query_ends, ends = ctx.saved_tensors
        d_out = gradients[0].contiguous()
        d_query, d_key, d_value = (torch.empty_like(tensor) for tensor in (query, key, value))
        products = torch.empty_like(log_sums)
        arrays = (query, key, value, log_sums, d_out, products)
        constants = _constants(query)
        _backward_query[_grid(ends, query, ctx.longest[0])](*arrays, out, d_query, query_ends, ends, **constants)
        _backward_key[_grid(ends, query, ctx.longest[1])](*arrays, d_key, d_value, query_ends, ends, **constants)
        return d_query, d_key, d_value, None, None, None, None


def _grid(ends: Tensor, query: Tensor, longest: int) -> tuple[int, int, int]:
    return len(ends) - 1, query.shape[1], -(-longest // BLOCK)


def _constants(query: Tensor) -> dict[str, Any]:
    _, heads, dim = query.shape
    return {"HEADS": heads, "DIM": dim, "BLOCK": BLOCK, "SCALE": dim**-0.5}


@triton.jit
def _forward(
    query, key, value, out, log_sums, query_ends, ends,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    rows, is_row, queries, exists = _rows(query_ends, HEADS, DIM, BLOCK)
    first, last = _bounds(ends, exists)
    q = tl.load(query + queries, mask=is_row, other=0.0)
    largest = tl.full([BLOCK], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK], tl.float32)
    mean = tl.zeros([BLOCK, DIM], tl.float32)
    for start in range(first, last, BLOCK):
        is_key, keys = _block(start, last, HEADS, DIM, BLOCK)
        k = tl.load(key + keys, mask=is_key, other=0.0)
        v = tl.load(value + keys, mask=is_key, other=0.0)
        scores = tl.dot(q, tl.trans(k)) * (SCALE * LOG2_E)
        scores = tl.where(tl.trans(is_key), scores, float("-inf"))
        new_largest = tl.maximum(largest, tl.max(scores, 1))
        weights = tl.exp2(scores - new_largest[:, None])
        rescale = tl.exp2(largest - new_largest)
        total = total * rescale + tl.sum(weights, 1)
        mean = mean * rescale[:, None] + tl.dot(weights.to(v.dtype), v)
        largest = new_largest
    tl.store(out + queries, (mean / total[:, None]).to(q.dtype), mask=is_row)
    tl.store(log_sums + rows[:, None], (largest + tl.log2(total))[:, None], mask=is_row)


# The gradient of a score is its weight times (d_out . value - d_out . out); the first kernel leaves the last product of
# each row to the second.


@triton.jit
def _backward_query(
    query, key, value, log_sums, d_out, products, out, d_query, query_ends, ends,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    rows, is_row, queries, exists = _rows(query_ends, HEADS, DIM, BLOCK)
    first, last = _bounds(ends, exists)
    q = tl.load(query + queries, mask=is_row, other=0.0)
    d_o = tl.load(d_out + queries, mask=is_row, other=0.0)
    o = tl.load(out + queries, mask=is_row, other=0.0)
    product = tl.sum(o.to(tl.float32) * d_o.to(tl.float32), 1)[:, None]
    tl.store(products + rows[:, None], product, mask=is_row)
    log_sum = tl.load(log_sums + rows[:, None], mask=is_row, other=0.0)
    d_q = tl.zeros([BLOCK, DIM], tl.float32)
    for start in range(first, last, BLOCK):
        is_key, keys = _block(start, last, HEADS, DIM, BLOCK)
        k = tl.load(key + keys, mask=is_key, other=0.0)
        v = tl.load(value + keys, mask=is_key, other=0.0)
        weights = tl.exp2(tl.dot(q, tl.trans(k)) * (SCALE * LOG2_E) - log_sum)
        weights = tl.where(tl.trans(is_key), weights, 0.0)
        d_scores = weights * (tl.dot(d_o, tl.trans(v)) - product) * SCALE
        d_q += tl.dot(d_scores.to(k.dtype), k)
    tl.store(d_query + queries, d_q.to(q.dtype), mask=is_row)


@triton.jit
def _backward_key(
    query, key, value, log_sums, d_out, products, d_key, d_value, query_ends, ends,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    _, is_key, keys, exists = _rows(ends, HEADS, DIM, BLOCK)
    first, last = _bounds(query_ends, exists)
    k = tl.load(key + keys, mask=is_key, other=0.0)
    v = tl.load(value + keys, mask=is_key, other=0.0)
    d_k = tl.zeros([BLOCK, DIM], tl.float32)
    d_v = tl.zeros([BLOCK, DIM], tl.float32)
    for start in range(first, last, BLOCK):
        is_row, queries = _block(start, last, HEADS, DIM, BLOCK)
        rows = (start + tl.arange(0, BLOCK)) * HEADS + tl.program_id(1)
        q = tl.load(query + queries, mask=is_row, other=0.0)
        d_o = tl.load(d_out + queries, mask=is_row, other=0.0)
        product = tl.load(products + rows[:, None], mask=is_row, other=0.0)
        log_sum = tl.load(log_sums + rows[:, None], mask=is_row, other=0.0)
        weights = tl.exp2(tl.dot(q, tl.trans(k)) * (SCALE * LOG2_E) - log_sum)
        weights = tl.where(is_row, weights, 0.0)
        d_v += tl.dot(tl.trans(weights.to(v.dtype)), d_o)
        d_scores = weights * (tl.dot(d_o, tl.trans(v)) - product) * SCALE
        d_k += tl.dot(tl.trans(d_scores.to(q.dtype)), q)
    tl.store(d_key + keys, d_k.to(k.dtype), mask=is_key)
    tl.store(d_value + keys, d_v.to(v.dtype), mask=is_key)


@triton.jit
def _bounds(ends, exists):
    """Where this program's sequence begins and ends; it is empty if the program has nothing to do."""
    sequence = tl.program_id(0)
    first = tl.load(ends + sequence)
    return first, tl.where(exists, tl.load(ends + sequence + 1), first)


@triton.jit
def _block(start, last, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """Which rows of a block exist, (BLOCK, 1), and where they are, (BLOCK, DIM)."""
    rows = start + tl.arange(0, BLOCK)
    places = (rows.to(tl.int64) * HEADS + tl.program_id(1))[:, None] * DIM + tl.arange(0, DIM)[None, :]
    return (rows < last)[:, None], places


@triton.jit
def _rows(ends, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """This program's block: indices by token and head, which of them exist, where they are, and whether any exists."""
    first, last = _bounds(ends, True)
    start = first + tl.program_id(2) * BLOCK
    is_row, places = _block(start, last, HEADS, DIM, BLOCK)
    return (start + tl.arange(0, BLOCK)) * HEADS + tl.program_id(1), is_row, places, start < last
