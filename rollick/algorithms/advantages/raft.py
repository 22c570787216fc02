"""RAFT and RAFT++ (arXiv 2304.06767, 2504.11343): learn from the right answers alone."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.sample_filters.raft import raft_keep


def raft_advantages(
    rewards: Tensor,
    groups: Tensor,
    valid: Tensor,
    *,
    raft_select: Literal["correct", "best"] = "correct",
    success_reward: float = 1.0,
) -> Tensor:
    """[R]: 1 for selected answers, 0 for others.

    With `policy_gradient` the loss is the likelihood of what was selected (RAFT), with `ppo` RAFT++. The filter of
    the same name takes the others out of the denominators too.

    Rewards [1, 0, 1, 0]: [1, 0, 1, 0]; with raft_select "best" and rewards [.2, .5]: [0, 1].
    """
    keep = raft_keep(rewards, groups, valid, raft_select=raft_select, success_reward=success_reward)
    return torch.where(keep, 1.0, 0.0).to(rewards.dtype)
