"""Attention within short packed sequences on a GPU: Triton kernels.

Half of the frames have fewer than 50 tokens, and the tiles of FlashAttention are 128 x 128. These are 64 x 64, and each
program has one head of one sequence: most have a single tile, of which everything is read and computed once.
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


def attend_packed(query: Tensor, key: Tensor, value: Tensor, query_ends: Tensor, ends: Tensor) -> Tensor:
    """Attention within each sequence: (Q, heads, dim of a head), like the queries.

    Args:
        query: (Q, heads, dim of a head); dims are powers of two, at least 16.
        key: (T, heads, dim of a head).
        value: Like `key`.
        query_ends: (S + 1,) int32, where the queries of sequences end.
        ends: (S + 1,) int32, where their keys and values end; each sequence must have at least one.
    """
    return _Attention.apply(query, key, value, query_ends, ends)  # pyright: ignore[reportReturnType]


class _Attention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *inputs: Any) -> Tensor:
        query, key, value, query_ends, ends = (tensor.contiguous() for tensor in inputs)
        out = torch.empty_like(query)
        log_sums = torch.empty(query.shape[:2], dtype=torch.float32, device=query.device)
        arrays = (query, key, value, out, log_sums, query_ends, ends)
        _forward[_grid(query, ends)](*arrays, **_constants(query))
        ctx.save_for_backward(*arrays)
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        query, key, value, out, log_sums, query_ends, ends = ctx.saved_tensors
        d_out = gradients[0].contiguous()
        d_query, d_key, d_value = (torch.empty_like(tensor) for tensor in (query, key, value))
        arrays = (query, key, value, out, log_sums, d_out, d_query, d_key, d_value, query_ends, ends)
        _backward[_grid(query, ends)](*arrays, **_constants(query))
        return d_query, d_key, d_value, None, None


def _grid(query: Tensor, ends: Tensor) -> tuple[int, int]:
    return len(ends) - 1, query.shape[1]


def _constants(query: Tensor) -> dict[str, Any]:
    _, heads, dim = query.shape
    # num_stages=1: the loops are too short for software pipelining, which needs more shared memory.
    return {"HEADS": heads, "DIM": dim, "BLOCK": BLOCK, "SCALE": dim**-0.5, "num_stages": 1}


@triton.jit
def _forward(
    query, key, value, out, log_sums, query_ends, ends,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    first_query, last_query = _bounds(query_ends)
    first, last = _bounds(ends)
    for query_start in range(first_query, last_query, BLOCK):
        rows, is_row, queries = _block(query_start, last_query, HEADS, DIM, BLOCK)
        q = tl.load(query + queries, mask=is_row, other=0.0)
        largest = tl.full([BLOCK], float("-inf"), tl.float32)
        total = tl.zeros([BLOCK], tl.float32)
        mean = tl.zeros([BLOCK, DIM], tl.float32)
        for start in range(first, last, BLOCK):
            _, is_key, keys = _block(start, last, HEADS, DIM, BLOCK)
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
        tl.store(log_sums + rows, (largest + tl.log2(total))[:, None], mask=is_row)


@triton.jit
def _backward(
    query, key, value, out, log_sums, d_out, d_query, d_key, d_value, query_ends, ends,
    HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr, SCALE: tl.constexpr,
):  # fmt: skip
    first_query, last_query = _bounds(query_ends)
    first, last = _bounds(ends)
    for start in range(first, last, BLOCK):
        _, is_key, keys = _block(start, last, HEADS, DIM, BLOCK)
        k = tl.load(key + keys, mask=is_key, other=0.0)
        v = tl.load(value + keys, mask=is_key, other=0.0)
        d_k = tl.zeros([BLOCK, DIM], tl.float32)
        d_v = tl.zeros([BLOCK, DIM], tl.float32)
        for query_start in range(first_query, last_query, BLOCK):
            rows, is_row, queries = _block(query_start, last_query, HEADS, DIM, BLOCK)
            q = tl.load(query + queries, mask=is_row, other=0.0)
            o = tl.load(out + queries, mask=is_row, other=0.0)
            d_o = tl.load(d_out + queries, mask=is_row, other=0.0)
            log_sum = tl.load(log_sums + rows, mask=is_row, other=0.0)
            weights = tl.exp2(tl.dot(q, tl.trans(k)) * (SCALE * LOG2_E) - log_sum)
            weights = tl.where(is_row & tl.trans(is_key), weights, 0.0)
            # The gradient of a score is its weight times (d_out . value - d_out . out).
            product = tl.sum(o.to(tl.float32) * d_o.to(tl.float32), 1)[:, None]
            d_scores = (weights * (tl.dot(d_o, tl.trans(v)) - product) * SCALE).to(q.dtype)
            d_v += tl.dot(tl.trans(weights.to(q.dtype)), d_o)
            d_k += tl.dot(tl.trans(d_scores), q)
            d_q = tl.dot(d_scores, k)
            if start > first:
                # The sum over the previous blocks of keys, which is rounded after each.
                d_q += tl.load(d_query + queries, mask=is_row, other=0.0).to(tl.float32)
            tl.store(d_query + queries, d_q.to(q.dtype), mask=is_row)
        tl.store(d_key + keys, d_k.to(k.dtype), mask=is_key)
        tl.store(d_value + keys, d_v.to(v.dtype), mask=is_key)
        # Before the next block of keys, all threads of this program must see what has been stored to d_query.
        tl.debug_barrier()


@triton.jit
def _bounds(ends):
    """Where this program's sequence begins and ends."""
    sequence = tl.program_id(0)
    return tl.load(ends + sequence), tl.load(ends + sequence + 1)


@triton.jit
def _block(start, last, HEADS: tl.constexpr, DIM: tl.constexpr, BLOCK: tl.constexpr):
    """The rows of a block, by token and head: indices and which exist, (BLOCK, 1), and where they are, (BLOCK, DIM)."""
    tokens = start + tl.arange(0, BLOCK)
    rows = (tokens.to(tl.int64) * HEADS + tl.program_id(1))[:, None]
    return rows, (tokens < last)[:, None], rows * DIM + tl.arange(0, DIM)[None, :]
