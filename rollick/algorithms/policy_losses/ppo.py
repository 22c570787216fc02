"""PPO's clipped surrogate (arXiv 1707.06347), clip-higher (DAPO, 2503.14476), dual clip (1912.09729).

surrogate = min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A)
dual clip c > 1, where A < 0:  surrogate = max(surrogate, c·A)
loss = −surrogate
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


def ppo_loss(
    ratio: Tensor, advantages: Tensor, *, clip_low: float = 0.2, clip_high: float = 0.2, dual_clip: float | None = None
) -> Tensor:
    """[M]: −min(r·A, clip(r, 1 − clip_low, 1 + clip_high)·A), where A < 0 at most −dual_clip·A.

    `ratio` [M] from `ratios.importance_ratio`, which cannot overflow, so an advantage of 0
    gives exactly 0; NaN stays NaN.

    A = −1, r = [0.5, 1, 2, 5], clip 0.2: [0.8, 1, 2, 5]; with dual_clip 3: [0.8, 1, 2, 3].
    """
    surrogate = torch.minimum(ratio * advantages, ratio.clamp(1 - clip_low, 1 + clip_high) * advantages)
    if dual_clip is not None:
        surrogate = torch.where(advantages < 0, torch.maximum(surrogate, dual_clip * advantages), surrogate)
    return -surrogate


class PpoClipped(NamedTuple):
    """bool[M] each: tokens whose gradient the clip range stops, below and above."""

    low: Tensor
    high: Tensor


def ppo_clipped(ratio: Tensor, advantages: Tensor, *, clip_low: float, clip_high: float) -> PpoClipped:
    """Where the clipped surrogate is the smaller one: A < 0 and r < 1 − clip_low, A > 0 and r > 1 + clip_high."""
    low = (advantages < 0) & (ratio < 1 - clip_low)
    high = (advantages > 0) & (ratio > 1 + clip_high)
    return PpoClipped(low, high)
