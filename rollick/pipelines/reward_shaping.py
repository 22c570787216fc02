"""From graded rewards to the ones that advantages are made of, in this order: shaping, normalisation, clip."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from rollick.algorithms.normalization import clip_magnitude, normalize_rewards
from rollick.algorithms.shaping import length_rewards, overlong_penalty, repetition_penalty
from rollick.config.algorithm import AlgorithmSettings
from rollick.pipelines.algorithm_state import AlgorithmState


@dataclass(frozen=True)
class Answers:
    """The R scored answers of a step, whatever becomes of them.

    `rewards` float64[R] as graded, `groups` int64[R], `lengths` int64[R] sampled tokens, `domains` R names,
    `rows` int64[M] the answer of each sampled token, `token_ids` int64[M], `truncated` bool[R].
    """

    rewards: Tensor
    groups: Tensor
    lengths: Tensor
    truncated: Tensor
    domains: Sequence[str]
    rows: Tensor
    token_ids: Tensor

    @property
    def valid(self) -> Tensor:
        """bool[R]: all; failed and abstained answers are not among them."""
        return torch.ones_like(self.truncated)


def shape_rewards(answers: Answers, algorithm: AlgorithmSettings, state: AlgorithmState, max_length: int) -> Tensor:
    """float64[R]. `max_length` is the job's max_new_tokens; the state counts these rewards into its moments."""
    rewards = answers.rewards
    if algorithm.overlong_buffer is not None:
        buffer = max(1, round(algorithm.overlong_buffer * max_length))
        factor = algorithm.overlong_factor
        rewards = rewards + overlong_penalty(answers.lengths, max_length=max_length, buffer=buffer, factor=factor)
    if algorithm.length_reward:
        success = 1.0 if algorithm.success_reward is None else algorithm.success_reward
        shorter = length_rewards(answers.lengths, answers.rewards >= success, answers.groups)
        rewards = rewards + algorithm.length_reward * shorter
    if algorithm.repetition_penalty:
        rewards = rewards + repetition_penalty(
            answers.token_ids,
            answers.rows,
            len(rewards),
            ngram=algorithm.repetition_ngram,
            max_penalty=-algorithm.repetition_penalty,
        )
    rewards = _normalized(rewards, answers, algorithm, state)
    return rewards if algorithm.reward_clip is None else clip_magnitude(rewards, algorithm.reward_clip)


def _normalized(rewards: Tensor, answers: Answers, algorithm: AlgorithmSettings, state: AlgorithmState) -> Tensor:
    """By the chosen scopes; a running scope is a domain's own, since domains may pay on different scales."""
    mean, std = algorithm.reward_mean, algorithm.reward_std
    if mean == std == "none":
        return rewards
    if "running" not in (mean, std):
        return normalize_rewards(rewards, answers.groups, answers.valid, mean=mean, std=std)
    result = torch.zeros_like(rewards)
    for domain in sorted(set(answers.domains)):
        here = torch.tensor([name == domain for name in answers.domains])
        moments = state.including(domain, rewards[here])
        result += normalize_rewards(rewards, answers.groups, here, mean=mean, std=std, running=moments)
    return result
