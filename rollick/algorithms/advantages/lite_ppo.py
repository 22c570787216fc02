"""LitePPO (Tricks or Traps, arXiv 2508.08221): mean of the group, std of the whole batch, token_mean aggregation."""

from __future__ import annotations

from torch import Tensor

from rollick.algorithms.normalization import normalize_rewards


def lite_ppo_advantages(rewards: Tensor, groups: Tensor, valid: Tensor, *, advantage_eps: float = 1e-6) -> Tensor:
    """[R]: (R_i − mean of the group) / (std of the batch + advantage_eps).

    The batch's std cannot come near zero for one easy prompt.

    Groups [1, 0, 0, 0] and [1, 1, 0, 0]: batch std 0.517549, advantages [1.449135, −0.483045 ×3] and
    [0.966090 ×2, −0.966090 ×2].
    """
    return normalize_rewards(rewards, groups, valid, mean="group", std="batch", eps=advantage_eps)
