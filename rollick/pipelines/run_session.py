"""What every pipeline has around its loop: the run directory, metrics, checkpoints, progress and Ctrl-C."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from rollick.config.job import JobSettings
from rollick.config.load import dump_job
from rollick.errors import InterruptedRun
from rollick.state.checkpoint import CheckpointStore
from rollick.state.console import ProgressConsole
from rollick.state.interrupt import StopRequest
from rollick.state.metrics import MetricsLog
from rollick.state.run_directory import RunDirectory
from rollick.trackers.fanout import TrackerFanout

Resume = bool | Path | None


class RunSession:
    """Opens (or resumes) the run of `job` and keeps its books.

    `step` counts completed steps. `resumed` is the checkpoint folder and its meta, None for a fresh start. A
    pipeline restores itself from it, then loops:

        with RunSession(job, total_steps=job.steps, columns=["loss"], resume=resume) as session:
            while session.step < job.steps:
                if session.stop.stop_requested:
                    raise session.interrupt(write, meta)
                session.metrics.add(...)
                session.end_step()
                if session.due(job.checkpoint.every):
                    session.save(write, meta)
    """

    def __init__(self, job: JobSettings, total_steps: int, columns: Sequence[str], resume: Resume = None):
        self.job = job
        self.total_steps = total_steps
        self._columns = columns
        self._resume = resume
        self._stack = ExitStack()
        self._saved_at: int | None = None
        self.step = 0
        self.resumed: tuple[Path, dict[str, Any]] | None = None

    def __enter__(self) -> RunSession:
        with ExitStack() as stack:
            self._open(stack)
            self._stack = stack.pop_all()
        return self

    def _open(self, stack: ExitStack) -> None:
        job, resume = self.job, self._resume
        self.run = stack.enter_context(RunDirectory.create(job.output_dir, job.name, dump_job(job), bool(resume)))
        self.store = CheckpointStore(self.run.checkpoints, keep_last=job.checkpoint.keep_last)
        if resume and (isinstance(resume, Path) or not self.store.is_empty()):
            self.resumed = self.store.load(resume if isinstance(resume, Path) else None)
            self.step = self._saved_at = int(self.resumed[1]["step"])
        if resume:
            self.run.rewind(self.step if self.resumed else -1)
        self.stop = stack.enter_context(StopRequest())
        self.console = stack.enter_context(ProgressConsole(self.total_steps, self._columns, first_step=self.step))
        trackers = TrackerFanout(job.trackers, self.run.path, job.name)
        stack.callback(trackers.close)
        self.metrics = MetricsLog(self.run.metrics, [trackers, self.console])

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def end_step(self) -> dict[str, float]:
        """Count the step that just ended and write its line of metrics."""
        self.step += 1
        return self.metrics.end_step(self.step)

    def due(self, every: int | None) -> bool:
        """Whether something that happens every `every` steps happens after this one."""
        return every is not None and self.step % every == 0

    def save(self, write: Callable[[Path], None], meta: dict[str, Any]) -> None:
        """Write the checkpoint of the current step, once."""
        if self._saved_at == self.step:
            return
        self.store.save(self.step, write, {"step": self.step, **meta})
        self._saved_at = self.step

    def interrupt(self, write: Callable[[Path], None], meta: dict[str, Any]) -> InterruptedRun:
        """Save, and return the error that ends the run cleanly."""
        self.save(write, meta)
        return InterruptedRun(
            f"stopped after step {self.step} of {self.total_steps}; continue with --resume "
            f"(checkpoint in {self.run.checkpoints})"
        )
