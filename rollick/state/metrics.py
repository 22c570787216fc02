"""The metrics of a run: collected over a step, written once per step, sent on to trackers and console."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from typing import Protocol, SupportsFloat

from rollick.state.jsonl import JsonlFile, last_row

RESERVED = ("step", "time")
MISSING = "missing"


class MetricsSink(Protocol):
    """Where a finished step goes besides the file: trackers, console."""

    def log(self, step: int, metrics: dict[str, float]) -> None: ...


class MetricsLog:
    """Values added during a step become one line of metrics.jsonl: their means.

    NaN and infinity never enter a mean: of `.5, NaN, .6, NaN` the mean is .55 and `<name>/missing` is 2. A metric
    without any finite value is left out of the line (its count stays), so that it is never read as 0.

        metrics = MetricsLog(run.metrics, [trackers, console])
        metrics.add({"loss": 0.5})
        metrics.add({"loss": 0.7, "grad_norm": 1.0})
        metrics.end_step(1)  # {"grad_norm": 1.0, "loss": 0.6}
    """

    def __init__(self, file: JsonlFile, sinks: list[MetricsSink] | None = None):
        self._file = file
        self._sinks = sinks or []
        self._values: dict[str, list[float]] = {}
        row = last_row(file.path)
        self.last_step: int | None = row["step"] if row else None

    def add(self, metrics: Mapping[str, SupportsFloat]) -> None:
        """Add one value per name; any number of times in a step (updates, micro-batches, evaluations)."""
        for name, value in metrics.items():
            if name in RESERVED:
                raise ValueError(f"'{name}' is the file's own column and cannot be a metric")
            self._values.setdefault(name, []).append(float(value))

    def end_step(self, step: int) -> dict[str, float]:
        """Write the step's line and send it on. Raises ValueError when the label was written already."""
        if self.last_step is not None and step <= self.last_step:
            raise ValueError(f"metrics of step {step} after those of step {self.last_step}: labels only go up")
        means = window_means(self._values)
        self._values = {}
        self._file.write({"step": step, "time": round(time.time(), 3), **means})
        self.last_step = step
        for sink in self._sinks:
            sink.log(step, means)
        return means


def window_means(values: Mapping[str, list[float]]) -> dict[str, float]:
    """Mean of the finite values by name, in sorted order, and the count of the others.

    window_means({"reward": [0.5, nan, 0.6, nan]})  # {"reward": 0.55, "reward/missing": 2.0}
    """
    means = {}
    for name, window in sorted(values.items()):
        finite = [value for value in window if math.isfinite(value)]
        if finite:
            means[name] = math.fsum(finite) / len(finite)
        if len(finite) < len(window):
            means[f"{name}/{MISSING}"] = float(len(window) - len(finite))
    return means
