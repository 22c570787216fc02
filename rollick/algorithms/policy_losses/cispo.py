"""CISPO (MiniMax-M1, arXiv 2506.13585): clip the weight, keep every token's gradient."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.policy_losses.ppo import ppo_clipped
from rollick.algorithms.ratios import importance_ratio


def cispo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    weight_low: float = 0.0,
    weight_high: float = 1.28,
    mask_clip: tuple[float, float] | None = None,
) -> Tensor:
    """[M]: −sg[clip(r, weight_low, weight_high)]·A·log π. Aggregated by `token_mean`.

    The bounds are of the ratio itself: 0 and 1.28 are M1's (no effective lower bound), 0 and 5 ScaleRL's (2510.13786).
    `mask_clip` (clip_low, clip_high) is the unified form: 0 where PPO's clip would stop the gradient.

    Toy batch of the tests: −0.149793 with (0, 1.28), −0.204671 with (0.9, 1.1), −0.224261 with (0, 5).
    """
    ratio = importance_ratio(logprobs, old_logprobs).detach()
    loss = -ratio.clamp(weight_low, weight_high) * advantages * logprobs
    if mask_clip is None:
        return loss
    clipped = ppo_clipped(ratio, advantages, clip_low=mask_clip[0], clip_high=mask_clip[1])
    return torch.where(clipped.low | clipped.high, 0.0, loss)
