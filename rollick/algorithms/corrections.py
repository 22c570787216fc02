"""Corrections for tokens that came from another policy than the trainer's: engine mismatch and staleness.

Weights and masks are constants made from log π_old (the trainer's, at the version that updates) and log μ (the
rollout engine's). They change the numerator only: denominators keep counting every live token, so masking does not
raise the weight of what is left.

| method | here |
|---|---|
| TIS, sequence TIS | `truncated(mismatch_weights(level=…), high)` |
| MIS (masked importance sampling) | `within(mismatch_weights(level=…), low, high)` as the mask |
| geometric rejection (Geo-RS) | the same at level "geometric", bounds like [.999, 1.001] |
| IcePop | `icepop_weights` |
| KPop | `kpop_keep` |
| K1 / K2 / K3 rejection | `divergence_keep` |
| OPSM (DeepSeek-V3.2) | `opsm_keep` |
| M2PO | `m2po_keep` |
| ROLL's difference filter | `within(probability_gap(level=…), low, high)` |

A mask keeps what is not known to be bad: NaN is never outside its bounds, so it stays and surfaces in the loss.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.kl import bernoulli_kl, kl_estimate
from rollick.algorithms.ratios import at_least_float32, geometric_ratio, importance_ratio, product_ratio
from rollick.algorithms.segments import require_bool, segment_max, segment_mean, segment_sum

Level = Literal["token", "segment", "geometric", "sequence"]
"""token: its own ratio. segment: geometric mean over its turn or chunk. geometric: geometric mean over its row.
sequence: product over its row."""


def mismatch_weights(
    old_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    rows: Tensor,
    num_rows: int,
    *,
    level: Level,
    segments: tuple[Tensor, int] | None = None,
) -> Tensor:
    """[M]: π_old/μ of the token, its segment or its row, given to each of its tokens. `segments` (int64[M], count) is
    read by level "segment" only.

    Log-ratios 0.2, 0, −0.05 of one row: token 1.221403, 1, 0.951229; geometric 1.051271; sequence 1.161834.
    """
    old, behaviour = old_logprobs.detach(), behaviour_logprobs.detach()
    if level == "token":
        return importance_ratio(old, behaviour)
    if level == "sequence":
        return product_ratio(old, behaviour, rows, num_rows)[rows]
    index, count = _averaging_index(level, rows, num_rows, segments)
    return geometric_ratio(old, behaviour, index, count)[index]


def probability_gap(
    old_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    rows: Tensor,
    num_rows: int,
    *,
    level: Level,
    segments: tuple[Tensor, int] | None = None,
) -> Tensor:
    """[M]: p_old − p_μ of the token, or of the (geometric mean or product) probability of its segment or row."""
    old, behaviour = at_least_float32(old_logprobs.detach()), at_least_float32(behaviour_logprobs.detach())
    if level == "token":
        return old.exp() - behaviour.exp()
    if level == "sequence":
        return (segment_sum(old, rows, num_rows).exp() - segment_sum(behaviour, rows, num_rows).exp())[rows]
    index, count = _averaging_index(level, rows, num_rows, segments)
    return (segment_mean(old, index, count).exp() - segment_mean(behaviour, index, count).exp())[index]


def truncated(weights: Tensor, high: float) -> Tensor:
    """[M]: min(w, high)."""
    return weights.clamp(max=high)


def normalized(weights: Tensor) -> Tensor:
    """[M]: weights scaled to a mean of 1 over the batch."""
    return weights / weights.mean()


def within(values: Tensor, low: float, high: float) -> Tensor:
    """bool[M]: False where the value lies outside [low, high]. (NaN is True: it must surface, not vanish.)"""
    return ~((values < low) | (values > high))


def icepop_weights(weights: Tensor, low: float = 0.5, high: float = 5.0) -> Tensor:
    """[M]: w inside [low, high], 0 outside. w = [.3, .9, 1.4, 6] → [0, .9, 1.4, 0]."""
    return torch.where(within(weights, low, high), weights, 0.0)


def kpop_keep(old_logprobs: Tensor, behaviour_logprobs: Tensor, *, limit: float = 2.0) -> Tensor:
    """bool[M]: False where the Bernoulli KL of the sampled token, in the worse direction, exceeds `limit`."""
    old, behaviour = old_logprobs.detach(), behaviour_logprobs.detach()
    return within(torch.maximum(bernoulli_kl(old, behaviour), bernoulli_kl(behaviour, old)), 0.0, limit)


def divergence_keep(
    old_logprobs: Tensor,
    behaviour_logprobs: Tensor,
    rows: Tensor,
    num_rows: int,
    *,
    estimator: Literal["k1", "k2", "k3"],
    level: Literal["token", "sequence_sum", "sequence_mean", "sequence_max"],
    low: float = -torch.inf,
    high: float,
) -> Tensor:
    """bool[M]: False where the estimate of KL(μ‖π_old) lies outside [low, high], for the token or for its whole row.

    k1 is −log w: verl's "0.8_1.2" for it is low log(0.8), high log(1.2), which keeps w in [0.8333, 1.25].
    """
    estimate = kl_estimate(behaviour_logprobs.detach(), old_logprobs.detach(), estimator)
    if level == "token":
        return within(estimate, low, high)
    reduce = {"sequence_sum": segment_sum, "sequence_mean": segment_mean, "sequence_max": segment_max}
    if level not in reduce:
        raise ValueError(f"unknown level '{level}' (token, {', '.join(reduce)})")
    return within(reduce[level](estimate, rows, num_rows), low, high)[rows]


def opsm_keep(
    logprobs: Tensor, behaviour_logprobs: Tensor, advantages: Tensor, rows: Tensor, num_rows: int, *, limit: float
) -> Tensor:
    """bool[M]: False for every token of a row whose mean advantage is negative and whose mean log μ − log π_θ exceeds
    `limit` (off-policy sequence masking, DeepSeek-V3.2). `behaviour_logprobs` may be the trainer's old ones."""
    drift = segment_mean(at_least_float32(behaviour_logprobs - logprobs.detach()), rows, num_rows)
    negative = segment_mean(advantages, rows, num_rows) < 0
    return ~(negative & (drift > limit))[rows]


