"""Groups that teach something: difficulty bounds, spread (DAPO's dynamic sampling), uncertainty (StarPO-S)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.groups import group_statistics
from rollick.algorithms.selection import largest, share


def difficulty_keep(
    rewards: Tensor, groups: Tensor, valid: Tensor, *, difficulty_low: float = 0.0, difficulty_high: float = 1.0
) -> Tensor:
    """bool[R]: valid rows of groups with difficulty_low < mean reward < difficulty_high, both strict. A group of one
    row is kept."""
    statistics = group_statistics(rewards, groups, valid)
    single = statistics.count == 1
    keep = single | ((statistics.mean > difficulty_low) & (statistics.mean < difficulty_high))
    return valid & keep[statistics.index]


def spread_keep(rewards: Tensor, groups: Tensor, valid: Tensor) -> Tensor:
    """bool[R]: valid rows whose group teaches something (DAPO's dynamic sampling): rewards differ, or the group has
    one row only."""
    statistics = group_statistics(rewards, groups, valid)
    return valid & ((statistics.count == 1) | ~statistics.flat)[statistics.index]


def uncertainty_keep(
    rewards: Tensor,
    groups: Tensor,
    valid: Tensor,
    *,
    uncertainty_fraction: float = 0.25,
    uncertainty_keep_groups: Literal["highest", "lowest"] = "highest",
) -> Tensor:
    """bool[R]: valid rows of the floor(uncertainty_fraction·groups), at least one, groups of the highest (or
    lowest) unbiased std (StarPO-S, arXiv 2504.20073). Ties go to the group with the smaller id.

    Four groups of std [0, 0.577, 0.5, 0]: 25 % keeps the second, 50 % the second and third.
    """
    if uncertainty_keep_groups not in ("highest", "lowest"):
        raise ValueError(f"uncertainty_keep_groups is 'highest' or 'lowest', got '{uncertainty_keep_groups}'")
    statistics = group_statistics(rewards, groups, valid)
    present = statistics.count > 0
    spread = torch.where(statistics.flat, 0.0, statistics.std)
    ranked = torch.where(present, spread if uncertainty_keep_groups == "highest" else -spread, -torch.inf)
    chosen = largest(ranked, share(uncertainty_fraction, int(present.sum()), at_least=1)) & present
    return valid & chosen[statistics.index]
