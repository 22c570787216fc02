"""REINFORCE: discounted returns, per token or per turn, over live tokens only.

Prompt and tool tokens are no live tokens, so a return passes over them unchanged and undiscounted.
"""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.segments import compact, reverse_scan, segment_ends, segment_sum


def rewards_on_last_token(rewards: Tensor, rows: Tensor) -> Tensor:
    """[M]: the reward of each row [R] on its last live token, 0 elsewhere.

    The outcome belongs to the row: a mask that later rejects that token for the loss does not take the reward away.

    rewards [1, 5], rows [0, 0, 1] → [0, 1, 5]
    """
    return torch.where(segment_ends(rows), rewards[rows], 0.0)


def discounted_returns(token_rewards: Tensor, rows: Tensor, gamma: float = 1.0) -> Tensor:
    """[M]: G_t = r_t + γ·G_{t+1} within the row.

    A row with token rewards [0, 0, 1]: γ 1 gives [1, 1, 1], γ 0.9 gives [0.81, 0.9, 1].
    """
    return reverse_scan(token_rewards, gamma, rows)


def reinforce_advantages(token_rewards: Tensor, rows: Tensor, *, gamma: float = 1.0) -> Tensor:
    """[M]: G_t = r_t + gamma·G_{t+1}. The return itself, without a baseline."""
    return discounted_returns(token_rewards, rows, gamma)


def turn_returns(token_rewards: Tensor, rows: Tensor, turns: Tensor, gamma: float = 1.0) -> Tensor:
    """[M]: every token of a turn gets G_k = r_k + γ·G_{k+1}, where r_k is the sum of the turn's token rewards and
    k counts the turns of the row.

    `turns` int64[M] numbers the turns over the whole batch, ascending, no turn crossing a row.

    One row of two turns of two tokens, rewards [0, 1, 0, 2], γ 0.5: [2, 2, 2, 2].
    """
    index, num_turns = compact(turns)
    rewards = segment_sum(token_rewards, index, num_turns)
    return reverse_scan(rewards, gamma, rows[segment_ends(turns)])[index]
