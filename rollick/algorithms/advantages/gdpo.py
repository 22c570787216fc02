"""GDPO (arXiv 2601.05242): each reward normalised by itself, so that a loud one does not drown a quiet one."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.advantages.grpo import grpo_advantages
from rollick.algorithms.normalization import whiten


def gdpo_advantages(
    reward_parts: Tensor, weights: Tensor, groups: Tensor, valid: Tensor, *, eps: float = 1e-6
) -> Tensor:
    """[R]: Σ_k w_k · GRPO advantage of part k, whitened over the valid rows of the batch.

    `reward_parts` [K, R], `weights` [K]; `groups` and `valid` [R] as for `grpo_advantages`. (verl whitens over
    tokens, which gives long answers more say; this is the paper's form.)

    One group, parts (1, 0, 0, 0) and (0, 0, 0, 10) with equal weights: the first and last row get the same.
    """
    if reward_parts.dim() != 2 or len(reward_parts) != len(weights):
        raise ValueError(f"reward_parts {tuple(reward_parts.shape)} needs one row per weight ({len(weights)})")
    advantages = [grpo_advantages(part, groups, valid, eps=eps) for part in reward_parts.unbind()]
    combined = (torch.stack(advantages) * weights.to(reward_parts.dtype)[:, None]).sum(0)
    return whiten(combined, valid)
