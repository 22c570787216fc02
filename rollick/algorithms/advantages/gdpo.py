"""GDPO (arXiv 2601.05242): each reward normalised by itself, so that a loud one does not drown a quiet one."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.advantages.grpo import grpo_advantages
from rollick.algorithms.normalization import whiten
from rollick.algorithms.segments import require_bool


def gdpo_advantages(
    reward_parts: Tensor, reward_weights: Tensor, groups: Tensor, valid: Tensor, *, advantage_eps: float = 1e-6
) -> Tensor:
    """[R]: whiten(Σ_k w_k·(R_ik − mean_k)/(std_k + advantage_eps)), over the valid rows of the batch.

    `reward_parts` [K, R], `reward_weights` [K]; `groups` and `valid` [R] as for `grpo_advantages`. A part that a
    row has not (its grader abstained) is NaN there and adds nothing. (verl whitens over tokens, which gives long
    answers more say; this is the paper's form.)

    One group, parts (1, 0, 0, 0) and (0, 0, 0, 10) with equal weights: the first and last row get the same.
    """
    if reward_parts.dim() != 2 or len(reward_parts) != len(reward_weights):
        raise ValueError(f"reward_parts {tuple(reward_parts.shape)} needs one row per weight ({len(reward_weights)})")
    advantages = [
        grpo_advantages(part, groups, require_bool("valid", valid) & ~part.isnan(), advantage_eps=advantage_eps)
        for part in reward_parts.unbind()
    ]
    combined = (torch.stack(advantages) * reward_weights.to(reward_parts.dtype)[:, None]).sum(0)
    return whiten(combined, valid)
