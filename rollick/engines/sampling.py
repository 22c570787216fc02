"""Drawing tokens: cuts, inverse CDF, log-probs. Pure functions of logits, settings and uniforms.

Every cut is one threshold on a row's probabilities (keep what is at least as likely as …). So top-k, top-p and
min-p combine by a maximum, tokens tied with the last kept one stay too, and nothing has to be sorted to draw. Where
nothing is cut, a draw costs one maximum, one exponential and one sum over the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rollick.engines.base import Sampling

BLOCK = 256
"""The CDF is searched in two levels: float64 over sums of this many tokens, then float64 inside one block."""
RADIX_WIDTHS = (11, 10, 10)
"""Bits per round of the search for a top-p cut; together the 31 bits of a float that is not negative."""
TOP_P_TOLERANCE = 1e-6
"""A set counts as reaching p when it does so within the rounding of float32 probabilities."""


@dataclass
class SamplingPlan:
    """The sampling settings of B rows as tensors [B, 1]; a flag is False where no row needs the step.

    `top_k` is the vocabulary size where nothing is cut.
    """

    temperature: torch.Tensor
    greedy: torch.Tensor
    top_k: torch.Tensor
    top_p: torch.Tensor
    min_p: torch.Tensor
    has_temperature: bool
    has_greedy: bool
    has_top_k: bool
    has_top_p: bool
    has_min_p: bool

    @classmethod
    def of(cls, rows: Sequence[Sampling], vocab_size: int, device: torch.device | str = "cpu") -> SamplingPlan:
        """Greedy rows are scored at temperature 1 and never cut."""
        greedy = [s.temperature == 0 for s in rows]
        temperature = [1.0 if g else s.temperature for s, g in zip(rows, greedy)]
        top_k = [vocab_size if g or s.top_k <= 0 else min(s.top_k, vocab_size) for s, g in zip(rows, greedy)]
        top_p = [1.0 if g else s.top_p for s, g in zip(rows, greedy)]
        min_p = [0.0 if g else s.min_p for s, g in zip(rows, greedy)]
        column = lambda values, dtype: torch.tensor(values, dtype=dtype, device=device)[:, None]
        return cls(
            temperature=column(temperature, torch.float32),
            greedy=column(greedy, torch.bool),
            top_k=column(top_k, torch.long),
            top_p=column(top_p, torch.float64),
            min_p=column(min_p, torch.float32),
            has_temperature=any(t != 1.0 for t in temperature),
            has_greedy=any(greedy),
            has_top_k=any(k < vocab_size for k in top_k),
            has_top_p=any(p < 1.0 for p in top_p),
            has_min_p=any(p > 0 for p in min_p),
        )

    @property
    def cuts(self) -> bool:
        return self.has_top_k or self.has_top_p or self.has_min_p


@dataclass(frozen=True)
class Draw:
    """One token per row, all [B]: ids int64, log-prob under the full (temperature-scaled) softmax and log of the
    kept mass, float64."""

    token_ids: torch.Tensor
    logprobs: torch.Tensor
    kept_logmass: torch.Tensor


def uniforms(seeds: Sequence[int], positions: Sequence[int]) -> np.ndarray:
    """float64[B] in [0, 1), a pure function of (seed, position): the counter-based generator that makes a request
    independent of its batch mates and of interruptions.

    SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators", 2014): the seed is mixed
    once, so that neighbouring seeds give unrelated streams, and `position` counts along its stream.
    """
    state = _mix(np.array([seed & 0xFFFFFFFFFFFFFFFF for seed in seeds], np.uint64) + _GOLDEN)
    counter = np.asarray(positions, np.uint64) + np.uint64(1)
    return (_mix(state + counter * _GOLDEN) >> np.uint64(11)).astype(np.float64) * 2.0**-53


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def _mix(z: np.ndarray) -> np.ndarray:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def draw(logits: torch.Tensor, plan: SamplingPlan, uniform: torch.Tensor) -> Draw:
    """One token for each row of `logits` [B, V] by `uniform` float64[B] in [0, 1).

    The logits may be overwritten. Rows with NaN or +inf come back with a log-prob that is not finite.

    Logits log([.55, .25, .15, .05]) with top_p 0.75 and u = 0.5 give id 0, log-prob -0.5978, kept mass -0.2231.
    """
    scaled = logits.float()
    if plan.has_temperature:
        scaled = scaled.div_(plan.temperature)
    weights = scaled.sub_(scaled.amax(-1, keepdim=True)).exp_()  # relative to the likeliest token, which has 1
    blocks = _block_sums(weights)
    total = blocks.sum(-1, keepdim=True)
    kept = total
    token = weights.argmax(-1, keepdim=True) if plan.has_greedy else None
    if plan.cuts:
        weights.masked_fill_(weights < _threshold(weights, total, plan), 0.0)
        blocks = _block_sums(weights)
        kept = torch.minimum(blocks.sum(-1, keepdim=True), total)
    sampled = _invert(weights, blocks, uniform[:, None])
    token = sampled if token is None else torch.where(plan.greedy, token, sampled)
    logprob = weights.gather(-1, token).double().log() - total.log()
    return Draw(token.squeeze(-1), logprob.squeeze(-1), (kept.log() - total.log()).squeeze(-1))


def _block_sums(weights: torch.Tensor) -> torch.Tensor:
    """float64[B, ceil(V / BLOCK)]"""
    rows, vocab = weights.shape
    whole = vocab // BLOCK * BLOCK
    sums = weights[:, :whole].view(rows, -1, BLOCK).sum(-1) if whole else weights.new_zeros(rows, 0)
    if whole < vocab:
        sums = torch.cat([sums, weights[:, whole:].sum(-1, keepdim=True)], -1)
    return sums.double()


def _invert(weights: torch.Tensor, blocks: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
    """int64[B, 1]: the first token whose cumulative weight exceeds uniform · total; never one of weight zero."""
    vocab = weights.shape[-1]
    cumulative = blocks.cumsum(-1)
    total = cumulative[:, -1:]
    target = torch.minimum(uniform * total, torch.nextafter(total, torch.zeros_like(total)))
    block = (cumulative <= target).sum(-1, keepdim=True).clamp_(max=blocks.shape[-1] - 1)
    rest = target - (cumulative.gather(-1, block) - blocks.gather(-1, block))
    index = block * BLOCK + torch.arange(BLOCK, device=weights.device)
    inner = weights.gather(-1, index.clamp(max=vocab - 1)).double().masked_fill_(index >= vocab, 0.0)
    inside = (inner.cumsum(-1) <= rest).sum(-1, keepdim=True)
    # the block's float32 sum and this float64 one may disagree in the last bit: stay on a token that has weight
    last = torch.where(inner > 0, torch.arange(BLOCK, device=weights.device), 0).amax(-1, keepdim=True)
    first = (inner > 0).to(torch.uint8).argmax(-1, keepdim=True)
    return block * BLOCK + inside.clamp_(min=first, max=last)


def _threshold(weights: torch.Tensor, total: torch.Tensor, plan: SamplingPlan) -> torch.Tensor:
    """[B, 1]: the weight of the last kept token; at most 1, the largest weight, so one token always stays."""
    cut = torch.zeros_like(total, dtype=torch.float32)
    if plan.has_top_k:
        uncut = plan.top_k == weights.shape[-1]
        wanted = int(plan.top_k.masked_fill(uncut, 1).max())
        kth = weights.topk(wanted, -1).values.gather(-1, plan.top_k.clamp(max=wanted) - 1)
        cut = kth.masked_fill_(uncut, 0.0)
    if plan.has_top_p:
        if plan.has_top_k:  # top-p counts the mass that top-k left
            total = _block_sums(weights.masked_fill(weights < cut, 0.0)).sum(-1, keepdim=True)
        cut = torch.maximum(cut, _top_p_threshold(weights, total, plan.top_p))
    return torch.maximum(cut, plan.min_p) if plan.has_min_p else cut


def _top_p_threshold(weights: torch.Tensor, total: torch.Tensor, top_p: torch.Tensor) -> torch.Tensor:
    """[B, 1]: the weight at which the likeliest tokens together reach `top_p` · `total`; 0 where top_p is 1.

    Radix selection instead of a sort: floats that are not negative are ordered like their bits, so the mass is
    counted by leading bits, then by the next bits of what shares the deciding ones, down to the last bit.
    """
    bits = weights.contiguous().view(torch.int32)
    target = top_p * total * (1 - TOP_P_TOLERANCE)
    above = torch.zeros_like(total)
    prefix, values, row, shift = torch.zeros_like(total, dtype=torch.long), weights.double(), None, 31
    for width in RADIX_WIDTHS:
        shift -= width
        digit = (bits >> shift & (2**width - 1)).long()
        mass = values.new_zeros(len(weights), 2**width)
        if row is None:
            mass.scatter_add_(1, digit, values)
        else:
            mass.view(-1).index_add_(0, row * 2**width + digit, values)
        reaching = above + mass.flip(-1).cumsum(-1).flip(-1)  # of all weights with this digit or a larger one
        chosen = ((reaching >= target).sum(-1, keepdim=True) - 1).clamp_(min=0)
        above = reaching.gather(-1, chosen) - mass.gather(-1, chosen)
        prefix = prefix << width | chosen
        if row is None:
            row, column = (digit == chosen).nonzero(as_tuple=True)
            bits, values = bits[row, column], values[row, column]
        else:
            same = digit == chosen[row, 0]
            row, bits, values = row[same], bits[same], values[same]
    return prefix.to(torch.int32).view(torch.float32).masked_fill_(top_p >= 1, 0.0)
