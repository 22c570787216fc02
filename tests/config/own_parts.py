"""Parts of an algorithm as a user would write them; some are wrong on purpose."""

from __future__ import annotations

import torch


def sharp_loss(ratio, advantages, *, clip_low: float = 0.4, sharpness: float):
    """[M]: −min(r, sharpness)·A, at least 1 − clip_low."""
    return -ratio.clamp(1 - clip_low, sharpness) * advantages


def sign_advantages(rewards, groups, valid):
    return rewards.sign()


def short_keep(lengths, valid):
    return valid & (lengths < 5)


def wants_the_moon(logprobs, moon):
    return logprobs * moon


def one_number(logprobs, advantages):
    return -(logprobs * advantages).mean()


def neighbours_loss(logprobs, advantages):
    return -(advantages - advantages.mean()) * logprobs


def constant_loss(logprobs, advantages):
    return torch.zeros_like(logprobs).detach()


def first_is_best_advantages(rewards):
    return torch.where(torch.arange(len(rewards)) == 0, 1.0, rewards)


def everything_keep(rewards):
    return torch.ones(len(rewards), dtype=torch.bool)


def broken_advantages(rewards):
    return rewards / "two"
