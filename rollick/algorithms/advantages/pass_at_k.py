"""Policy gradient for pass@k (arXiv 2503.19595): only the best answer of a group, by how much it beats the second."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.groups import group_statistics
from rollick.algorithms.segments import segment_max


def pass_at_k_advantages(
    rewards: Tensor,
    groups: Tensor,
    valid: Tensor,
    *,
    advantage_std: Literal["group", "none"] = "none",
    advantage_eps: float = 1e-6,
) -> Tensor:
    """[R]: best − second best for the best valid row of each group, 0 for all others. Divided by the group's std
    + advantage_eps with advantage_std "group". Tied best rows differ by 0. Groups of fewer than two valid rows get 0.

    Rewards [1, 0.25, 0, 0]: [0.75, 0, 0, 0]; rewards [1, 1, 0, 0]: all 0.
    """
    if advantage_std not in ("group", "none"):
        raise ValueError(f"advantage_std is 'group' or 'none', got '{advantage_std}'")
    statistics = group_statistics(rewards, groups, valid)
    index, num_groups = statistics.index, len(statistics.mean)
    reward = torch.where(valid, statistics.rewards, -torch.inf)
    best = segment_max(reward, index, num_groups)[index]
    is_best = valid & (reward == best)
    second = segment_max(torch.where(is_best, -torch.inf, reward), index, num_groups)[index]
    winners = torch.zeros(num_groups, dtype=torch.long, device=index.device).index_add(0, index, is_best.long())
    wins = is_best & (winners[index] == 1) & ~statistics.flat[index]
    lead = torch.where(wins, best - second, 0.0)
    if advantage_std == "group":
        lead = lead / (statistics.std + advantage_eps)[index]
    return lead.to(rewards.dtype)
