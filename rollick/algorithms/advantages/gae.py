"""Generalised advantage estimation (arXiv 1506.02438) over live tokens, and its two-level form for turns (RAGEN).

Values are of the state *before* each live token; after a row's last token the value is 0, truncated or not. Tool
tokens are no live tokens: value and advantage of the next action token are carried over them.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from rollick.algorithms.segments import compact, next_in_segment, reverse_scan, segment_ends, segment_sum


class Gae(NamedTuple):
    """[M] each; `returns` = advantages + values are the critic's target, computed before any whitening."""

    advantages: Tensor
    returns: Tensor


def gae(token_rewards: Tensor, values: Tensor, rows: Tensor, *, gamma: float = 1.0, lam: float = 0.95) -> Gae:
    """δ_t = r_t + γ·V_{t+1} − V_t ; A_t = δ_t + γλ·A_{t+1}. All inputs [M].

    One row, rewards [0, 0, 1], values [.5, .6, .8]: advantages [0.4705, 0.39, 0.2], returns [0.9705, 0.99, 1].
    """
    delta = token_rewards + gamma * next_in_segment(values, rows) - values
    advantages = reverse_scan(delta, gamma * lam, rows)
    return Gae(advantages, advantages + values)


def bilevel_gae(
    token_rewards: Tensor,
    values: Tensor,
    rows: Tensor,
    turns: Tensor,
    *,
    gamma: float = 1.0,
    turn_gamma: float = 0.95,
    lam: float = 1.0,
) -> Gae:
    """GAE over the turns of a row with `turn_gamma`, then over the tokens of each turn with `gamma`, where the
    turn's last token stands for the whole future: it gets the turn's advantage (RAGEN, arXiv 2504.20073).

    `turns` int64[M] numbers the turns over the batch, ascending, none crossing a row. A turn's reward is the sum
    over its tokens and is paid at its end; that a turn ends is known from `turns`, also when it pays nothing.

    Two turns of two tokens, rewards [0, .1, 0, 1], values [.2, .3, .5, .6], λ 1: [0.85, 0.75, 0.5, 0.4].
    """
    ends = segment_ends(turns)
    index, num_turns = compact(turns)
    turn_rewards = segment_sum(token_rewards, index, num_turns)
    of_turns = gae(turn_rewards, values[ends], rows[ends], gamma=turn_gamma, lam=lam)
    delta = gamma * next_in_segment(values, turns) - values
    delta = torch.where(ends, of_turns.advantages[index], delta)
    advantages = reverse_scan(delta, gamma * lam, turns)
    return Gae(advantages, advantages + values)
