"""Statistics of the answers to one prompt, keyed by group id and never by position."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from rollick.algorithms.segments import compact, require_bool, segment_max, segment_min, segment_sum


@dataclass(frozen=True)
class GroupStatistics:
    """Over the valid rows of each of G groups; `index` int64[R] is each row's group.

    `rewards` float64[R] are the rows' rewards with 0 in place of invalid ones, `mean` and `std` (unbiased, n − 1)
    float64[G], `count` float64[G], `flat` bool[G]: fewer than two valid rows, or rewards equal up to rounding.

    Rewards [1, 0, 0, 0] of one group: mean 0.25, std 0.5, count 4, flat False.
    """

    index: Tensor
    rewards: Tensor
    mean: Tensor
    std: Tensor
    count: Tensor
    flat: Tensor

    def centred(self) -> Tensor:
        """float64[R]: reward − mean of the row's group."""
        return self.rewards - self.mean[self.index]


def group_statistics(rewards: Tensor, groups: Tensor, valid: Tensor) -> GroupStatistics:
    """`rewards` [R], `groups` int64[R] (any ids), `valid` bool[R]: rows that were scored and have something to train.

    Computed in float64: in float32 the mean of thirty rewards of 0.9 is off by 1e-7, which dividing by a zero
    spread would blow up to 0.15. `flat` allows a spread of 8 roundings of the rewards' own type.

    Raises TypeError for a mask that is not bool, ValueError for a valid row whose reward is not finite.
    """
    _check(rewards, groups, valid)
    index, num_groups = compact(groups)
    exact = torch.where(valid, rewards.double(), 0.0)
    weight = valid.double()
    count = segment_sum(weight, index, num_groups)
    mean = segment_sum(exact, index, num_groups) / count.clamp(min=1)
    deviation = torch.where(valid, exact - mean[index], 0.0)
    std = (segment_sum(deviation.square(), index, num_groups) / (count - 1).clamp(min=1)).sqrt()
    return GroupStatistics(index, exact, mean, std, count, _flat(rewards, valid, index, num_groups, count))


def _flat(rewards: Tensor, valid: Tensor, index: Tensor, num_groups: int, count: Tensor) -> Tensor:
    reward = rewards.double()
    highest = segment_max(torch.where(valid, reward, -torch.inf), index, num_groups)
    lowest = segment_min(torch.where(valid, reward, torch.inf), index, num_groups)
    rounding = 8 * torch.finfo(rewards.dtype).eps * torch.maximum(highest.abs(), lowest.abs())
    return (count < 2) | (highest - lowest <= rounding)


def _check(rewards: Tensor, groups: Tensor, valid: Tensor) -> None:
    require_bool("valid", valid)
    if not rewards.shape == groups.shape == valid.shape or rewards.dim() != 1:
        shapes = f"{tuple(rewards.shape)}, {tuple(groups.shape)}, {tuple(valid.shape)}"
        raise ValueError(f"rewards, groups and valid need one entry per row, got shapes {shapes}")
    bad = (valid & ~rewards.isfinite()).nonzero().flatten().tolist()
    if bad:
        raise ValueError(f"the rewards of rows {bad} are not finite; rows that failed or abstained are not valid")
