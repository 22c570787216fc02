"""SAO, single-rollout asynchronous optimisation (ROLL): the behaviour ratio itself, with a mask on both sides."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.ratios import importance_ratio


def sao_loss(
    logprobs: Tensor, behaviour_logprobs: Tensor, advantages: Tensor, *, low: float = 0.3, high: float = 5.0
) -> Tensor:
    """[M]: −r·A with r = π_θ/μ; 0, whatever the sign of A, where r lies outside [1 − low, 1 + high]."""
    ratio = importance_ratio(logprobs, behaviour_logprobs)
    outside = (ratio < 1 - low) | (ratio > 1 + high)
    return torch.where(outside, 0.0, -ratio * advantages)
