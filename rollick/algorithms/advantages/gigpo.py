"""GiGPO (arXiv 2505.10978): an agent's step against the steps that other attempts took in the same state."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.advantages.grpo import grpo_advantages
from rollick.algorithms.segments import compact, compact_pairs, require_bool, reverse_scan, segment_max, segment_sum


def step_returns(step_rewards: Tensor, episodes: Tensor, gamma: float = 0.95) -> Tensor:
    """[S]: G_t = r_t + γ·G_{t+1} over the steps of an episode. Steps of one episode are in time order but may lie
    between those of others.

    Rewards [0, 0, 1] of one episode: [0.9025, 0.95, 1].
    """
    index, _ = compact(episodes)
    order = torch.argsort(index, stable=True)
    returns = torch.empty_like(step_rewards)
    returns[order] = reverse_scan(step_rewards[order], gamma, index[order])
    return returns


def gigpo_advantages(
    step_rewards: Tensor,
    episodes: Tensor,
    groups: Tensor,
    states: Tensor,
    valid: Tensor,
    *,
    gamma: float = 0.95,
    step_weight: float = 1.0,
    std: Literal["group", "none"] = "none",
    episode_mean_over: Literal["episodes", "steps"] = "episodes",
    eps: float = 1e-6,
) -> Tensor:
    """[S]: A = A_episode + step_weight · A_step for every step (one LLM turn), to be given to all of its tokens.

    `step_rewards` [S], `episodes` int64[S] (which attempt), `groups` int64[S] (which task), `states` int64[S] (hash
    of the observation the step answered), `valid` bool[S].

    A_episode: the episode's total reward − the task's mean, per episode; `episode_mean_over` "steps" counts a long
    episode once per step, as the reference code does. A_step: the step's discounted return − the mean over steps of
    the same task *and* state; a state that was met once gives 0. `std` "group" divides both by std + eps.

    A visits s0, s1, s2 with rewards (0, 0, 1), B visits s0, s1 with (0, 0):
    A [0.951250, 0.975, 0.5], B [−0.951250, −0.975].
    """
    require_bool("valid", valid)
    total, index, num_episodes = _episode_totals(step_rewards, episodes, valid)
    if episode_mean_over == "steps":
        of_episode = grpo_advantages(total[index], groups, valid, advantage_std=std, advantage_eps=eps)
    else:
        task, _ = compact(groups)
        task_of = segment_max(task.double(), index, num_episodes).long()
        scored = segment_sum(valid.double(), index, num_episodes) > 0
        of_episode = grpo_advantages(total, task_of, scored, advantage_std=std, advantage_eps=eps)[index]
    returns = step_returns(torch.where(valid, step_rewards, 0.0), episodes, gamma)
    same_state, _ = compact_pairs(groups, states)
    of_step = grpo_advantages(returns, same_state, valid, advantage_std=std, advantage_eps=eps)
    return torch.where(valid, of_episode + step_weight * of_step, 0.0)


def _episode_totals(step_rewards: Tensor, episodes: Tensor, valid: Tensor) -> tuple[Tensor, Tensor, int]:
    index, num_episodes = compact(episodes)
    return segment_sum(torch.where(valid, step_rewards, 0.0), index, num_episodes), index, num_episodes
