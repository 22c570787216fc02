"""Ctrl-C, twice: the first asks the run to finish its step and write a checkpoint, the second stops it now."""

from __future__ import annotations

import logging
import signal
import threading
from types import FrameType, TracebackType
from typing import Any

log = logging.getLogger(__name__)

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class StopRequest:
    """Inside the `with`, SIGINT and SIGTERM set `stop_requested`; a second one raises KeyboardInterrupt.

    Signals reach the main thread only; elsewhere (a worker, a notebook's thread) the request is never set.

        with StopRequest() as stop:
            for step in range(steps):
                ...
                if stop.stop_requested:
                    break
    """

    def __init__(self) -> None:
        self.stop_requested = False
        self._previous: dict[signal.Signals, Any] = {}

    def __enter__(self) -> StopRequest:
        if threading.current_thread() is threading.main_thread():
            self._previous = {number: signal.signal(number, self._on_signal) for number in SIGNALS}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self.stop_requested:
            raise KeyboardInterrupt
        self.stop_requested = True
        log.warning("%s: finishing this step, then a checkpoint; once more stops at once", signal.Signals(number).name)
