"""Plain policy gradient, and with truncated importance weights (TIS)."""

from __future__ import annotations

from torch import Tensor

from rollick.algorithms.ratios import importance_ratio


def policy_gradient_loss(logprobs: Tensor, advantages: Tensor) -> Tensor:
    """[M]: −A·log π. With A = 1 it is the likelihood loss of RAFT.

    The loss of REINFORCE, RLOO and their kin when each batch is used for one update.
    """
    return -advantages * logprobs


def tis_loss(
    logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, weight_low: float = 0.0, weight_high: float = 1.0
) -> Tensor:
    """[M]: −sg[clamp(r, weight_low, weight_high)]·A·log π. Truncated importance sampling: the weight is a constant."""
    weight = importance_ratio(logprobs, old_logprobs).detach().clamp(weight_low, weight_high)
    return -weight * advantages * logprobs
