"""ReMax (arXiv 2310.10505): the return against the reward of the greedy answer to the same prompt."""

from __future__ import annotations

from torch import Tensor

from rollick.algorithms.advantages.reinforce import discounted_returns


def remax_advantages(token_rewards: Tensor, greedy_rewards: Tensor, rows: Tensor) -> Tensor:
    """[M]: G_t − R_greedy with undiscounted G. `token_rewards` [M], `greedy_rewards` [R] of one extra greedy
    rollout per prompt, `rows` int64[M].

    Token rewards [−0.02, 0.01, 1], greedy reward 0.25: [0.74, 0.76, 0.75].
    """
    return discounted_returns(token_rewards, rows) - greedy_rewards[rows]
