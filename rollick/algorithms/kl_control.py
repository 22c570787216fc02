"""The coefficient of the KL penalty over time, one controller per domain. Plain values: a checkpoint keeps them with
`dataclasses.asdict`."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from rollick.algorithms.segments import segment_count, segment_mean


@dataclass(frozen=True)
class FixedKl:
    """The same coefficient for ever."""

    coef: float

    def updated(self, kl: float, sequences: int) -> FixedKl:
        return self


@dataclass(frozen=True)
class AdaptiveKl:
    """Steers the KL to `target` (arXiv 1909.08593): β ← β·(1 + clip(KL/target − 1, ±0.2)·n/horizon), n sequences.

    AdaptiveKl(0.2, target=6.0).updated(9.0, sequences=256).coef → 0.201024
    """

    coef: float
    target: float
    horizon: int = 10_000

    def updated(self, kl: float, sequences: int) -> AdaptiveKl:
        """The controller for the next step, after one whose `sequences` rows had a mean KL of `kl`."""
        error = min(max(kl / self.target - 1, -0.2), 0.2)
        return replace(self, coef=self.coef * (1 + error * sequences / self.horizon))


def sequence_kl(token_kl: Tensor, rows: Tensor, num_rows: int) -> float:
    """What a controller is fed: the mean over rows (with live tokens) of each row's mean token KL [M]."""
    live = segment_count(rows, num_rows) > 0
    means = segment_mean(token_kl, rows, num_rows)
    return float(torch.where(live, means, 0.0).sum() / live.sum().clamp(min=1))
