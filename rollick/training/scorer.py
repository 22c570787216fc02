"""The module that is sharded and trained: a causal language model that answers with log-probs, never logits."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from rollick.errors import ConfigError
from rollick.models.attention import RowLayout, can_pack, use_row_attention
from rollick.models.heads import HeadOptions, token_logprobs
from rollick.training.packing import ModelInputs

PROBE_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3, torch.bfloat16: 0.3, torch.float16: 0.05}
"""Largest difference in log-prob that rounding explains, by dtype of the weights."""


class TokenScorer(nn.Module):
    """Wraps a Hugging Face causal LM (`model`). Its forward covers body and head in one call, so that a sharded
    model's weights are gathered before and freed after it."""

    def __init__(self, model: Any, packed: bool):
        super().__init__()
        self.model = model
        self.packed = packed
        self.options = HeadOptions.from_config(model.config.get_text_config())
        if packed:
            use_row_attention(model)

    def forward(self, inputs: ModelInputs, temperature: float, entropy: bool) -> tuple[Tensor, Tensor | None]:
        """Log-probs and entropies [M] of `inputs.targets`, see `models.heads.token_logprobs`."""
        layout = {"row_layout": inputs.row_layout} if self.packed else {}
        states = self.model.base_model(
            input_ids=inputs.input_ids, position_ids=inputs.position_ids, use_cache=False, **layout
        ).last_hidden_state
        hidden = states.flatten(0, 1).index_select(0, inputs.predictors)
        head = self.model.get_output_embeddings()
        return token_logprobs(hidden, head, inputs.targets, temperature, entropy, self.options)

    def layers(self) -> list[nn.Module]:
        """The decoder layers: the units of sharding and of activation checkpointing."""
        kinds = set(self.model._no_split_modules or ())
        return [module for module in self.model.modules() if type(module).__name__ in kinds]

    def checkpoint_activations(self) -> None:
        """Keep only the inputs of each layer and compute the rest again in the backward pass. Nothing in a layer
        draws random numbers (the model stays in eval mode), so no random state needs to be kept."""
        for layer in self.layers():
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False)


def build_scorer(model: Any, packing: str, attention: str) -> TokenScorer:
    """A scorer that packs rows where that is asked for or possible, checked against the model's own logits.

    Raises ConfigError when `packing: packed` asks what the model cannot do, and when its log-probs differ from
    the model's own: then it computes logits, or mixes tokens, in a way that the trainer does not know.
    """
    through_sdpa = attention in ("auto", "sdpa")
    packable = can_pack(model) and through_sdpa
    if packing == "packed" and not packable:
        reason = f"{type(model).__name__} mixes tokens otherwise" if through_sdpa else f"model.attention is {attention}"
        raise ConfigError(f"trainer.packing: 'packed' needs attention through sdpa, but {reason}; use 'padded'")
    rows = torch.arange(8).view(2, 4) % model.config.get_text_config().vocab_size
    expected = _own_logprobs(model, rows)
    scorer = TokenScorer(model, packable and packing != "padded")
    with torch.no_grad():
        ours, _ = scorer(_probe_inputs(rows, scorer.packed).to(model.device), 1.0, False)
    worst = float((ours - expected).abs().max())
    if not worst <= PROBE_TOLERANCE[model.dtype]:
        raise ConfigError(
            f"model.path: {type(model).__name__} computes its logits in a way that the trainer does not know "
            f"(log-probs differ by {worst:.2g}), so it cannot be trained"
        )
    return scorer


def _own_logprobs(model: Any, rows: Tensor) -> Tensor:
    with torch.no_grad():
        logits = model(input_ids=rows.to(model.device), use_cache=False).logits[:, :-1]
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    return logits.log_softmax(-1).gather(2, rows[:, 1:, None].to(logits.device)).flatten()


def _probe_inputs(rows: Tensor, packed: bool) -> ModelInputs:
    count, length = rows.shape
    places = torch.arange(rows.numel()).view(rows.shape)
    positions = torch.arange(length).expand(count, length)
    predictors, targets = places[:, :-1].flatten(), rows[:, 1:].flatten()
    if not packed:
        return ModelInputs(rows, positions, predictors, targets)
    layout = RowLayout.of(list(places), rows.numel())
    return ModelInputs(rows.view(1, -1), positions.reshape(1, -1), predictors, targets, layout)
