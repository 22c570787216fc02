"""Shaping rewards and weighing samples: what happens between grading and the advantage.

Rewards are [R], one per row; groups int64[R]. Which rows are trained at all is said by `sample_filters`.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.segments import compact, compact_pairs, require_bool, segment_count, segment_max, segment_min


def overlong_penalty(
    lengths: Tensor, *, max_length: int, buffer: int, factor: float = 1.0, capped: bool = True
) -> Tensor:
    """[R]: DAPO's soft penalty (arXiv 2503.14476), to be added to the reward: 0 up to max_length − buffer, falling to
    −factor at max_length; beyond it stays there (`capped`, the paper) or keeps falling (verl).

    max_length 20480, buffer 4096, lengths [16000, 16384, 18432, 20480, 24576]: [0, 0, −.5, −1, −1].
    """
    excess = (lengths.double() - (max_length - buffer)) / buffer
    penalty = -factor * excess.clamp(min=0)
    return penalty.clamp(min=-factor) if capped else penalty


def length_rewards(lengths: Tensor, correct: Tensor, groups: Tensor) -> Tensor:
    """[R]: Kimi k1.5's length reward (arXiv 2501.12599) inside each group: λ = ½ − (len − min)/(max − min); correct
    answers get λ, wrong ones min(0, λ); 0 for all where the lengths are equal. `correct` bool[R].

    Lengths [100, 200, 300, 150 (wrong)]: [0.5, 0, −0.5, 0].
    """
    require_bool("correct", correct)
    index, count = compact(groups)
    exact = lengths.double()
    shortest, longest = segment_min(exact, index, count)[index], segment_max(exact, index, count)[index]
    span = longest - shortest
    reward = torch.where(span > 0, 0.5 - (exact - shortest) / span.clamp(min=1), 0.0)
    return torch.where(correct, reward, reward.clamp(max=0))


def nonzero_advantage_keep(advantages: Tensor) -> Tensor:
    """bool[R]: rows whose advantage is not exactly 0 (they would cost a forward and backward pass for nothing).
    Whoever drops the others must keep counting them in the denominators."""
    return advantages != 0


def difficulty_weights(difficulty: Tensor) -> Tensor:
    """[R]: 0.5 + 1.5·clip(difficulty, 0, 1), scaled to a mean of 1 over the batch."""
    weights = 0.5 + 1.5 * difficulty.clamp(0, 1)
    return weights / weights.mean()


def length_weights(lengths: Tensor) -> Tensor:
    """[R]: 1.5 − (len − min)/(max − min) over the batch (the longest gets 0.5), scaled to a mean of 1; all 1 where
    the lengths are equal. Computed over the whole batch, never over a micro-batch."""
    exact = lengths.double()
    span = exact.max() - exact.min()
    if span == 0:
        return torch.ones_like(exact)
    weights = 1.5 - (exact - exact.min()) / span
    return weights / weights.mean()


def repetition_penalty(token_ids: Tensor, rows: Tensor, num_rows: int, *, ngram: int, max_penalty: float) -> Tensor:
    """[R]: (1 − distinct/total n-grams)·max_penalty of each row, 0 for rows of fewer than `ngram` tokens.

    `token_ids` int64[M] are tokens, or any ids of words; `max_penalty` is negative.
    [5, 5, 5, 5, 5], 2-grams, −1: −0.75.
    """
    if len(token_ids) < ngram:
        return torch.zeros(num_rows, dtype=torch.float64, device=token_ids.device)
    last = len(token_ids) - ngram + 1
    gram, inside = rows[:last], rows[:last] == rows[ngram - 1 :]
    for shift in range(ngram):
        gram, num_grams = compact_pairs(gram, token_ids[shift : shift + last])
    row_of_gram = rows.new_zeros(num_grams).scatter(0, gram[inside], rows[:last][inside])
    met = segment_count(gram[inside], num_grams) > 0
    distinct = segment_count(row_of_gram[met], num_rows).double()
    total = segment_count(rows[:last][inside], num_rows).double()
    return torch.where(total > 0, (1 - distinct / total.clamp(min=1)) * max_penalty, 0.0)
