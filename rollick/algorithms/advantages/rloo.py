"""RLOO (arXiv 2402.14740): an answer against the mean of the *other* answers to its prompt."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.groups import group_statistics


def rloo_advantages(rewards: Tensor, groups: Tensor, valid: Tensor) -> Tensor:
    """[R]: R_i − mean_{j≠i} R_j = n/(n − 1) · (R_i − mean). Arguments as for `grpo_advantages`; a group of one or
    without spread gets exactly 0.

    Rewards [1, 0, 0, 0] of one group: [1, −0.333333, −0.333333, −0.333333].
    """
    statistics = group_statistics(rewards, groups, valid)
    others = (statistics.count / (statistics.count - 1).clamp(min=1))[statistics.index]
    live = valid & ~statistics.flat[statistics.index]
    return torch.where(live, others * statistics.centred(), 0.0).to(rewards.dtype)
