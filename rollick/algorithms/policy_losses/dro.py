"""DRO, direct reward optimisation: policy gradient with a quadratic pull to the old policy (as in verl)."""

from __future__ import annotations

from torch import Tensor


def dro_loss(logprobs: Tensor, old_logprobs: Tensor, advantages: Tensor, *, dro_beta: float) -> Tensor:
    """[M]: −(A·log π − dro_beta/2·(log π − log π_old)²).

    Raises ValueError unless dro_beta > 0 (without it nothing holds π)."""
    if dro_beta <= 0:
        raise ValueError(f"DRO needs dro_beta > 0, got {dro_beta}")
    return 0.5 * dro_beta * (logprobs - old_logprobs).square() - advantages * logprobs
