"""KL of the policy to a reference, estimated on sampled tokens (joschu.net/blog/kl-approx).

With x = log π_θ − log π_ref of the sampled token:

| name | value | expected value | expected gradient (tokens sampled from π_θ) |
|---|---|---|---|
| `k1` | x | KL(π‖ref) | 0: no use as a loss |
| `abs` | abs(x) | – | – |
| `k2` | x²/2 | biased | ∇KL(π‖ref) |
| `k3` | e^−x − 1 + x ≥ 0 | KL(π‖ref) | ∇KL(ref‖π), the other direction |

A straight-through form has the value of one estimator and the gradient of k2.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from rollick.algorithms.ratios import MAX_LOG_RATIO, at_least_float32

KlEstimator = Literal["k1", "abs", "k2", "k3"]


def kl_estimate(
    logprobs: Tensor, ref_logprobs: Tensor, estimator: KlEstimator, *, straight_through: bool = False
) -> Tensor:
    """[M]: KL estimates of the sampled tokens.

    logprob −1, reference −1.5: k1 0.5, k2 0.125, k3 0.106531. Value and gradient are finite for every finite input:
    k3 of a token that the reference likes e^20 times better is held at that value. NaN stays NaN.
    """
    difference = at_least_float32(logprobs) - at_least_float32(ref_logprobs)
    value = _estimate(difference, estimator)
    if not straight_through:
        return value
    k2 = _estimate(difference, "k2")
    return value.detach() + (k2 - k2.detach())


def _estimate(difference: Tensor, estimator: KlEstimator) -> Tensor:
    if estimator == "k1":
        return difference
    if estimator == "abs":
        return difference.abs()
    if estimator == "k2":
        return 0.5 * difference.square()
    if estimator == "k3":
        # Clamped before exp: a cap on the result would leave a finite value with a NaN gradient (0 · inf).
        towards_ref = (-difference).clamp(max=MAX_LOG_RATIO)
        return towards_ref.exp() - 1 - towards_ref
    raise ValueError(f"unknown KL estimator '{estimator}'")
