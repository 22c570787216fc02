"""IPA (Let It Flow, arXiv 2512.24873): policy gradient over interaction chunks, TOPR-like. Returns come from
`chunk_returns`; the loss is summed over tokens (`sequence_mean_token_sum`)."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.ratios import geometric_ratio


def ipa_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    returns: Tensor,
    chunks: Tensor,
    num_chunks: int,
    *,
    mismatch_limit: float,
) -> Tensor:
    """[M]: −w·G·log π with a constant w per chunk: 0 where the geometric ratio π_old/μ exceeds `mismatch_limit`, else
    1 for G ≥ 0 and the geometric ratio π_θ/π_old clipped to [0, 1] for G < 0.

    `chunks` int64[M] as for `chunk_returns`. The paper gives no value for the limit.

    Three chunks, π_θ/π_old [0.904837, 1.105171, 0.606531], π_old/μ [1.035620, 1.349859, 1], limit 1.2, γ 0.9:
    w·G is [0.81, 0, 1] for R = 1 and [−0.732918, 0, −0.606531] for R = −1.
    """
    ratio = geometric_ratio(logprobs.detach(), old_logprobs, chunks, num_chunks)[chunks]
    mismatch = geometric_ratio(old_logprobs, behaviour_logprobs, chunks, num_chunks)[chunks]
    weight = torch.where(returns < 0, ratio.clamp(0, 1), 1.0)
    return torch.where(mismatch > mismatch_limit, 0.0, -weight * returns * logprobs)