def m2po_keep(old_logprobs: Tensor, behaviour_logprobs: Tensor, *, limit: float) -> Tensor:
    """bool[M]: drops the tokens with the largest squared log-ratio until the mean of the rest is below `limit`; keeps
    at least one (M2PO). To be computed over the whole batch, not a micro-batch."""
    squared = (at_least_float32(behaviour_logprobs) - at_least_float32(old_logprobs)).detach().square()
    ascending, order = squared.sort(stable=True)
    running_mean = ascending.cumsum(0) / torch.arange(1, len(squared) + 1, device=squared.device)
    dropped = running_mean >= limit
    dropped[:1] = False
    keep = torch.empty_like(dropped)
    keep[order] = ~dropped
    return keep


def corrected(loss: Tensor, *, weights: Tensor | None = None, keep: Tensor | None = None) -> Tensor:
    """[M]: loss · weight where `keep`, 0 elsewhere. Divide by the original counts afterwards."""
    if weights is not None:
        loss = loss * weights.detach()
    return loss if keep is None else torch.where(require_bool("keep", keep), loss, 0.0)


def _averaging_index(
    level: Level, rows: Tensor, num_rows: int, segments: tuple[Tensor, int] | None
) -> tuple[Tensor, int]:
    if level == "geometric":
        return rows, num_rows
    if level != "segment":
        raise ValueError(f"unknown level '{level}' (token, segment, geometric, sequence)")
    if segments is None:
        raise ValueError("level 'segment' needs the segments")
    return segments
