"""From a loss per token to one number, with exact global denominators.

| mode | value |
|---|---|
| `token_mean` | Σ ℓ / tokens |
| `sequence_mean_token_mean` | Σ_i (Σ_t ℓ_it / L_i) / sequences |
| `sequence_mean_token_sum` | Σ ℓ / sequences |
| `sequence_mean_token_sum_norm` | Σ ℓ / (sequences · max_length), Dr.GRPO (arXiv 2503.20783) as in TRL |

`tokens` and `sequences` count live tokens and rows with at least one, over the whole optimiser update (all
micro-batches and ranks); L_i is the row's own number of live tokens. Shares of micro-batches then add up to the
same value however the update is cut. A row without live tokens contributes nothing and counts nowhere.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from rollick.algorithms.segments import segment_count, segment_mean

Aggregation = Literal[
    "token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "sequence_mean_token_sum_norm"
]


def aggregation_numerator(
    values: Tensor, rows: Tensor, num_rows: int, mode: Aggregation, *, max_length: int = 0
) -> Tensor:
    """Scalar: what these rows add to the numerator. `values` [M], `rows` int64[M].

    Raises ValueError for an unknown mode, and for `sequence_mean_token_sum_norm` without a max_length.
    """
    if mode in ("token_mean", "sequence_mean_token_sum"):
        return values.sum()
    if mode == "sequence_mean_token_mean":
        return segment_mean(values, rows, num_rows).sum()
    if mode == "sequence_mean_token_sum_norm":
        if max_length <= 0:
            raise ValueError(f"sequence_mean_token_sum_norm divides by max_length, which is {max_length}")
        return values.sum() / max_length
    raise ValueError(f"unknown loss aggregation '{mode}'")


def aggregation_denominator(mode: Aggregation, *, tokens: int, sequences: int) -> int:
    """What the numerators of all micro-batches and ranks are divided by; 1 where there is nothing to train."""
    return max(tokens if mode == "token_mean" else sequences, 1)


def live_sequences(rows: Tensor, num_rows: int) -> int:
    """Rows with at least one live token."""
    return int((segment_count(rows, num_rows) > 0).sum())


def aggregate(
    values: Tensor,
    rows: Tensor,
    num_rows: int,
    mode: Aggregation,
    *,
    tokens: int,
    sequences: int,
    max_length: int = 0,
) -> Tensor:
    """Scalar: these rows' share of the aggregated loss.

    Two answers of 3 tokens with loss 1 and 5 tokens with loss 0: token_mean 3/8 = 0.375, sequence_mean_token_mean
    0.5, sequence_mean_token_sum 1.5, sequence_mean_token_sum_norm with max_length 6 0.25.
    """
    numerator = aggregation_numerator(values, rows, num_rows, mode, max_length=max_length)
    return numerator / aggregation_denominator(mode, tokens=tokens, sequences=sequences)
