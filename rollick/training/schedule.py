"""The learning rate of every update."""

from __future__ import annotations

import math

from rollick.config.job import ScheduleSettings


def learning_rate(update: int, planned_updates: int, peak: float, schedule: ScheduleSettings) -> float:
    """The rate that update 1, 2, … uses: peak · min(1, update / warmup), then the decay from `peak`, which reaches
    peak · min_ratio at `planned_updates` and stays there.

    Peak 1e-3, warm-up 4, constant: 2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3, … Warm-up may take all planned updates.

    Raises ValueError when warm-up is longer than the run or `update` is not positive.
    """
    warmup = schedule.warmup_updates
    if update < 1:
        raise ValueError(f"updates are counted from 1, got {update}")
    if warmup > planned_updates:
        raise ValueError(f"warmup_updates {warmup} is longer than the {planned_updates} planned updates")
    if update <= warmup:
        return peak * update / warmup
    if schedule.kind == "constant":
        return peak
    progress = min(1.0, (update - warmup) / (planned_updates - warmup)) if planned_updates > warmup else 1.0
    decayed = 1 - progress if schedule.kind == "linear" else (1 + math.cos(math.pi * progress)) / 2
    return peak * (schedule.min_ratio + (1 - schedule.min_ratio) * decayed)
