"""Clip-Cov and KL-Cov (arXiv 2505.22617): the few tokens whose log-prob and advantage vary together drive the loss
of entropy; take their gradient away, or hold them by a KL.

The selection is made once per batch, from the log-probs before the update, and travels with the tokens; made inside
a micro-batch (as in verl) it would depend on how the batch is cut.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.policy_losses.ppo import ppo_loss
from rollick.algorithms.ratios import at_least_float32, importance_ratio
from rollick.algorithms.segments import require_bool
from rollick.algorithms.selection import largest, share


def token_covariance(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """[M]: (log π − mean)·(A − mean), the token's share of the batch's covariance; a constant."""
    logprobs = logprobs.detach()
    return (logprobs - logprobs.mean()) * (advantages - advantages.mean())


def clip_cov_selection(
    covariance: Tensor,
    generator: torch.Generator,
    *,
    cov_fraction: float = 2e-4,
    cov_low: float = 1.0,
    cov_high: float = 5.0,
) -> Tensor:
    """bool[M]: floor(cov_fraction·M), at least one, tokens drawn at random among those with
    cov_low < covariance < cov_high."""
    eligible = (covariance > cov_low) & (covariance < cov_high)
    draw = torch.rand(len(covariance), generator=generator, device=generator.device).to(covariance.device)
    count = share(cov_fraction, len(covariance), at_least=1)
    return largest(torch.where(eligible, draw, -torch.inf), count) & eligible


def kl_cov_selection(covariance: Tensor, *, cov_fraction: float = 2e-4) -> Tensor:
    """bool[M]: the floor(cov_fraction·M), at least one, tokens of the highest covariance."""
    return largest(covariance, share(cov_fraction, len(covariance), at_least=1))


def clip_cov_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    selected: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
) -> Tensor:
    """[M]: −min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A), 0 on the selected tokens."""
    ratio = importance_ratio(logprobs, old_logprobs)
    loss = ppo_loss(ratio, advantages, clip_low=clip_low, clip_high=clip_high)
    return torch.where(require_bool("selected", selected), 0.0, loss)


def kl_cov_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, selected: Tensor, *, cov_penalty: float = 1.0
) -> Tensor:
    """[M]: −r·A, plus cov_penalty·abs(log-ratio) on the selected tokens. Nothing is clipped."""
    drift = (at_least_float32(logprobs) - at_least_float32(old_logprobs)).abs()
    held = torch.where(require_bool("selected", selected), cov_penalty * drift, 0.0)
    return held - importance_ratio(logprobs, old_logprobs) * advantages
