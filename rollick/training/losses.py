"""The losses that a train backend runs: the policy's (RL) and the likelihood's (SFT).

Metrics, each a mean over what its weight counts:

| name | meaning |
|---|---|
| `loss/policy` | the clipped surrogate loss, aggregated as the job says |
| `loss/kl` | the KL term, aggregated, before its coefficient |
| `loss/entropy` | the entropy bonus, aggregated, before its coefficient |
| `policy/clip_fraction` | share of live tokens whose gradient the clip range stops |
| `policy/clip_fraction_low`, `policy/clip_fraction_high` | those below (A < 0) and above (A > 0) the range |
| `policy/approx_kl` | mean of log π_old − log π_θ: how far this batch's updates moved the policy |
| `policy/ratio` | mean importance ratio π_θ/π_old; 1 at the first update of a batch |
| `policy/entropy` | mean entropy per token in nats, where it was computed |
| `kl/reference` | mean of log π_θ − log π_ref per token (k1), where a reference is loaded |
| `mismatch/*` | rollout engine against trainer, see `algorithms.mismatch` |
| `loss/nll` | mean negative log-likelihood per token in nats (SFT) |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rollick.algorithms.aggregation import (
    Aggregation,
    aggregate,
    aggregation_numerator,
    live_sequences,
)
from rollick.algorithms.kl import KlEstimator, kl_estimate
from rollick.algorithms.mismatch import mismatch_terms
from rollick.algorithms.policy_losses.ppo import ppo_clipped, ppo_loss
from rollick.algorithms.ratios import importance_ratio
from rollick.config.rl import AlgorithmSettings
from rollick.data.batch import Batch
from rollick.training.base import LossOutput, TokenOutputs, Totals

Metric = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class PolicyLoss:
    """PPO's clipped loss + kl_coef · KL to the reference − entropy_coef · entropy.

    Reads `advantages` of each live token; `old_logprobs` where the batch has them (where not, the policy that is
    being updated is the old one: every ratio is 1); `ref_logprobs` when kl_coef > 0; `behaviour_logprobs` for the
    mismatch metrics. `max_length` is the constant of `sequence_mean_token_sum_norm`: the job's max_new_tokens.

    Raises ValueError naming what the batch lacks.
    """

    temperature: float = 1.0
    clip_low: float = 0.2
    clip_high: float = 0.2
    dual_clip: float | None = None
    kl_coef: float = 0.0
    kl_estimator: KlEstimator = "k3"
    entropy_coef: float = 0.0
    aggregation: Aggregation = "token_mean"
    max_length: int = 0

    @classmethod
    def from_settings(cls, algorithm: AlgorithmSettings, *, temperature: float, max_new_tokens: int) -> PolicyLoss:
        return cls(
            temperature=temperature,
            clip_low=algorithm.clip_low,
            clip_high=algorithm.clip_high,
            dual_clip=algorithm.dual_clip,
            kl_coef=algorithm.kl_coef,
            kl_estimator=algorithm.kl_estimator,
            entropy_coef=algorithm.entropy_coef,
            aggregation=algorithm.loss_aggregation,
            max_length=max_new_tokens,
        )

    @property
    def needs_entropy(self) -> bool:
        return self.entropy_coef > 0

    def __call__(self, outputs: TokenOutputs, live: Batch, totals: Totals) -> LossOutput:
        terms = _Terms(live, totals, self.aggregation, self.max_length)
        logprobs = outputs.logprobs
        advantages = _tensor(live, "advantages", "the advantages are computed before the update")
        old = live.tokens["old_logprobs"] if "old_logprobs" in live.tokens else logprobs.detach()
        ratio = importance_ratio(logprobs, old)
        clip = {"clip_low": self.clip_low, "clip_high": self.clip_high}
        loss = terms.add("loss/policy", ppo_loss(ratio, advantages, dual_clip=self.dual_clip, **clip))
        if self.kl_coef > 0:
            ref = _tensor(live, "ref_logprobs", "kl_coef > 0 needs the reference to be scored")
            loss = loss + self.kl_coef * terms.add("loss/kl", kl_estimate(logprobs, ref, self.kl_estimator))
            terms.mean("kl/reference", logprobs - ref)
        if self.needs_entropy:
            if outputs.entropy is None:
                raise ValueError("entropy_coef > 0 needs the backend to compute the entropy")
            loss = loss - self.entropy_coef * terms.add("loss/entropy", outputs.entropy)
        if outputs.entropy is not None:
            terms.mean("policy/entropy", outputs.entropy)
        clipped = ppo_clipped(ratio, advantages, **clip)
        terms.mean("policy/clip_fraction", clipped.low | clipped.high)
        terms.mean("policy/clip_fraction_low", clipped.low)
        terms.mean("policy/clip_fraction_high", clipped.high)
        terms.mean("policy/approx_kl", old - logprobs)
        terms.mean("policy/ratio", ratio)
        if "behaviour_logprobs" in live.tokens:
            behaviour = live.tokens["behaviour_logprobs"]
            terms.extend("mismatch", mismatch_terms(behaviour, old, terms.rows, terms.num_rows))
        return LossOutput(loss, terms.metrics)


@dataclass(frozen=True)
class SftLoss:
    """Negative log-likelihood of the live tokens. The perplexity is exp of the logged `loss/nll`."""

    aggregation: Aggregation = "token_mean"
    temperature: float = 1.0
    needs_entropy: bool = False

    def __call__(self, outputs: TokenOutputs, live: Batch, totals: Totals) -> LossOutput:
        terms = _Terms(live, totals, self.aggregation)
        nll = -outputs.logprobs
        loss = terms.aggregate(nll)
        terms.mean("loss/nll", nll)
        return LossOutput(loss, terms.metrics)


class _Terms:
    """Aggregates per-token values of one micro-batch and collects their metrics as (sum, weight)."""

    def __init__(self, live: Batch, totals: Totals, aggregation: Aggregation, max_length: int = 0):
        self.rows, self.num_rows = live.row_index(), live.num_rows
        self.sequences = live_sequences(self.rows, self.num_rows)
        self.totals, self.aggregation, self.max_length = totals, aggregation, max_length
        self.metrics: dict[str, Metric] = {}

    def aggregate(self, values: Tensor) -> Tensor:
        return aggregate(
            values,
            self.rows,
            self.num_rows,
            self.aggregation,
            tokens=self.totals.tokens,
            sequences=self.totals.sequences,
            max_length=self.max_length,
        )

    def add(self, name: str, values: Tensor) -> Tensor:
        """The aggregated share of `values` [M], logged under `name`."""
        numerator = aggregation_numerator(
            values.detach(), self.rows, self.num_rows, self.aggregation, max_length=self.max_length
        )
        weight = len(values) if self.aggregation == "token_mean" else self.sequences
        self._log(name, numerator, weight)
        return self.aggregate(values)

    def mean(self, name: str, values: Tensor) -> None:
        """Log the mean over live tokens."""
        self._log(name, values.detach().sum(dtype=torch.float64), len(values))

    def extend(self, prefix: str, terms: Mapping[str, Metric]) -> None:
        self.metrics |= {
            f"{prefix}/{name}": (total.double(), weight.double()) for name, (total, weight) in terms.items()
        }

    def _log(self, name: str, total: Tensor, weight: int) -> None:
        self.metrics[name] = (total.double(), total.new_tensor(weight, dtype=torch.float64))


def _tensor(live: Batch, name: str, why: str) -> Tensor:
    if name not in live.tokens:
        raise ValueError(f"the batch has no '{name}': {why}")
    return live.tokens[name]
