"""The run directory: everything a run leaves behind, in files that a kill at any moment leaves readable.

runs/<name>/
  config.yaml        every setting in effect; loads back to the same job
  run.lock           held by the process that writes the run
  versions.json      what ran, of the latest start
  starts.jsonl       one line per start or resume: time, step, versions, settings that changed
  metrics.jsonl      one line per step: {"step": 1, "time": 12.3, "loss": …}
  events.jsonl       every transition of every episode
  samples/           step_000001.jsonl, …: ids, text, log-probs, rewards, advantages
  evaluation/        step_000000.jsonl, …: the same of the answers to held-out tasks
  checkpoints/       step_000020/, … (rollick.state.checkpoint)
  export/            Hugging Face folders
"""

from __future__ import annotations

import fcntl
import json
import logging
import time
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import yaml

from rollick.errors import ConfigError
from rollick.state.jsonl import JsonlFile, last_row, write_atomically
from rollick.state.samples import SampleRecord, sample_step, write_samples
from rollick.state.versions import describe_versions

log = logging.getLogger(__name__)

BEFORE_EVERYTHING = -1
"""A step label lower than that of the evaluation before training."""


class RunDirectory:
    """One process writes a run directory at a time; a second one is refused.

    `step` labels everywhere count completed steps: the first step is 1, a checkpoint at 20 holds the state after
    20 steps, evaluation before training has label 0.

        with RunDirectory.create(Path("runs"), "demo", dump_job(job), resume=False) as run:
            run.metrics.write({"step": 1, "loss": 0.5})
    """

    def __init__(self, path: Path):
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{path}: cannot be made ({error.strerror}); change output_dir or name") from None
        self._lock = _take_lock(path)
        for folder in (self.samples, self.evaluation, self.checkpoints):
            folder.mkdir(exist_ok=True)
        self.metrics = JsonlFile(path / "metrics.jsonl")
        self.events = JsonlFile(path / "events.jsonl")

    @classmethod
    def create(cls, output_dir: Path, name: str, resolved_yaml: str, resume: bool) -> RunDirectory:
        """Start a run directory, or open the one to resume.

        Raises ConfigError when the directory holds a run (or anything else) and `resume` is False, and when
        another process is writing it.
        """
        path = output_dir / name
        if not resume:
            _refuse_occupied(path)
        run = cls(path)
        if not resume:
            run._forget_after(BEFORE_EVERYTHING)
        elif not any(run.checkpoints.glob("step_*")):
            log.warning("%s: no checkpoint here; starting at step 0 unless --resume-from names another's", path)
        run._write_start(resolved_yaml, resume)
        return run

    @property
    def samples(self) -> Path:
        return self.path / "samples"

    @property
    def evaluation(self) -> Path:
        return self.path / "evaluation"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def export(self) -> Path:
        return self.path / "export"

    def write_samples(self, step: int, records: Iterable[SampleRecord], max_groups: int) -> Path:
        return write_samples(self.samples, step, records, max_groups)

    def rewind(self, step: int) -> None:
        """Forget what was written after `step` completed steps, so that resuming there doubles no label.

        Events carry the index of the step they work on, which counts from 0.
        """
        dropped = self._forget_after(step)
        if dropped:
            log.warning("%s: %d lines of metrics after step %d were dropped", self.path, dropped, max(step, 0))

    def _forget_after(self, step: int) -> int:
        """Returns the number of metrics lines that went."""
        dropped = self.metrics.keep(lambda row: row["step"] <= step)
        self.events.keep(lambda row: row.get("step", 0) < step)
        for folder in (self.samples, self.evaluation):
            for path in folder.glob("step_*.jsonl"):
                if sample_step(path) > step:
                    path.unlink()
        return dropped

    def close(self) -> None:
        """Safe to call twice."""
        self.metrics.close()
        self.events.close()
        self._lock.close()

    def __enter__(self) -> RunDirectory:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write_start(self, resolved_yaml: str, resume: bool) -> None:
        versions = describe_versions()
        changes = _settings_changes(self.path / "config.yaml", resolved_yaml) if resume else {}
        for key, (old, new) in changes.items():
            log.warning("%s: resumed with %s = %s (was %s)", self.path, key, new, old)
        with JsonlFile(self.path / "starts.jsonl") as starts:
            last = last_row(self.metrics.path)
            step = last["step"] if last else 0
            starts.write({"time": time.time(), "step": step, "changes": changes, "versions": versions})
        write_atomically(self.path / "config.yaml", resolved_yaml)
        write_atomically(self.path / "versions.json", json.dumps(versions, indent=2) + "\n")


def _take_lock(path: Path) -> IO[str]:
    lock = (path / "run.lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise ConfigError(f"{path}: another process is writing this run; stop it or choose another `name`") from None
    except OSError as error:
        log.warning("%s: this file system has no locks (%s); start no second process on this run", path, error.strerror)
    return lock


def _refuse_occupied(path: Path) -> None:
    """A run that never finished a step may be started over; anything more is somebody's work."""
    if path.exists() and not path.is_dir():
        raise ConfigError(f"{path}: this is a file, so no run directory can be made there; change `name`")
    if not path.exists() or not any(path.iterdir()):
        return
    metrics = path / "metrics.jsonl"
    if not metrics.exists():
        raise ConfigError(f"{path}: the folder is not empty and holds no run; change `name` or `output_dir`")
    last = last_row(metrics)
    steps = last["step"] if last else 0
    if steps or any((path / "checkpoints").glob("step_*")):
        raise ConfigError(
            f"{path}: there is a run of {steps} steps already; continue it with --resume, choose another `name`, "
            "or delete the folder"
        )


def _settings_changes(old_file: Path, new_yaml: str) -> dict[str, tuple[Any, Any]]:
    if not old_file.exists():
        return {}
    old, new = (dict(_leaves(yaml.safe_load(text) or {})) for text in (old_file.read_text("utf-8"), new_yaml))
    return {
        key: (old.get(key), new.get(key)) for key in sorted(old.keys() | new.keys()) if old.get(key) != new.get(key)
    }


def _leaves(tree: Any, prefix: str = "") -> Iterable[tuple[str, Any]]:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else None
    if items is None:
        yield prefix, tree
        return
    for key, value in items:
        yield from _leaves(value, f"{prefix}.{key}" if prefix else str(key))
