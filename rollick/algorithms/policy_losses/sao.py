"""SAO, single-rollout asynchronous optimisation (ROLL): the behaviour ratio itself, with a mask on both sides."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.ratios import importance_ratio


def sao_loss(
    logprobs: Tensor, behaviour_logprobs: Tensor, advantages: Tensor, *, mask_low: float = 0.3, mask_high: float = 5.0
) -> Tensor:
    """[M]: −r·A with r = π/μ, 0 where r lies outside [1 − mask_low, 1 + mask_high], whatever the sign of A."""
    ratio = importance_ratio(logprobs, behaviour_logprobs)
    outside = (ratio < 1 - mask_low) | (ratio > 1 + mask_high)
    return torch.where(outside, 0.0, -ratio * advantages)
