"""REINFORCE++ and its baseline form (arXiv 2501.03262): no critic, advantages whitened over the global batch."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.advantages.grpo import grpo_advantages
from rollick.algorithms.advantages.reinforce import discounted_returns
from rollick.algorithms.normalization import whiten
from rollick.algorithms.segments import require_bool


def reinforce_pp_advantages(
    token_rewards: Tensor,
    rows: Tensor,
    valid: Tensor | None = None,
    *,
    gamma: float = 1.0,
    unbiased_variance: bool = True,
) -> Tensor:
    """[M]: whiten(G_t), G_t = r_t + gamma·G_{t+1}, over all live tokens of the batch.

    `token_rewards` [M] hold the outcome on the last token and −β·KL on each (`kl.penalised_rewards`). `valid`
    bool[R] leaves rows out of the statistics and gives them 0. `unbiased_variance` False divides the variance by
    n, not n − 1.

    Two rows with token rewards [−.01, 1], [.02, −.03, 0]: returns [.99, 1], [−.01, −.03, 0], whitened
    [1.086162, 1.104265, −0.724108, −0.760313, −0.706005].
    """
    live = torch.ones_like(rows, dtype=torch.bool) if valid is None else require_bool("valid", valid)[rows]
    returns = discounted_returns(torch.where(live, token_rewards, 0.0), rows, gamma)
    return whiten(returns, live, unbiased=unbiased_variance)


def reinforce_pp_baseline_advantages(rewards: Tensor, groups: Tensor, valid: Tensor, rows: Tensor) -> Tensor:
    """[M]: whiten(R_i − mean of the group), over all live tokens of valid rows.

    A group of one or without spread gets 0 before the whitening. The paper adds the KL as a k2 loss.

    Groups (1, 0) and (1, 1) with 1, 2, 1, 2 tokens: [1.549826, −1.107019, −1.107019, 0.221404, 0.221404, 0.221404].
    """
    return whiten(grpo_advantages(rewards, groups, valid, advantage_std="none")[rows], valid[rows])
