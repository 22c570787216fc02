"""GRPO (arXiv 2402.03300) and Dr.GRPO (arXiv 2503.20783): an answer against the other answers to its prompt."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.groups import group_statistics


def grpo_advantages(
    rewards: Tensor,
    groups: Tensor,
    valid: Tensor,
    *,
    advantage_std: Literal["group", "none"] = "group",
    advantage_eps: float = 1e-6,
) -> Tensor:
    """[R]: (R_i − mean) / (std + advantage_eps), unbiased (n − 1). R_i − mean with advantage_std "none" (Dr.GRPO).

    `rewards` [R], `groups` int64[R] of any ids in any order, `valid` bool[R]. Rows that are not valid (failed,
    abstained, nothing to train) take no part in the statistics and get 0, whatever their reward. A group of one, or
    one whose rewards are equal up to rounding, gets exactly 0.

    Rewards [1, 0, 0, 0] of one group: [1.499997, −0.499999, −0.499999, −0.499999], with advantage_std "none"
    [0.75, −0.25, −0.25, −0.25].
    """
    if advantage_std not in ("group", "none"):
        raise ValueError(f"advantage_std is 'group' or 'none', got '{advantage_std}'")
    statistics = group_statistics(rewards, groups, valid)
    advantages = statistics.centred()
    if advantage_std == "group":
        advantages = advantages / (statistics.std + advantage_eps)[statistics.index]
    live = valid & ~statistics.flat[statistics.index]
    return torch.where(live, advantages, 0.0).to(rewards.dtype)
