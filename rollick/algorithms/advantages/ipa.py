"""IPA (Let It Flow, arXiv 2512.24873): returns of interaction chunks, discounted by chunks and not by tokens."""

from __future__ import annotations

from torch import Tensor

from rollick.algorithms.advantages.reinforce import rewards_on_last_token, turn_returns


def chunk_returns(rewards: Tensor, rows: Tensor, chunks: Tensor, *, gamma: float) -> Tensor:
    """[M]: γ^(chunks after this one) · R for every token. `rewards` [R] are final outcomes; a chunk is everything
    between two observations; `chunks` int64[M] numbers them over the batch, ascending, none crossing a row.

    Three chunks, R = 1, γ 0.9: 0.81, 0.9, 1.
    """
    return turn_returns(rewards_on_last_token(rewards, rows), rows, chunks, gamma)
