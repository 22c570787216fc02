"""Where rewards wait for a service or a model: queued episodes become calls of up to `size` episodes, without delay.

A lane holds nothing back to fill a batch: when a call may start, it takes what is waiting. While calls are under way
the queue grows, so batches are as large as the load asks for.
"""

from __future__ import annotations

import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from rollick.data.records import Episode
from rollick.rewards.base import Batching, Failed, RewardOptions, Verdict
from rollick.rewards.pool import Lost, WorkerPool
from rollick.rewards.worker import grade_batch

Settled = list[tuple[str, "Verdict | Lost"]]
"""(episode id, outcome) pairs."""


@dataclass(eq=False)
class _Call:
    """One call under way. `wanted` are the ids somebody still waits for."""

    episodes: list[Episode]
    started: float
    wanted: set[str] = field(default_factory=set)


class Lane:
    """The calls of one reward; `limit` bounds each in seconds from its start. `wake` is called when one has ended.

    Calls run in threads of this process. One that outlives the limit is given up: its episodes are Lost, another
    call takes its place, and its thread ends whenever the reward's own waits do.
    """

    def __init__(self, reward: Any, label: str, batching: Batching, limit: float, wake: Callable[[], None]):
        self._reward, self._label, self._batching, self._limit, self._wake = reward, label, batching, limit, wake
        self._lock = threading.Lock()
        self._queue: deque[Episode] = deque()
        self._running: list[_Call] = []
        self._settled: Settled = []
        self._closed = False

    def submit(self, episode: Episode) -> None:
        with self._lock:
            self._queue.append(episode)
            self._start_calls()

    def poll(self) -> Settled:
        """What is settled by now; never waits."""
        with self._lock:
            self._expire(time.monotonic())
            ready, self._settled = self._settled, []
            return ready

    def cancel(self, ids: Iterable[str]) -> None:
        """Forget these episodes; a call that nobody waits for any more is given up."""
        gone = set(ids)
        with self._lock:
            self._queue = deque(episode for episode in self._queue if episode.id not in gone)
            self._settled = [item for item in self._settled if item[0] not in gone]
            for call in self._running:
                call.wanted -= gone
            for call in [call for call in self._running if not call.wanted]:
                self._give_up(call)
            self._start_calls()

    def stats(self) -> dict[str, float]:
        """The reward's own counters (tokens, requests, cost), where it has any."""
        counters: Callable[[], dict[str, float]] | None = getattr(self._reward, "stats", None)
        return counters() if counters else {}

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._queue.clear()
            self._running.clear()
        close: Callable[[], None] | None = getattr(self._reward, "close", None)
        if close:
            close()

    def _start_calls(self) -> None:
        while self._queue and len(self._running) < self._batching.in_flight and not self._closed:
            count = min(self._batching.size, len(self._queue))
            episodes = [self._queue.popleft() for _ in range(count)]
            call = _Call(episodes, time.monotonic(), {episode.id for episode in episodes})
            self._running.append(call)
            self._start(call)

    def _start(self, call: _Call) -> None:
        threading.Thread(target=self._run, args=(call,), name=f"reward-{self._label}", daemon=True).start()

    def _run(self, call: _Call) -> None:
        verdicts = grade_batch(self._reward, self._label, call.episodes)
        with self._lock:
            self._finish(call, verdicts)
        self._wake()

    def _finish(self, call: _Call, outcomes: list[Any]) -> None:
        if call not in self._running:
            return  # given up in the meantime
        self._running.remove(call)
        pairs = zip(call.episodes, outcomes, strict=True)
        self._settled += [(episode.id, outcome) for episode, outcome in pairs if episode.id in call.wanted]
        self._start_calls()

    def _expire(self, now: float) -> None:
        for call in [call for call in self._running if now - call.started >= self._limit]:
            lost = Lost("timeout", f"no answer after {self._limit:g} s", now - call.started)
            self._finish(call, [lost] * len(call.episodes))

    def _give_up(self, call: _Call) -> None:
        self._running.remove(call)


class ProcessLane(Lane):
    """Calls go to one worker process that builds the reward once; it is killed and replaced when it hangs or dies."""

    def __init__(self, options: RewardOptions, batching: Batching, limit: float):
        super().__init__(None, options.label, batching, limit, lambda: None)
        self._pool = WorkerPool([options], 1, memory_gb=None, start_seconds=batching.start_seconds, recycle=False)

    def poll(self) -> Settled:
        for call, outcome in self._pool.poll(0.0):
            with self._lock:
                outcomes = outcome if isinstance(outcome, list) else [outcome] * len(call.episodes)
                self._finish(call, outcomes)
        with self._lock:
            ready, self._settled = self._settled, []
            return ready

    def close(self) -> None:
        super().close()
        self._pool.close()

    def _start(self, call: _Call) -> None:
        try:
            self._pool.submit(call, 0, call.episodes, self._limit)
        except (TypeError, AttributeError, pickle.PicklingError) as error:
            reason = f"reward '{self._label}': the episodes cannot be sent to a worker process: {error}"
            self._finish(call, [Failed(reason)] * len(call.episodes))

    def _give_up(self, call: _Call) -> None:
        self._pool.cancel([call])
        super()._give_up(call)
