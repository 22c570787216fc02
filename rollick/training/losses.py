"""The likelihood loss of supervised fine-tuning. `loss/nll` is the mean negative log-likelihood per token in nats."""

from __future__ import annotations

from dataclasses import dataclass

from rollick.algorithms.aggregation import Aggregation
from rollick.data.batch import Batch
from rollick.training.base import LossOutput, TokenOutputs, Totals
from rollick.training.loss_terms import LossTerms


@dataclass(frozen=True)
class SftLoss:
    """Negative log-likelihood of the live tokens. The perplexity is exp of the logged `loss/nll`."""

    aggregation: Aggregation = "token_mean"
    temperature: float = 1.0
    needs_entropy: bool = False

    def __call__(self, outputs: TokenOutputs, live: Batch, totals: Totals) -> LossOutput:
        terms = LossTerms(live, totals, self.aggregation)
        nll = -outputs.logprobs
        loss = terms.aggregate(nll)
        terms.mean("loss/nll", nll)
        return LossOutput(loss, terms.metrics)
