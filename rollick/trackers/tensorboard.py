"""TensorBoard: `trackers: [tensorboard]` writes event files to `<run directory>/tensorboard`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rollick.errors import MissingDependencyError
from rollick.state.jsonl import last_row
from rollick.trackers.base import Tracker, TrackerOptions

if TYPE_CHECKING:
    from torch.utils.tensorboard import SummaryWriter


class TensorBoardTracker:
    """One scalar per metric and step."""

    def __init__(self, writer: SummaryWriter):
        self._writer = writer

    def log(self, step: int, metrics: dict[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)
        self._writer.flush()

    def close(self) -> None:
        self._writer.close()


class Options(TrackerOptions):
    def build(self, run_directory: Path, run_name: str) -> Tracker:
        """On a resumed run the points after the last line of metrics.jsonl are purged from the curves."""
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependencyError("trackers: tensorboard needs the package: pip install tensorboard") from error
        last = last_row(run_directory / "metrics.jsonl")
        purge = last["step"] + 1 if last else None
        return TensorBoardTracker(SummaryWriter(str(run_directory / "tensorboard"), purge_step=purge))
