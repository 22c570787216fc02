"""Aggregating per-token values of one micro-batch, and logging what they were."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from rollick.algorithms.aggregation import Aggregation, aggregate, aggregation_numerator, live_sequences
from rollick.data.batch import Batch
from rollick.training.base import Totals

Metric = tuple[Tensor, Tensor]


class LossTerms:
    """Turns values [M] into shares of the global loss and collects their metrics as (sum, weight).

    `max_length` is the constant of `sequence_mean_token_sum_norm`.
    """

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
        self.log(name, values)
        return self.aggregate(values)

    def log(self, name: str, values: Tensor) -> None:
        """Log the aggregated `values` [M]."""
        numerator = aggregation_numerator(
            values.detach(), self.rows, self.num_rows, self.aggregation, max_length=self.max_length
        )
        weight = len(values) if self.aggregation == "token_mean" else self.sequences
        self._put(name, numerator, weight)

    def mean(self, name: str, values: Tensor) -> None:
        """Log the mean over live tokens."""
        self._put(name, values.detach().sum(dtype=torch.float64), len(values))

    def extend(self, prefix: str, terms: Mapping[str, Metric]) -> None:
        self.metrics |= {
            f"{prefix}/{name}": (total.double(), weight.double()) for name, (total, weight) in terms.items()
        }

    def _put(self, name: str, total: Tensor, weight: int) -> None:
        self.metrics[name] = (total.double(), total.new_tensor(weight, dtype=torch.float64))


def required(live: Batch, name: str, why: str) -> Tensor:
    """Values [M] of the live tokens. Raises ValueError saying what the batch lacks and why it is needed."""
    if name not in live.tokens:
        raise ValueError(f"the batch has no '{name}': {why}")
    return live.tokens[name]
