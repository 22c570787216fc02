"""GSPO and GSPO-token (arXiv 2507.18071), and PPO with one ratio per segment.

    s = exp(mean over the segment of log π_θ − log π_old)
    J = min(s·A, clip(s, 1 − clip_low, 1 + clip_high)·A)

GSPO: the segment is the whole answer, aggregated by `sequence_mean_token_mean`; clip_low 3e-4, clip_high 4e-4.
"""

from __future__ import annotations

from torch import Tensor

from rollick.algorithms.policy_losses.ppo import ppo_loss
from rollick.algorithms.ratios import geometric_ratio, guarded_exp


def segment_ppo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    segments: Tensor,
    count: int,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Tensor:
    """[M]: every token carries the loss of its segment. `segments` int64[M] are rows (GSPO), turns or chunks,
    `count` how many there are.

    Toy batch of the tests: ratios [1.094174, 1.300176]; clip 0.2: loss 0.103001.
    """
    ratio = geometric_ratio(logprobs, old_logprobs, segments, count)[segments]
    return ppo_loss(ratio, advantages, clip_low=clip_low, clip_high=clip_high)


def gspo_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    rows: Tensor,
    num_rows: int,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Tensor:
    """[M]: −min(s·A, clip(s, 1 − clip_low, 1 + clip_high)·A), s = exp(mean of log π/π_old over the answer)."""
    return segment_ppo_loss(logprobs, old_logprobs, advantages, rows, num_rows, clip_low=clip_low, clip_high=clip_high)


def gspo_token_loss(
    logprobs: Tensor,
    old_logprobs: Tensor,
    advantages: Tensor,
    rows: Tensor,
    num_rows: int,
    *,
    clip_low: float = 3e-4,
    clip_high: float = 4e-4,
) -> Tensor:
    """[M]: −min(s_t·A, clip(s_t, 1 − clip_low, 1 + clip_high)·A), s_t = sg[s]·π/sg[π].

    So each token may have its own advantage; for a constant one value and gradient
    are GSPO's.

    One row with s 1.300176, A [−1, −2, −1, −.5], clip 0.2: loss 1.462699.
    """
    sequence = geometric_ratio(logprobs.detach(), old_logprobs, rows, num_rows)[rows]
    ratio = sequence * guarded_exp(logprobs - logprobs.detach())
    return ppo_loss(ratio, advantages, clip_low=clip_low, clip_high=clip_high)
