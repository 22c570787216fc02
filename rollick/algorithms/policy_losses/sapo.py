"""SAPO (arXiv 2511.20347): a soft gate in place of the clip."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.ratios import importance_ratio


def sapo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    tau_positive: float = 1.0,
    tau_negative: float = 1.05,
) -> Tensor:
    """[M]: −A·(4/τ)·σ(τ(r − 1)), τ = tau_positive where A > 0, else tau_negative. The slope is 1 at r = 1 and fades
    on both sides. The paper aggregates by `sequence_mean_token_mean`.

    Toy batch of the tests: 0.081775.
    """
    ratio = importance_ratio(logprobs, old_logprobs)
    tau = torch.full_like(ratio, tau_negative).masked_fill(advantages > 0, tau_positive)
    return -advantages * (4 / tau) * torch.sigmoid(tau * (ratio - 1))
