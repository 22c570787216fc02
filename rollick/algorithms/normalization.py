"""Normalising rewards and advantages: by group, batch, running moments or not at all, for mean and std separately."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from rollick.algorithms.groups import group_statistics
from rollick.algorithms.segments import require_bool

Scope = Literal["group", "batch", "running", "none"]


@dataclass(frozen=True)
class RunningMoments:
    """Mean and spread of every reward seen so far (Chan's parallel form of Welford). One per domain; its three
    numbers go into the checkpoint.

    RunningMoments().including(tensor([1., 0.])).including(tensor([1.])): count 3, mean 0.6667, std 0.5774.
    """

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0
    """Sum of squared deviations from the mean."""

    @property
    def std(self) -> float:
        """Unbiased; 0 for fewer than two values."""
        return (self.squares / (self.count - 1)) ** 0.5 if self.count > 1 else 0.0

    def including(self, values: Tensor) -> RunningMoments:
        """The moments after these values too."""
        if values.numel() == 0:
            return self
        values = values.double()
        added, mean = values.numel(), float(values.mean())
        count, gap = self.count + added, mean - self.mean
        squares = float((values - mean).square().sum())
        return RunningMoments(
            count,
            self.mean + gap * added / count,
            self.squares + squares + gap * gap * self.count * added / count,
        )


def normalize_rewards(
    rewards: Tensor,
    groups: Tensor,
    valid: Tensor,
    *,
    mean: Scope,
    std: Scope,
    running: RunningMoments | None = None,
    eps: float = 1e-6,
) -> Tensor:
    """[R]: (R − mean) / (std + eps) over the valid rows of the chosen scopes; std is unbiased, "none" leaves it out.

    Rows that are not valid get 0. Where the group (or batch) that a scope names is flat — one row, or rewards equal
    up to rounding — the result is exactly 0. `running` holds the moments of scope "running", this batch included.

    Groups [1, 0, 0, 0] and [1, 1, 0, 0], mean "group", std "batch" (0.517549): [1.449135, −0.483045 ×3] and
    [0.966090 ×2, −0.966090 ×2].

    Raises ValueError for an unknown scope and for "running" without moments.
    """
    by_group = group_statistics(rewards, groups, valid)
    whole = group_statistics(rewards, torch.zeros_like(groups), valid)
    scoped = {"group": by_group, "batch": whole}
    result, flat = whole.rewards, torch.zeros_like(valid)
    for name, scope in (("mean", mean), ("std", std)):
        if scope in scoped:
            statistics = scoped[scope]
            moment = (statistics.mean if name == "mean" else statistics.std)[statistics.index]
            flat = flat | statistics.flat[statistics.index]
        elif scope == "running":
            if running is None:
                raise ValueError(f"{name} scope 'running' needs the running moments")
            moment = result.new_tensor(running.mean if name == "mean" else running.std)
        elif scope == "none":
            continue
        else:
            raise ValueError(f"unknown {name} scope '{scope}'")
        result = result - moment if name == "mean" else result / (moment + eps)
    return torch.where(valid & ~flat, result, 0.0).to(rewards.dtype)


def whiten(values: Tensor, valid: Tensor | None = None, *, unbiased: bool = True, eps: float = 1e-8) -> Tensor:
    """(x − mean) / sqrt(var + eps) over the valid entries of the whole batch; others get 0, and so does a single one.

    [0.4705, 0.39, 0.2] → [0.842364, 0.262789, −1.105153]
    """
    valid = torch.ones_like(values, dtype=torch.bool) if valid is None else require_bool("valid", valid)
    kept = values[valid].double()
    if kept.numel() < 2:
        return torch.zeros_like(values)
    variance = kept.var(correction=1 if unbiased else 0)
    whitened = (values.double() - kept.mean()) * (variance + eps).rsqrt()
    return torch.where(valid, whitened, 0.0).to(values.dtype)


def clip_magnitude(values: Tensor, limit: float) -> Tensor:
    """Rewards or advantages held within ±limit. Raises ValueError for a limit that is not positive."""
    if limit <= 0:
        raise ValueError(f"a clip needs a positive limit, got {limit}")
    return values.clamp(-limit, limit)
