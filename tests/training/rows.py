"""Batches, a plain loss and a naive trainer for tests of train backends."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from rollick.config.job import ModelSettings, TrainerSettings
from rollick.data.batch import Batch
from rollick.data.records import Sample
from rollick.training.base import LossOutput, TokenOutputs, Totals
from rollick.training.fsdp import FsdpBackend

VOCAB = 300


def make_sample(name: str, prompt: int, answer: int, group: str = "g", seed: int = 0) -> Sample:
    """A row of random tokens whose last `answer` ones are live."""
    length = prompt + answer
    mask = np.arange(length) >= prompt
    return Sample(
        id=name,
        group_id=group,
        task_id="t",
        domain="d",
        token_ids=np.random.default_rng(seed).integers(3, VOCAB, length),
        loss_mask=mask,
        behaviour_logprobs=np.zeros(length, np.float32),
        kept_logmass=np.zeros(length, np.float32),
        versions=np.where(mask, 0, -1),
        segments=[(prompt, length)] if answer else [],
        reward=1.0,
        truncated=False,
    )


def ragged_batch(rows: int = 8, seed: int = 0) -> Batch:
    """Rows of 4 to 40 tokens; `coefficients` (per token) make a loss in which every token counts differently."""
    rng = np.random.default_rng(seed)
    samples = [
        make_sample(f"s{i}", int(rng.integers(2, 9)), int(rng.integers(1, 32)), f"g{i // 2}", seed * 1000 + i)
        for i in range(rows)
    ]
    return with_coefficients(Batch.from_samples(samples), seed)


def with_coefficients(batch: Batch, seed: int = 0) -> Batch:
    generator = torch.Generator().manual_seed(seed)
    batch.tokens["coefficients"] = torch.randn(batch.num_tokens, generator=generator, dtype=torch.float64)
    return batch


@dataclass(frozen=True)
class MeanLoss:
    """-Σ logprobs / tokens, or with row means: -Σ over rows of the row's mean / sequences."""

    temperature: float = 1.0
    needs_entropy: bool = False
    by_row: bool = False

    def __call__(self, outputs: TokenOutputs, live: Batch, totals: Totals) -> LossOutput:
        loss = -outputs.logprobs
        if self.by_row:
            share = loss / live.lengths[live.row_index()]
            return LossOutput(share.sum() / totals.sequences)
        ones = loss.new_tensor(len(loss))
        return LossOutput(loss.sum() / totals.tokens, {"nll": (loss.detach().sum(), ones)})


@dataclass(frozen=True)
class WeightedLoss:
    """Σ coefficient · logprob (- half the entropies) / tokens, with the coefficients that the batch carries."""

    temperature: float = 0.7
    needs_entropy: bool = True

    def __call__(self, outputs: TokenOutputs, live: Batch, totals: Totals) -> LossOutput:
        weight = live.tokens["coefficients"].to(outputs.logprobs.dtype)
        terms = weight * outputs.logprobs
        if outputs.entropy is not None:
            terms = terms - 0.5 * outputs.entropy
        count = terms.new_tensor(len(terms))
        return LossOutput(terms.sum() / totals.tokens, {"weighted": (terms.detach().sum(), count)})


def backend(folder, dtype: str = "float64", rank: int = 0, ranks: int = 1, **options) -> FsdpBackend:
    """A backend whose one SGD-like step shows the gradient: see `gradients_of`."""
    known = {"attention", "trust_remote_code"}
    model = ModelSettings(path=str(folder), dtype=dtype, **{k: options.pop(k) for k in known & set(options)})
    own = {k: options.pop(k) for k in ("trainable", "rendezvous", "timeout", "planned_updates") if k in options}
    settings = TrainerSettings(**{"learning_rate": 1e-3, **options})
    return FsdpBackend(
        rank, ranks, model, settings, own.pop("planned_updates", 100), device="cpu", **{"timeout": 60.0, **own}
    )


def snapshot(one: FsdpBackend) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for bucket in one.weights(1 << 16) for name, tensor in bucket.items()}


def first_moments(one: FsdpBackend, betas: float = 0.9) -> dict[str, torch.Tensor]:
    """The gradients of a backend's first update: AdamW's first moment divided by 1 - beta1.

    Use it with `max_grad_norm=None`."""
    state = one._state()
    return {
        name.removeprefix("optimizer/").removesuffix("/exp_avg"): whole(tensor) / (1 - betas)
        for name, tensor in state.items()
        if name.endswith("/exp_avg")
    }


def whole(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor.clone()
