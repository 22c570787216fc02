"""DRO, direct reward optimisation: policy gradient with a quadratic pull to the old policy (as in verl)."""

from __future__ import annotations

from torch import Tensor


def dro_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, beta: float) -> Tensor:
    """[M]: −(A·log π − β/2·(log π − log π_old)²). Raises ValueError unless β > 0 (without it nothing holds π)."""
    if beta <= 0:
        raise ValueError(f"DRO needs beta > 0, got {beta}")
    return 0.5 * beta * (logprobs - old_logprobs).square() - advantages * logprobs
