"""All trackers of a job behind one `log`; a failing one is reported and never stops training."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollick.errors import RollickError
from rollick.trackers.base import Tracker, TrackerOptions

log = logging.getLogger(__name__)


@dataclass
class _Member:
    kind: str
    tracker: Tracker
    missed_steps: int = 0


class TrackerFanout:
    """Hands every step to every tracker.

    A tracker that cannot start is left out with a warning, unless its options say `required: true`: then
    RollickError is raised before training starts. One that fails later warns once, is tried again at each step
    and is reported with the number of steps it missed when the run ends.
    """

    def __init__(self, options: Sequence[TrackerOptions], run_directory: Path, run_name: str):
        self._members: list[_Member] = []
        for option in options:
            tracker = _start(option, run_directory, run_name)
            if tracker is not None:
                self._members.append(_Member(option.kind, tracker))

    def log(self, step: int, metrics: dict[str, float]) -> None:
        for member in self._members:
            try:
                member.tracker.log(step, metrics)
            except Exception as error:  # noqa: BLE001 - a tracker may raise anything; it is reported, not hidden
                member.missed_steps += 1
                if member.missed_steps == 1:
                    log.warning(
                        "tracker %s failed at step %d (%s: %s); training goes on, and metrics.jsonl has everything",
                        member.kind,
                        step,
                        type(error).__name__,
                        error,
                    )

    def close(self) -> None:
        for member in self._members:
            try:
                member.tracker.close()
            except Exception as error:  # noqa: BLE001 - as in log
                log.warning("tracker %s failed to close (%s: %s)", member.kind, type(error).__name__, error)
            if member.missed_steps:
                log.warning("tracker %s missed %d steps", member.kind, member.missed_steps)
        self._members = []


def _start(option: TrackerOptions, run_directory: Path, run_name: str) -> Tracker | None:
    try:
        return option.build(run_directory, run_name)
    except Exception as error:
        reason = f"tracker {option.kind} cannot start ({type(error).__name__}: {error})"
        if option.required:
            raise RollickError(f"{reason}, and it is required; fix it or set required: false") from error
        log.warning("%s; training goes on without it, and metrics.jsonl has everything", reason)
        return None
