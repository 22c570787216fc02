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
