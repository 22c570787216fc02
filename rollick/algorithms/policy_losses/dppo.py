"""DPPO (arXiv 2602.04879): a trust region by divergence, not by ratio.

A rare token may change its ratio a lot at no risk, a common one may move much mass at a small ratio. The mask stops
a token that moves away from the old policy (A > 0 and r > 1, or A < 0 and r < 1) once the divergence of
"this token or another" exceeds a threshold.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.kl import bernoulli_kl
from rollick.algorithms.ratios import at_least_float32, importance_ratio

Divergence = Literal["tv", "kl"]


def dppo_keep(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    divergence: Divergence = "tv",
    divergence_low: float = 0.2,
    divergence_high: float = 0.2,
) -> Tensor:
    """bool[M]: tokens inside the trust region or moving towards it. `divergence_high` bounds tokens with A > 0,
    `divergence_low` those with A < 0. "tv" is abs(p − p_old), "kl" is KL(old‖new), both of the Bernoulli of the sampled
    token."""
    new, old = at_least_float32(logprobs.detach()), at_least_float32(old_logprobs)
    if divergence == "tv":
        distance = (new.exp() - old.exp()).abs()
    elif divergence == "kl":
        distance = bernoulli_kl(old, new)
    else:
        raise ValueError(f"DPPO's divergence is 'tv' or 'kl', got '{divergence}'")
    too_high = (advantages > 0) & (new > old) & (distance > divergence_high)
    too_low = (advantages < 0) & (new < old) & (distance > divergence_low)
    return ~(too_high | too_low)


def dppo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    *,
    divergence: Divergence = "tv",
    divergence_low: float = 0.2,
    divergence_high: float = 0.2,
    weight_cap: float = 20.0,
) -> Tensor:
    """[M]: −sg[min(r, weight_cap)]·A·log π, 0 on tokens with A > 0 and D > divergence_high moving up, or A < 0 and
    D > divergence_low moving down (`dppo_keep`), D the divergence."""
    keep = dppo_keep(
        logprobs,
        old_logprobs,
        advantages,
        divergence=divergence,
        divergence_low=divergence_low,
        divergence_high=divergence_high,
    )
    weight = importance_ratio(logprobs, old_logprobs).detach().clamp(max=weight_cap)
    return torch.where(keep, -weight * advantages * logprobs, 0.0)
