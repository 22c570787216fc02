"""Decoupled PPO (arXiv 2110.00641; AReaL, 2505.24298): one policy to sample, another to stay close to.

The clip is around π_prox, the trainer's policy at the start of the update; the behaviour policy μ, of whatever
versions, enters as a constant weight π_prox/μ.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.policy_losses.ppo import ppo_loss
from rollick.algorithms.ratios import importance_ratio


def decoupled_ppo_loss(
    logprobs: Tensor,
    proximal_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    dual_clip: float | None = None,
    weight_cap: float | None = None,
) -> Tensor:
    """[M]: −sg[min(π_prox/μ, weight_cap)]·min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A), r = π/π_prox.

    Equal to PPO where μ = π_prox; null caps nothing, `dual_clip` as for PPO.

    Toy batch of the tests, clip 0.2: 0.779106 by `token_mean`.
    """
    weight = importance_ratio(proximal_logprobs, behaviour_logprobs).detach()
    if weight_cap is not None:
        weight = weight.clamp(max=weight_cap)
    ratio = importance_ratio(logprobs, proximal_logprobs)
    return weight * ppo_loss(ratio, advantages, clip_low=clip_low, clip_high=clip_high, dual_clip=dual_clip)


def interpolated_proximal(
    logprobs: Tensor, behaviour_logprobs: Tensor, behaviour_versions: Tensor, version: int
) -> Tensor:
    """[M]: log π_prox without a forward pass, on the line from μ to π_θ by versions (AReaL):
    log μ + α·(log π_θ − log μ), α = (v_prox − v_μ)/(v_θ − v_μ) in [0, 1], v_prox = v_θ − 1. A constant.

    `behaviour_versions` int64[M], `version` = v_θ. A token sampled at v_θ has α 0; three versions ago, α 2/3.
    """
    age = (version - behaviour_versions).double()
    alpha = torch.where(age > 0, (age - 1) / age.clamp(min=1), 0.0).clamp(0, 1).to(logprobs.dtype)
    return (behaviour_logprobs + alpha * (logprobs - behaviour_logprobs)).detach()
