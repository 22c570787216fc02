"""The loss of a policy update: one of `algorithms/policy_losses` with corrections, KL to the reference and entropy.

Metrics, each a mean over what its weight counts:

| name | meaning |
|---|---|
| `loss/policy` | the policy loss, corrected and aggregated as the job says |
| `loss/kl` | the KL term, aggregated, before its coefficient |
| `loss/entropy` | the entropy bonus, aggregated, before its coefficient |
| `policy/clip_fraction` | share of live tokens that have an advantage and get no gradient from the policy loss |
| `policy/clip_fraction_low`, `policy/clip_fraction_high` | those with A < 0 and with A > 0 |
| `policy/approx_kl` | mean of log π_old − log π_θ: how far this batch's updates moved the policy |
| `policy/ratio` | mean importance ratio π_θ/π_old; 1 at the first update of a batch |
| `policy/entropy` | mean entropy per token in nats, where it was computed |
| `kl/reference` | mean of log π_θ − log π_ref per token (k1), where the KL is in the loss |
| `correction/weight` | mean importance weight of trainer over engine, where tokens are weighed |
| `correction/kept` | share of live tokens that no mask leaves out, where there is one |
| `mismatch/*` | rollout engine against trainer, see `algorithms.mismatch` |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rollick.algorithms.aggregation import Aggregation
from rollick.algorithms.corrections import corrected, opsm_keep
from rollick.algorithms.kl import KlEstimator, kl_estimate
from rollick.algorithms.mismatch import mismatch_terms
from rollick.algorithms.ratios import importance_ratio
from rollick.config.algorithm import AlgorithmSettings
from rollick.config.algorithm_parts import Part, find_part
from rollick.data.batch import Batch
from rollick.training.base import LossOutput, TokenOutputs, Totals
from rollick.training.loss_terms import LossTerms, required


@dataclass(frozen=True)
class KlTerm:
    """coef · KL to the reference in the loss. `off_policy` multiplies it by the importance ratio."""

    coef: float
    estimator: KlEstimator = "k3"
    straight_through: bool = False
    off_policy: bool = False


@dataclass(frozen=True)
class PolicyLoss:
    """`part` with its `options`, + KL term − entropy_coef · entropy.

    Reads of each live token `advantages`; `old_logprobs` where the batch has them (where not, the policy that is
    being updated is the old one: every ratio is 1); `behaviour_logprobs` for losses, corrections and metrics that
    compare with the engine; `ref_logprobs` for the KL term, whose coefficient is `kl_coef` where the batch has one
    per token; `selected`, `correction_weights` and `correction_keep`, chosen once per step for the whole batch.
    `max_length` is the constant of `sequence_mean_token_sum_norm`: the job's max_new_tokens.

        PolicyLoss(find_part("policy_loss", "gspo"), {"clip_low": 3e-4, "clip_high": 4e-4})

    Raises ValueError naming what the batch lacks, and what a loss of the user's own returned instead of [M] values.
    """

    part: Part = field(default_factory=lambda: find_part("policy_loss", "ppo"))
    options: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0
    aggregation: Aggregation = "token_mean"
    max_length: int = 0
    kl: KlTerm | None = None
    entropy_coef: float = 0.0
    opsm_limit: float | None = None

    @classmethod
    def from_settings(cls, algorithm: AlgorithmSettings, *, temperature: float, max_new_tokens: int) -> PolicyLoss:
        part = find_part("policy_loss", algorithm.policy_loss)
        kl = None
        if algorithm.kl_coef and algorithm.kl_placement == "loss":
            kl = KlTerm(
                algorithm.kl_coef, algorithm.kl_estimator, algorithm.kl_straight_through, algorithm.kl_off_policy
            )
        return cls(
            part=part,
            options=algorithm.options_of(part),
            temperature=temperature,
            aggregation=algorithm.loss_aggregation,
            max_length=max_new_tokens,
            kl=kl,
            entropy_coef=algorithm.entropy_coef,
            opsm_limit=algorithm.opsm_limit,
        )

    @property
    def needs_entropy(self) -> bool:
        return self.entropy_coef > 0

    def __call__(self, outputs: TokenOutputs, live: Batch, totals: Totals) -> LossOutput:
        terms = LossTerms(live, totals, self.aggregation, self.max_length)
        logprobs = outputs.logprobs
        old = live.tokens["old_logprobs"] if "old_logprobs" in live.tokens else logprobs.detach()
        policy = self._policy(logprobs, old, live, terms)
        loss = terms.add("loss/policy", self._corrected(policy, logprobs, live, terms))
        if self.kl is not None:
            loss = loss + self._kl(self.kl, logprobs, old, live, terms)
        if self.needs_entropy:
            if outputs.entropy is None:
                raise ValueError("entropy_coef > 0 needs the backend to compute the entropy")
            loss = loss - self.entropy_coef * terms.add("loss/entropy", outputs.entropy)
        if outputs.entropy is not None:
            terms.mean("policy/entropy", outputs.entropy)
        terms.mean("policy/approx_kl", old - logprobs)
        terms.mean("policy/ratio", importance_ratio(logprobs, old))
        if "behaviour_logprobs" in live.tokens:
            behaviour = live.tokens["behaviour_logprobs"]
            terms.extend("mismatch", mismatch_terms(behaviour, old, terms.rows, terms.num_rows))
        return LossOutput(loss, terms.metrics)

    def _policy(self, logprobs: Tensor, old: Tensor, live: Batch, terms: LossTerms) -> Tensor:
        advantages = required(live, "advantages", "the advantages are computed before the update")
        given: dict[str, Any] = {
            "logprobs": logprobs,
            "old_logprobs": old,
            "proximal_logprobs": old,
            "advantages": advantages,
            "rows": terms.rows,
            "num_rows": terms.num_rows,
        }
        for name in self.part.inputs:
            if name == "ratio":
                given[name] = importance_ratio(logprobs, old)
            elif name not in given:
                given[name] = required(live, name, f"policy_loss {self.part.name} reads it")
        values = self.part.load()(*(given[name] for name in self.part.inputs), **self.options)
        if not isinstance(values, Tensor) or values.shape != logprobs.shape:
            shape = tuple(values.shape) if isinstance(values, Tensor) else type(values).__name__
            raise ValueError(
                f"policy_loss {self.part.name} gives one value per token, {tuple(logprobs.shape)}, not {shape}"
            )
        _log_stopped(values, logprobs, advantages, terms)
        return values

    def _corrected(self, values: Tensor, logprobs: Tensor, live: Batch, terms: LossTerms) -> Tensor:
        weights = live.tokens.get("correction_weights", None)
        keep = live.tokens.get("correction_keep", None)
        if self.opsm_limit is not None:
            behaviour = required(live, "behaviour_logprobs", "opsm_limit compares with them")
            rows = (live.tokens["advantages"], terms.rows, terms.num_rows)
            inside = opsm_keep(logprobs, behaviour, *rows, limit=self.opsm_limit)
            keep = inside if keep is None else keep & inside
        if weights is not None:
            terms.mean("correction/weight", weights)
        if keep is not None:
            terms.mean("correction/kept", keep)
        return corrected(values, weights=weights, keep=keep)

    def _kl(self, kl: KlTerm, logprobs: Tensor, old: Tensor, live: Batch, terms: LossTerms) -> Tensor:
        ref = required(live, "ref_logprobs", "kl_coef > 0 needs the reference to be scored")
        values = kl_estimate(logprobs, ref, kl.estimator, straight_through=kl.straight_through)
        if kl.off_policy:
            values = importance_ratio(logprobs, old) * values
        terms.mean("kl/reference", logprobs - ref)
        terms.log("loss/kl", values)
        coef = live.tokens.get("kl_coef", kl.coef)
        return terms.aggregate(coef * values)


def _log_stopped(values: Tensor, logprobs: Tensor, advantages: Tensor, terms: LossTerms) -> None:
    """Tokens with an advantage that get no gradient, whatever it is that stops them: a clip, a mask, a selection."""
    if not values.requires_grad or not len(values):
        stopped = torch.zeros_like(advantages, dtype=torch.bool)
    else:
        stopped = torch.autograd.grad(values.sum(), logprobs, retain_graph=True)[0] == 0
    low, high = stopped & (advantages < 0), stopped & (advantages > 0)
    terms.mean("policy/clip_fraction", low | high)
    terms.mean("policy/clip_fraction_low", low)
    terms.mean("policy/clip_fraction_high", high)
