"""Calls into environments: at once where that is safe, in threads where one may hang."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from typing import Any

MAX_THREADS = 64


class CallPool:
    """Runs functions and hands back what they returned or raised, as values.

    A call that hangs cannot be killed, only given up: its thread is left behind (it ends with the process) and
    replaced, and whatever it says later is dropped.

        pool = CallPool()
        pool.submit("a", lambda: 3 + 4)
        pool.poll(timeout=1.0)  # [("a", 7)]
    """

    def __init__(self, max_threads: int = MAX_THREADS):
        self._allowed = max_threads
        self._threads = 0
        self._open: set[str] = set()
        self._todo: queue.SimpleQueue[tuple[str, Callable[[], Any]] | None] = queue.SimpleQueue()
        self._done: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()

    def submit(self, key: str, function: Callable[[], Any]) -> None:
        """Call `function` in a thread. `key` must not be in use."""
        self._open.add(key)
        self._todo.put((key, function))
        if self._threads < self._allowed:
            self._threads += 1
            threading.Thread(target=self._work, name=f"environment-{self._threads}", daemon=True).start()

    def run(self, key: str, function: Callable[[], Any]) -> None:
        """Call `function` now, in the caller's thread; its result waits for `poll` like any other."""
        self._open.add(key)
        self._done.put((key, _outcome(function)))

    def poll(self, timeout: float = 0.0) -> list[tuple[str, Any]]:
        """(key, result or exception) of the calls that have ended, waiting up to `timeout` seconds for the first.
        Returns [] at once when no call is open."""
        ready: list[tuple[str, Any]] = []
        while self._open:
            try:
                key, outcome = self._done.get(timeout=timeout) if timeout and not ready else self._done.get_nowait()
            except queue.Empty:
                break
            if key in self._open:
                self._open.remove(key)
                ready.append((key, outcome))
        return ready

    def give_up(self, key: str) -> None:
        """Stop waiting for a call."""
        if key in self._open:
            self._open.remove(key)
            self._allowed += 1

    def close(self) -> None:
        self._open.clear()
        for _ in range(self._threads):
            self._todo.put(None)

    def _work(self) -> None:
        while (job := self._todo.get()) is not None:
            key, function = job
            if key in self._open:
                self._done.put((key, _outcome(function)))


def _outcome(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception as error:  # noqa: BLE001 - environments are foreign code; what they raise fails their episode
        return error
