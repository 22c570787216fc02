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

import torch
from torch import Tensor

from rollick.algorithms.ratios import MAX_LOG_RATIO, at_least_float32, importance_ratio

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


def off_policy_kl(logprobs: Tensor, ref_logprobs: Tensor, old_logprobs: Tensor, estimator: KlEstimator) -> Tensor:
    """[M]: the estimate times the importance ratio π_θ/π_old, which makes value and gradient those of fresh samples
    where the tokens came from π_old (DeepSeek-V3.2). Gradient flows through the ratio too.

    k3 0.106531 with ratio 1.3: 0.138490.
    """
    return importance_ratio(logprobs, old_logprobs) * kl_estimate(logprobs, ref_logprobs, estimator)


def full_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """[…]: KL(p‖q) over the last dimension, of normalised log-probs of the whole vocabulary […, V].

    A token that p cannot produce (log-prob −inf) adds 0.
    """
    gap = torch.where(log_p > -torch.inf, log_p - log_q, 0.0)
    return (log_p.exp() * gap).sum(-1)


def bernoulli_kl(log_p: Tensor, log_q: Tensor) -> Tensor:
    """[M]: KL between "this token" and "any other" under two policies, from the log-probs of the token:
    p·log(p/q) + (1 − p)·log((1 − p)/(1 − q)). Finite also at probabilities of 0 and 1.

    (0.9, 0.1): 1.757780; (0.5, 0.4): 0.020411.
    """
    log_p, log_q = at_least_float32(log_p), at_least_float32(log_q)
    tiny = torch.finfo(log_p.dtype).eps
    log_p, log_q = log_p.clamp(max=-tiny), log_q.clamp(max=-tiny)
    other_p, other_q = (-torch.expm1(log_p)).log(), (-torch.expm1(log_q)).log()
    return log_p.exp() * (log_p - log_q) + other_p.exp() * (other_p - other_q)


def penalised_rewards(
    token_rewards: Tensor, old_logprobs: Tensor, ref_logprobs: Tensor, *, coef: float, estimator: KlEstimator = "k1"
) -> Tensor:
    """[M]: r_t − coef · KL_t, a constant: the KL in the reward instead of the loss (never both).

    Rewards [0, 0, 1], KL [.1, −.2, .3], coef 0.1: [−0.01, 0.02, 0.97].
    """
    return token_rewards - coef * kl_estimate(old_logprobs, ref_logprobs, estimator).detach()
