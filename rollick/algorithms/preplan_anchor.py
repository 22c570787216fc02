"""Preplan-and-Anchor (arXiv 2510.13554): more credit for the tokens that open a thought and those that it hangs on.

All functions take one answer of N tokens. An attention map is [N, S]: row t is how answer token t attends to the S
tokens of prompt and answer (the last N of them; rows sum to 1, nothing after t).

What the paper leaves open, and the choice here: the last token's Δ is 0; a top share is max(1, floor(share·N)), ties
to the earlier token; thresholds of the coupled scheme are arguments (quantiles of WAAD and Δ within the answer are a
sensible choice); α = 0.5, k = 3.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.selection import largest, share


def head_spans(attention: Tensor) -> Tensor:
    """[H]: how far back each head looks on average, over answer tokens. `attention` [H, N, S]."""
    return (attention * _distances(attention)).sum(-1).mean(-1)


def select_heads(spans: Tensor, *, fraction: float = 0.3) -> tuple[Tensor, Tensor]:
    """bool[H] twice: the local heads (the `fraction` of the smallest spans) and the global ones (of the largest)."""
    count = share(fraction, len(spans), at_least=1)
    return largest(-spans, count), largest(spans, count)


def waad(local_map: Tensor, *, window: int = 10) -> Tensor:
    """[N]: windowed average attention distance, Σ_s A_ts·min(t − s, window) of the local heads' mean map [N, S]. It
    drops where a new chunk opens."""
    return (local_map * _distances(local_map).clamp(max=window)).sum(-1)


def future_attention(global_map: Tensor, *, nearest: int = 10, farthest: int = 50) -> Tensor:
    """[N]: FAI, the mean attention that answer token s gets from answer tokens s + nearest … s + farthest in the
    global heads' mean map [N, S]; 0 where there are none. (The paper's second version takes farthest = 100.)"""
    distance = _distances(global_map)
    later = (distance >= nearest) & (distance <= farthest)
    received = torch.where(later, global_map, 0.0).sum(0) / later.sum(0).clamp(min=1)
    return received[-len(global_map) :]


def waad_change(waad_values: Tensor) -> Tensor:
    """[N]: Δ_t = abs(WAAD_t − WAAD_{t+1}), 0 for the last token."""
    return torch.nn.functional.pad(waad_values.diff().abs(), (0, 1))


def local_chunk_scale(change: Tensor, *, fraction: float = 0.4, amplify: float = 1.5) -> Tensor:
    """[N]: γ = amplify on the top `fraction` of Δ, 1 elsewhere."""
    return torch.ones_like(change).masked_fill(_top(change, fraction), amplify)


def global_anchor_scale(fai: Tensor, *, fraction: float = 0.4, amplify: float = 1.5) -> Tensor:
    """[N]: γ = amplify on the top `fraction` of FAI, 1 elsewhere."""
    return torch.ones_like(fai).masked_fill(_top(fai, fraction), amplify)


def coupled_scale(
    waad_values: Tensor,
    fai: Tensor,
    *,
    waad_limit: float,
    change_limit: float,
    fraction: float = 0.4,
    amplify: float = 1.5,
    alpha: float = 0.5,
    lookback: int = 3,
) -> Tensor:
    """[N]: γ of anchors (top `fraction` of FAI), where an anchor inside a chunk gives the share α of its bonus to the
    token that opened the chunk.

    An anchor is dependent when its WAAD is at most `waad_limit` and some Δ among the `lookback` tokens before it
    reaches `change_limit`; its opener is the token with the largest of these Δ. An opener of two anchors counts once.
    """
    change, anchors = waad_change(waad_values), _top(fai, fraction)
    before = torch.nn.functional.pad(change, (lookback, 0), value=-torch.inf)[: len(change) + lookback - 1]
    before = before.unfold(0, lookback, 1)  # [N, lookback]: Δ of t − lookback … t − 1
    peak = before.max(-1).values
    dependent = anchors & (waad_values <= waad_limit) & (peak >= change_limit)
    first_peak = (before == peak[:, None]).long().argmax(-1)  # of 0s and 1s: the first 1
    openers = torch.zeros_like(anchors)
    positions = torch.arange(len(change), device=change.device) - lookback + first_peak
    openers[positions[dependent]] = True
    scale = torch.ones_like(change)
    scale[anchors & ~dependent] += amplify - 1
    scale[dependent] += (1 - alpha) * (amplify - 1)
    scale[openers] += alpha * (amplify - 1)
    return scale


def scale_advantages(advantages: Tensor, gamma: Tensor, *, signs: Literal["both", "non_negative"] = "both") -> Tensor:
    """[N]: γ·A, a constant; with "non_negative" (the paper's first version) negative advantages stay as they are."""
    if signs not in ("both", "non_negative"):
        raise ValueError(f"signs is 'both' or 'non_negative', got '{signs}'")
    scaled = gamma.detach() * advantages
    return scaled if signs == "both" else torch.where(advantages >= 0, scaled, advantages)


def _distances(attention: Tensor) -> Tensor:
    """[N, S]: t − s in tokens, 0 for what lies in the future."""
    queries, keys = attention.shape[-2:]
    positions = torch.arange(keys, device=attention.device)
    return (positions[-queries:, None] - positions).clamp(min=0)


def _top(values: Tensor, fraction: float) -> Tensor:
    return largest(values, share(fraction, len(values), at_least=1))
