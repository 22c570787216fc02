"""Sums, means, extremes and recursions over segments (rows, groups, turns) of a flat tensor, without loops."""

from __future__ import annotations

import torch
from torch import Tensor


def require_bool(name: str, mask: Tensor) -> Tensor:
    """The mask itself. Raises TypeError when it is not bool (an advantages tensor passed as a mask has the same
    shape and would go unnoticed)."""
    if mask.dtype != torch.bool:
        raise TypeError(f"{name} must be a bool tensor, got {mask.dtype}")
    return mask


def segment_sum(values: Tensor, index: Tensor, count: int) -> Tensor:
    """[count]: the sum of `values` over each segment; 0 for an empty one.

    values [1, 2, 4], index [0, 0, 2], count 3 → [3, 0, 4]
    """
    return values.new_zeros(count).index_add(0, index, values)


def segment_count(index: Tensor, count: int) -> Tensor:
    """int64[count]: the members of each segment."""
    return torch.bincount(index, minlength=count)


def segment_mean(values: Tensor, index: Tensor, count: int) -> Tensor:
    """[count]: the mean over each segment; 0 for an empty one."""
    members = segment_count(index, count).clamp(min=1)
    return segment_sum(values, index, count) / members.to(values.dtype)


def segment_max(values: Tensor, index: Tensor, count: int) -> Tensor:
    """[count]: the largest value of each segment; −inf for an empty one."""
    start = values.new_full((count,), -torch.inf)
    return start.scatter_reduce(0, index, values, "amax", include_self=True)


def segment_min(values: Tensor, index: Tensor, count: int) -> Tensor:
    """[count]: the smallest value of each segment; +inf for an empty one."""
    start = values.new_full((count,), torch.inf)
    return start.scatter_reduce(0, index, values, "amin", include_self=True)


def compact(keys: Tensor) -> tuple[Tensor, int]:
    """Arbitrary ids as indices 0..n−1 of their sorted unique values, and n.

    [7, 3, 7] → ([1, 0, 1], 2)
    """
    unique, index = torch.unique(keys, return_inverse=True)
    return index, len(unique)


def compact_pairs(first: Tensor, second: Tensor) -> tuple[Tensor, int]:
    """As `compact`, for pairs of ids. ([7, 7, 3], [1, 2, 1]) → ([1, 2, 0], 3)"""
    (left, _), (right, width) = compact(first), compact(second)
    return compact(left * width + right)


def segment_ends(segments: Tensor) -> Tensor:
    """bool[M]: the last token of each contiguous run of one segment. [0, 0, 2] → [False, True, True]"""
    ends = torch.ones_like(segments, dtype=torch.bool)
    ends[:-1] = segments[1:] != segments[:-1]
    return ends


def next_in_segment(values: Tensor, segments: Tensor) -> Tensor:
    """[M]: the value of the next token of the same segment; 0 after the last.

    values [1, 2, 4], segments [0, 0, 2] → [2, 0, 0]
    """
    shifted = torch.nn.functional.pad(values[1:], (0, 1))[: len(values)]
    return torch.where(segment_ends(segments), 0.0, shifted)


def reverse_scan(values: Tensor, decay: Tensor | float, segments: Tensor) -> Tensor:
    """[M]: y_t = x_t + d_t · y_{t+1} inside each contiguous segment, from its last token backwards.

    `decay` is a number or [M]; abs(decay) ≤ 1 keeps it stable for any length. Done by doubling: after k rounds each
    y covers 2^k tokens, so a row of 4096 tokens takes 12 rounds whatever the number of rows. NaN stays in its row.

    values [1, 2, 4], decay 0.5, segments [0, 0, 1] → [2, 2, 4]
    """
    if len(values) == 0:
        return values
    decay = torch.as_tensor(decay, dtype=values.dtype, device=values.device).expand_as(values)
    weight = torch.where(segment_ends(segments), 0.0, decay)
    longest, span = int(torch.bincount(segments).max()), 1
    while span < longest:
        later = torch.nn.functional.pad(values[span:], (0, span))
        values = values + torch.where(weight != 0, weight * later, 0.0)
        weight = weight * torch.nn.functional.pad(weight[span:], (0, span))
        span *= 2
    return values
