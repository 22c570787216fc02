"""Where the time of a step goes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class StageClock:
    """Adds up wall time by stage over one step.

    clock = StageClock()
    with clock.stage("rollout"):
        ...
    clock.metrics()  # {"seconds/rollout": 1.9, "seconds/step": 2.4}
    """

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begin a new step."""
        self._began = time.monotonic()
        self._stages: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            yield
        finally:
            self._stages[name] = self._stages.get(name, 0.0) + time.monotonic() - began

    def metrics(self) -> dict[str, float]:
        """Seconds since `restart`, in all and by stage."""
        stages = {f"seconds/{name}": seconds for name, seconds in self._stages.items()}
        return {**stages, "seconds/step": time.monotonic() - self._began}
