"""An auxiliary loss: predict where the teacher's advice leads.

An action is a few bits, and says little about why it is right. The teacher also knows which cell it is heading for and
along which path. Predicting both from the map teaches the network what a mission refers to, and to plan paths.
"""

import torch
from torch import Tensor
from torch.nn import functional

from babyai.agents.map.tokens import CELLS, GRID, NUM_PATCHES, PATCH, Tokens
from babyai.expert.teacher_path import WINDOW


def path_losses(goal: Tensor, path: Tensor, tokens: Tokens, paths: Tensor) -> tuple[Tensor, Tensor]:
    """Cross-entropy of the goal among all seen cells, and binary cross-entropy of the path per cell on it.

    Args:
        goal: (P, 9) logits of the cells of the patches.
        path: (P, 9) logits.
        tokens: The tokens of the frames.
        paths: (B, 32) from `ExpertBatch.advise_and_trace`, as int64.
    """
    cells = find_cells(tokens, paths)
    is_target = cells[:, 0] >= 0
    chosen = goal.flatten()[cells[:, 0].clamp(min=0)]
    losses = (_log_sum_exp(goal, tokens.patch_frame, len(paths)) - chosen) * is_target
    goal_loss = losses.sum() / is_target.sum().clamp(min=1)
    nowhere = path.numel()  # where cells go that are not on the map
    on_path = torch.zeros(nowhere + 1, device=path.device)
    on_path.index_fill_(0, torch.where(cells >= 0, cells, nowhere).flatten(), 1.0)
    on_path = on_path[:-1].view_as(path)
    entropy = functional.binary_cross_entropy_with_logits(path, on_path, reduction="none")
    is_real = (tokens.patch_frame < len(paths))[:, None]
    return goal_loss, (entropy * is_real).sum() / on_path.sum().clamp(min=1.0)


def find_cells(tokens: Tokens, paths: Tensor) -> Tensor:
    """(B, 32) indices into the flattened cells of all patches; -1 where there is none.

    The window of `advise_and_trace` is the grid of patches.
    """
    up = paths // WINDOW
    across = paths % WINDOW
    frame = torch.arange(len(paths), device=paths.device)[:, None]
    row_of = paths.new_full(((len(paths) + 1) * NUM_PATCHES,), -1)  # one more for padding
    rows = torch.arange(len(tokens.patch_frame), device=paths.device)
    row_of[tokens.patch_frame * NUM_PATCHES + tokens.patch_index] = rows
    row = row_of[frame * NUM_PATCHES + (up // PATCH * GRID + across // PATCH).clamp(min=0)]
    cell = up % PATCH * PATCH + across % PATCH
    return torch.where((paths >= 0) & (row >= 0), row * CELLS + cell, -1)


def _log_sum_exp(logits: Tensor, frame: Tensor, count: int) -> Tensor:
    """(count,) of all cells of each frame; logits: (P, 9), frame: (P,), `count` for padding."""
    largest = logits.detach().new_zeros(count + 1).scatter_reduce(0, frame, logits.detach().amax(1), "amax")
    sums = (logits - largest[frame, None]).exp().sum(1)
    total = logits.new_zeros(count + 1).index_add(0, frame, sums)
    return (largest + total.clamp(min=1e-30).log())[:count]
