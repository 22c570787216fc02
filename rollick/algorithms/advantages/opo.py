"""OPO (arXiv 2505.23585): the baseline that minimises the gradient's variance when its norm grows with the length."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.groups import group_statistics
from rollick.algorithms.segments import segment_sum


def opo_advantages(rewards: Tensor, lengths: Tensor, groups: Tensor, valid: Tensor) -> Tensor:
    """[R]: R_i − Σ L_j R_j / Σ L_j over the group. `lengths` [R] counts live tokens; the rest as for
    `grpo_advantages`. A group of one or without spread gets exactly 0.

    Lengths [10, 20, 30, 40], rewards [1, 0, 0, 0]: baseline 0.1, advantages [0.9, −0.1, −0.1, −0.1].
    """
    statistics = group_statistics(rewards, groups, valid)
    weight = torch.where(valid, lengths.double(), 0.0)
    num_groups = len(statistics.mean)
    weighted = segment_sum(weight * statistics.rewards, statistics.index, num_groups)
    total = segment_sum(weight, statistics.index, num_groups)
    baseline = torch.where(total > 0, weighted / total.clamp(min=1), statistics.mean)
    live = valid & ~statistics.flat[statistics.index]
    return torch.where(live, statistics.rewards - baseline[statistics.index], 0.0).to(rewards.dtype)
