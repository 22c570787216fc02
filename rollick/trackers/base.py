"""The Tracker contract: where metrics go besides metrics.jsonl. A failing tracker never stops training."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol

from rollick.config.base import PluginSettings


class Tracker(Protocol):
    def log(self, step: int, metrics: dict[str, float]) -> None: ...

    def close(self) -> None: ...


class TrackerOptions(PluginSettings):
    """Base of every tracker's `Options` (one tracker = one file in this folder)."""

    required: bool = False
    """Stop at the start when this tracker cannot be reached, instead of warning and going on without it."""

    def build(self, run_directory: Path, run_name: str) -> Tracker:
        raise NotImplementedError(f"{type(self).__module__} must define build")
