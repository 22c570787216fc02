"""TOPR, tapered off-policy REINFORCE (arXiv 2503.14286): good answers at full weight, bad ones at most at theirs."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.ratios import importance_ratio, product_ratio


def topr_loss(
    logprobs: Tensor,
    behaviour_logprobs: Tensor,
    advantages: Tensor,
    rows: Tensor,
    num_rows: int,
    *,
    ratio_level: Literal["trajectory", "token"] = "trajectory",
    negative_range: tuple[float, float] = (0.0, 1.0),
    positive_range: tuple[float, float] | None = None,
    positive_weight: float = 1.0,
    negative_weight: float = 1.0,
) -> Tensor:
    """[M]: −w·A·log π, w = positive_weight where A ≥ 0, else negative_weight·sg[clip(π/μ, negative_range)].

    `positive_range` clips the ratio where A ≥ 0 too and multiplies w by it; null leaves it out.

    The paper: A = R = ±1 for the whole answer, π/μ of the whole trajectory, `sequence_mean_token_mean`. ratio_level
    "token" takes each token's own ratio (as ROLL does).

    Positive answer [−.72, −.60]; negative [−.9, −.8] with μ [−.7, −.5]: w 0.606531, loss 0.072224.
    """
    if ratio_level == "trajectory":
        ratio = product_ratio(logprobs.detach(), behaviour_logprobs, rows, num_rows)[rows]
    elif ratio_level == "token":
        ratio = importance_ratio(logprobs.detach(), behaviour_logprobs)
    else:
        raise ValueError(f"ratio_level is 'trajectory' or 'token', got '{ratio_level}'")
    positive = torch.ones_like(ratio) if positive_range is None else ratio.clamp(*positive_range)
    negative = ratio.clamp(*negative_range)
    weight = torch.where(advantages < 0, negative_weight * negative, positive_weight * positive)
    return -weight * advantages * logprobs
