"""RAFT, RAFT++ (arXiv 2304.06767, 2504.11343) and Reinforce-Rej: which answers to learn from at all.

RAFT: likelihood of the selected answers (policy gradient with A = 1). RAFT++: `ppo_loss` with A = 1 on them.
Reinforce-Rej: policy gradient with the plain reward on what is left. A group without any contributes nothing.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from rollick.algorithms.groups import group_statistics
from rollick.algorithms.segments import segment_max


def raft_keep(
    rewards: Tensor,
    groups: Tensor,
    valid: Tensor,
    *,
    raft_select: Literal["correct", "best"] = "correct",
    success_reward: float = 1.0,
) -> Tensor:
    """bool[R]: valid rows whose reward reaches `success_reward`, or ("best") equals the highest of their group.

    Rewards [1, 0, 1, 0] → [True, False, True, False].
    """
    statistics = group_statistics(rewards, groups, valid)
    if raft_select == "correct":
        return valid & (rewards >= success_reward)
    if raft_select == "best":
        highest = segment_max(
            statistics.rewards.masked_fill(~valid, -float("inf")), statistics.index, len(statistics.mean)
        )
        return valid & (statistics.rewards == highest[statistics.index])
    raise ValueError(f"raft_select is 'correct' or 'best', got '{raft_select}'")


def reinforce_rej_keep(rewards: Tensor, groups: Tensor, valid: Tensor) -> Tensor:
    """bool[R]: valid rows of groups that are neither all right nor all wrong (whose rewards differ).

    Groups (1, 1), (1, 0), (0, 0) → [False, False, True, True, False, False].
    """
    statistics = group_statistics(rewards, groups, valid)
    return valid & ~statistics.flat[statistics.index]
