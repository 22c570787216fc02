"""Log-probs and entropies of given tokens, without ever holding a [tokens, vocab] matrix.

The language-model head is applied tile by tile (some tokens × some of the vocabulary), forward and backward; the
backward pass computes the logits of a tile again instead of keeping them. Memory beyond inputs and outputs is one
or two tiles, whatever the batch: the online log-sum-exp of Milakov & Gimelshein (1805.02867) over vocabulary tiles.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable


@dataclass(frozen=True)
class Tile:
    """At most `tokens` rows and `elements` logits."""

    tokens: int
    elements: int


CPU_TILE = Tile(1024, 2**20)
"""4 MB in float32 stay in the cache between the matrix product and the reduction behind it: 1.4 times faster than
16 MB in the forward pass."""
ACCELERATOR_TILE = Tile(4096, 2**24)
"""64 MB in float32 keep a large device busy."""


@dataclass(frozen=True)
class HeadOptions:
    """What stands between the head's matrix product and the softmax: logits = cap · tanh(scale · (W h + b) / cap).

    `scale` is Cohere's logit_scale or 1 / Granite's logits_scaling; `softcap` Gemma's final_logit_softcapping.
    """

    scale: float = 1.0
    softcap: float | None = None

    @classmethod
    def from_config(cls, config: Any) -> HeadOptions:
        scale = float(getattr(config, "logit_scale", None) or 1.0) / float(
            getattr(config, "logits_scaling", None) or 1.0
        )
        return cls(scale, getattr(config, "final_logit_softcapping", None))


def token_logprobs(
    hidden: Tensor,
    head: nn.Linear,
    targets: Tensor,
    temperature: float,
    entropy: bool = False,
    options: HeadOptions = HeadOptions(),
) -> tuple[Tensor, Tensor | None]:
    """Log-prob of `targets` [M] under softmax(logits / temperature), and the entropy of that softmax in nats.

    `hidden` [M, H] are the states that predict them. Both results are [M] in float32 (float64 when the weights
    are), with gradient to `hidden`, the head's weight and bias. Raises ValueError when temperature is not positive.

    Hidden [[1, 0]] and a head of rows (log 2, 0), (0, 1), (0, 0) give logits log 2, 0, 0: probabilities .5, .25,
    .25. Target 0 has log-prob -0.6931; the entropy is 1.0397.
    """
    if not temperature > 0:
        raise ValueError(f"log-probs need a temperature above 0, got {temperature}")
    logprobs, entropies = _TiledHead.apply(hidden, head.weight, head.bias, targets, temperature, entropy, options)
    return logprobs, entropies if entropy else None


class _TiledHead(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        entropy: bool,
        options: HeadOptions,
    ) -> tuple[Tensor, Tensor]:
        dtype = torch.promote_types(weight.dtype, torch.float32)
        top = hidden.new_full((len(hidden),), -torch.inf, dtype=dtype)
        mass, weighted, chosen = (torch.zeros_like(top) for _ in range(3))
        for vocab in _vocab_slices(hidden, weight):
            for rows in _row_slices(hidden):
                logits, _ = _tile_logits(hidden[rows], weight[vocab], _part(bias, vocab), temperature, options)
                chosen[rows] += _at_targets(logits, targets[rows], vocab)
                new_top = torch.maximum(top[rows], logits.amax(-1))
                shrink = (top[rows] - new_top).exp()
                if entropy:
                    share = (logits - new_top[:, None]).exp_()
                    mass[rows] = mass[rows] * shrink + share.sum(-1)
                    weighted[rows] = weighted[rows] * shrink + share.mul_(logits).sum(-1)
                else:
                    mass[rows] = mass[rows] * shrink + logits.sub_(new_top[:, None]).exp_().sum(-1)
                top[rows] = new_top
        log_normaliser = top + mass.log()
        entropies = log_normaliser - weighted / mass if entropy else torch.zeros_like(top)
        ctx.save_for_backward(hidden, weight, bias, targets, log_normaliser, entropies)
        ctx.temperature, ctx.entropy, ctx.options = temperature, entropy, options
        return chosen - log_normaliser, entropies

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logprobs: Tensor, grad_entropies: Tensor) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, log_normaliser, entropies = ctx.saved_tensors
        # A token without advantage, or beyond the clip range, has gradient 0: half of a batch may need no work.
        active = ((grad_logprobs != 0) | (grad_entropies != 0)).nonzero()[:, 0]
        if partial := len(active) < len(hidden):
            hidden, targets, log_normaliser, entropies, grad_logprobs, grad_entropies = (
                x[active] for x in (hidden, targets, log_normaliser, entropies, grad_logprobs, grad_entropies)
            )
        wants_hidden, wants_weight, wants_bias = ctx.needs_input_grad[:3]
        if ctx.options.softcap is None:
            slope = ctx.options.scale / ctx.temperature
            grad_logprobs, grad_entropies = grad_logprobs * slope, grad_entropies * slope
        grad_hidden = torch.zeros_like(hidden, dtype=log_normaliser.dtype) if wants_hidden else None
        grad_weight = torch.empty_like(weight) if wants_weight else None
        grad_bias = torch.empty_like(bias) if wants_bias else None
        for vocab in _vocab_slices(hidden, weight):
            width = vocab.stop - vocab.start
            weight_part = log_normaliser.new_zeros((width, weight.shape[1])) if wants_weight else None
            bias_part = log_normaliser.new_zeros(width) if wants_bias else None
            for rows in _row_slices(hidden):
                logits, bend = _tile_logits(
                    hidden[rows], weight[vocab], _part(bias, vocab), ctx.temperature, ctx.options
                )
                tilts = (grad_entropies[rows], entropies[rows]) if ctx.entropy else None
                grad = _softmax_gradient(logits, log_normaliser[rows], grad_logprobs[rows], tilts)
                _add_at_targets(grad, targets[rows], vocab, grad_logprobs[rows])
                if bend is not None:
                    grad = grad.mul_(bend)
                if grad_hidden is not None:
                    _add_product(grad_hidden[rows], grad, weight[vocab])
                if weight_part is not None:
                    _add_product(weight_part, grad.T, hidden[rows])
                if bias_part is not None:
                    bias_part += grad.sum(0)
            if grad_weight is not None and weight_part is not None:
                grad_weight[vocab] = weight_part
            if grad_bias is not None and bias_part is not None:
                grad_bias[vocab] = bias_part
        if grad_hidden is not None:
            grad_hidden = grad_hidden.to(hidden.dtype)
            if partial:
                grad_hidden = hidden.new_zeros(ctx.saved_tensors[0].shape).index_copy_(0, active, grad_hidden)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None


def _softmax_gradient(
    logits: Tensor, log_normaliser: Tensor, grad_logprobs: Tensor, entropy: tuple[Tensor, Tensor] | None
) -> Tensor:
    """The part of d / d logits that is not at the target, in place: -p · (g + g_H · (log p + H)), with g, g_H the
    gradients that reach log-prob and entropy H."""
    logp = logits.sub_(log_normaliser[:, None])
    pull = -grad_logprobs[:, None]
    if entropy is not None:
        grad_entropies, entropies = entropy
        pull = pull - grad_entropies[:, None] * (logp + entropies[:, None])
    return logp.exp_().mul_(pull)


def _tile(hidden: Tensor) -> Tile:
    return CPU_TILE if hidden.device.type == "cpu" else ACCELERATOR_TILE


def _vocab_slices(hidden: Tensor, weight: Tensor) -> list[slice]:
    tile, vocab = _tile(hidden), weight.shape[0]
    width = max(256, tile.elements // max(1, min(len(hidden), tile.tokens)))
    return [slice(start, min(start + width, vocab)) for start in range(0, vocab, width)]


def _row_slices(hidden: Tensor) -> list[slice]:
    step = _tile(hidden).tokens
    return [slice(start, min(start + step, len(hidden))) for start in range(0, len(hidden), step)]


def _part(bias: Tensor | None, vocab: slice) -> Tensor | None:
    return None if bias is None else bias[vocab]


def _tile_logits(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, temperature: float, options: HeadOptions
) -> tuple[Tensor, Tensor | None]:
    """Logits / temperature of one tile, and, where they are bent, their derivative by the head's linear output."""
    logits = nn.functional.linear(hidden, weight, bias).to(torch.promote_types(weight.dtype, torch.float32))
    if options.softcap is None:
        scale = options.scale / temperature
        return (logits if scale == 1 else logits.mul_(scale)), None
    bent = logits.mul_(options.scale / options.softcap).tanh_()
    slope = (1 - bent.square()).mul_(options.scale / temperature)
    return bent.mul_(options.softcap / temperature), slope


def _columns(targets: Tensor, vocab: slice) -> tuple[Tensor, Tensor]:
    inside = (targets >= vocab.start) & (targets < vocab.stop)
    return inside, (targets - vocab.start).clamp(0, vocab.stop - vocab.start - 1)[:, None]


def _at_targets(logits: Tensor, targets: Tensor, vocab: slice) -> Tensor:
    """Each row's logit at its target, 0 where the target lies in another tile."""
    inside, column = _columns(targets, vocab)
    return torch.where(inside, logits.gather(1, column)[:, 0], 0.0)


def _add_at_targets(grad: Tensor, targets: Tensor, vocab: slice, values: Tensor) -> None:
    inside, column = _columns(targets, vocab)
    grad.scatter_add_(1, column, torch.where(inside, values, 0.0)[:, None])


def _add_product(total: Tensor, a: Tensor, b: Tensor) -> None:
    """total += a @ b, multiplied in b's dtype, added in total's."""
    if total.dtype == b.dtype:
        total.addmm_(a, b)
    else:
        total += a.to(b.dtype) @ b
