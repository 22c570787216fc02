"""GMPO (arXiv 2507.20673): the geometric mean of token ratios, each clipped in log space before the mean."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.ratios import at_least_float32, guarded_exp
from rollick.algorithms.segments import segment_mean


def gmpo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    rows: Tensor,
    num_rows: int,
    *,
    log_clip_low: float = 0.4,
    log_clip_high: float = 0.4,
) -> Tensor:
    """[M]: −A·exp(mean of u), u = sign(A)·min(sign(A)·ℓ, sign(A)·clip(ℓ, −log_clip_low, log_clip_high)).

    ℓ is the log-ratio. Every token carries the value of its row, so `sequence_mean_token_mean` gives the
    paper's mean over answers.

    Toy batch of the tests: 0.103001 with 0.4 (the paper's), 0.140910 with 0.2.
    """
    log_ratio = at_least_float32(logprobs) - at_least_float32(old_logprobs)
    sign = advantages.sign()
    pessimistic = sign * torch.minimum(sign * log_ratio, sign * log_ratio.clamp(-log_clip_low, log_clip_high))
    return -advantages * guarded_exp(segment_mean(pessimistic, rows, num_rows))[rows]
