"""OPMD, online policy mirror descent (Kimi k1.5, arXiv 2501.12599; Trinity-RFT): the soft-max baseline τ·log Z."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.groups import group_statistics
from rollick.algorithms.segments import segment_max, segment_sum


def opmd_advantages(
    rewards: Tensor,
    groups: Tensor,
    valid: Tensor,
    *,
    opmd_baseline: Literal["mean", "log_mean_exp"] = "mean",
    tau: float = 1.0,
) -> Tensor:
    """[R]: R_i − b of the group, opmd_baseline. b is the mean, or tau·log(1/n Σ exp(R_j/tau)), which tends to the
    maximum as tau → 0.

    A group of one or without spread gets exactly 0 (Trinity-RFT leaves a single answer its raw reward).

    Rewards [1, 0, 0, 1], τ 0.1: b = 0.930690; τ 1: b = 0.620115.
    """
    statistics = group_statistics(rewards, groups, valid)
    index, num_groups = statistics.index, len(statistics.mean)
    if opmd_baseline == "mean":
        level = statistics.mean
    elif opmd_baseline == "log_mean_exp":
        highest = segment_max(torch.where(valid, statistics.rewards, -torch.inf), index, num_groups)
        scaled = torch.where(valid, ((statistics.rewards - highest[index]) / tau).exp(), 0.0)
        level = highest + tau * (segment_sum(scaled, index, num_groups) / statistics.count.clamp(min=1)).log()
    else:
        raise ValueError(f"opmd_baseline is 'mean' or 'log_mean_exp', got '{opmd_baseline}'")
    live = valid & ~statistics.flat[index]
    return torch.where(live, statistics.rewards - level[index], 0.0).to(rewards.dtype)
