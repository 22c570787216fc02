"""AsyPPO (arXiv 2510.01656): several small critics, and what their disagreement says about a token."""

from __future__ import annotations

import torch
from torch import Tensor

from rollick.algorithms.policy_losses.ppo import ppo_loss
from rollick.algorithms.segments import compact, require_bool
from rollick.algorithms.selection import largest, share, smallest


def assign_critics(groups: Tensor, num_critics: int) -> Tensor:
    """int64[R]: the critic that trains on each row. Every group is dealt out evenly, so critics see disjoint answers
    of the same prompts.

    groups [4, 4, 9, 4, 9], 2 critics → [0, 1, 0, 0, 1]
    """
    index, num_groups = compact(groups)
    order = torch.argsort(index, stable=True)
    starts = torch.bincount(index, minlength=num_groups).cumsum(0).roll(1)
    starts[:1] = 0
    member = torch.empty_like(index)
    member[order] = torch.arange(len(index), device=index.device) - starts[index[order]]
    return member % num_critics


def disagreement(values: Tensor) -> Tensor:
    """[M]: standard deviation (population) over the critics of `values` [critics, M]. GAE takes their mean."""
    return values.std(0, correction=0)


def advantage_keep(spread: Tensor, *, fraction: float = 0.2) -> Tensor:
    """bool[M]: False for the floor(fraction·M) tokens on which critics agree most: nothing to learn there. Over the
    whole batch's live tokens; ties go to the earlier token."""
    return ~smallest(spread, share(fraction, len(spread)))


def entropy_keep(spread: Tensor, *, fraction: float = 0.2) -> Tensor:
    """bool[M]: False for the floor(fraction·M) tokens on which critics disagree most: exploring there is noise."""
    return ~largest(spread, share(fraction, len(spread)))


def asyppo_loss(
    ratio: Tensor,
    advantages: Tensor,
    entropy: Tensor,
    keep_advantage: Tensor,
    keep_entropy: Tensor,
    *,
    clip_low: float = 0.2,
    clip_high: float = 0.2,
    entropy_coef: float = 0.01,
) -> Tensor:
    """[M]: PPO's clipped loss where `keep_advantage`, − entropy_coef·H where `keep_entropy`. Masks carry no gradient
    and leave the denominators alone. The paper aggregates by `sequence_mean_token_mean`."""
    policy = ppo_loss(ratio, advantages, clip_low=clip_low, clip_high=clip_high)
    policy = torch.where(require_bool("keep_advantage", keep_advantage), policy, 0.0)
    return policy - entropy_coef * torch.where(require_bool("keep_entropy", keep_entropy), entropy, 0.0)
