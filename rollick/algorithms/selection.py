"""Choosing the largest or smallest entries, ties always by position."""

from __future__ import annotations

import torch
from torch import Tensor


def largest(values: Tensor, count: int) -> Tensor:
    """bool[M]: the `count` largest entries; of equal ones the earlier. [1, 3, 3, 2], 1 → [False, True, False, False]"""
    chosen = torch.zeros_like(values, dtype=torch.bool)
    chosen[torch.argsort(values, descending=True, stable=True)[:count]] = True
    return chosen


def smallest(values: Tensor, count: int) -> Tensor:
    """bool[M]: the `count` smallest entries; of equal ones the earlier."""
    return largest(-values, count)


def share(fraction: float, total: int, *, at_least: int = 0) -> int:
    """floor(fraction·total), at least `at_least`, at most `total`. A rounding of the product does not lose one:
    0.29·100 = 28.999… counts as 29."""
    return min(max(int(fraction * total + 1e-9), at_least), total)
