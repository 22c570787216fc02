"""A pool of killable grader processes: no call outlives its limit, and no slot is ever lost.

    with WorkerPool([MathOptions(kind="math")], workers=2) as pool:
        pool.submit("g0/1:math", 0, episode, limit=5.0)
        [(key, outcome)] = pool.poll(timeout=10.0)      # Score(1.0), or Lost("timeout", …)

One thread of this process drives the pool, so that limits hold while the caller is busy elsewhere. A worker that
hangs, crashes, floods its output or answers nonsense is killed with everything it started and replaced.
"""

from __future__ import annotations

import json
import os
import pickle
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal

from rollick.data.records import Episode
from rollick.errors import WorkerError
from rollick.rewards.base import RewardOptions, Verdict
from rollick.rewards.worker import MAX_REPLY_BYTES, decode_verdict, send_frame

CALLS_PER_WORKER = 2000
"""Calls after which a worker is replaced, so that a leak in a grader stays small."""
MAX_OUTPUT_BYTES = 1 << 20
"""What one call may print; its last lines are shown when the worker dies."""
START_SECONDS = 60.0
"""Time a worker has to import and build its graders."""
MAX_FAILED_STARTS = 3
"""Workers in a row that may die before they are ready; then the pool says why and gives up."""


@dataclass(frozen=True)
class Lost:
    """The grader gave no verdict: its process was killed at the limit, or died.

    Lost("timeout", "killed after 5 s", 5.0)
    """

    cause: Literal["timeout", "crash", "output"]
    reason: str
    seconds: float


Outcome = Verdict | list[Verdict] | Lost


@dataclass
class _Call:
    key: Hashable
    payload: bytes
    limit: float
    cancelled: bool = False


@dataclass
class _Worker:
    """One process, seen from here. `deadline` (monotonic) bounds whatever it is doing now."""

    pid: int
    channel: socket.socket
    output: int | None
    deadline: float
    ready: bool = False
    call: _Call | None = None
    started: float = 0.0
    calls: int = 0
    printed: int = 0
    last_words: bytes = b""
    buffer: bytearray = field(default_factory=bytearray)


class _Nursery:
    """The process that forks and kills workers (see `rollick.rewards.worker`)."""

    def __init__(self, options: Sequence[RewardOptions], memory_bytes: int | None, start_seconds: float):
        ours, theirs = socket.socketpair()
        path = os.pathsep.join(os.path.abspath(entry) for entry in [*sys.path, ""])
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
        self.control = ours
        self._start_seconds = start_seconds
        self.process = subprocess.Popen(
            [sys.executable, "-m", "rollick.rewards.worker", str(theirs.fileno())],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={**os.environ, **threads, "PYTHONPATH": path},
        )
        theirs.close()
        ours.settimeout(start_seconds)
        send_frame(ours, pickle.dumps((list(options), memory_bytes)))
        self.ready = False

    def await_ready(self) -> None:
        """Raises WorkerError with the nursery's own words when it could not load the graders."""
        answer = self._line()
        if answer != "ready":
            raise WorkerError(answer or "the process that starts reward workers died while it loaded the graders")
        self.ready = True

    def fork(self) -> _Worker:
        ours, theirs = socket.socketpair()
        read_end, write_end = os.pipe()
        os.set_blocking(read_end, False)
        try:
            socket.send_fds(self.control, [b"fork"], [theirs.fileno(), write_end])
            pid = int(self._line())
        except (OSError, ValueError):
            ours.close()
            os.close(read_end)
            raise
        finally:
            theirs.close()
            os.close(write_end)
        ours.settimeout(10.0)
        return _Worker(pid, ours, read_end, deadline=time.monotonic() + self._start_seconds)

    def kill(self, pid: int) -> None:
        self.control.sendall(b"kill %d" % pid)
        self._line()

    def _line(self) -> str:
        data = b""
        while not data.endswith(b"\n"):
            chunk = self.control.recv(4096)
            if not chunk:
                raise ConnectionError("the process that starts reward workers is gone")
            data += chunk
        return data.decode().strip()

    def close(self) -> None:
        self.control.close()
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class WorkerPool:
    """`workers` processes that each hold all graders of `options`; a call names its grader by position.

    `memory_gb` bounds the private memory of each worker (None: nothing does), `start_seconds` the time it takes to
    be ready; `recycle` replaces it after CALLS_PER_WORKER calls. Safe to use from several threads.
    """

    def __init__(
        self,
        options: Sequence[RewardOptions],
        workers: int,
        memory_gb: float | None = 4.0,
        start_seconds: float = START_SECONDS,
        recycle: bool = True,
    ):
        self._options = list(options)
        self._size = workers
        self._memory_bytes = None if memory_gb is None else int(memory_gb * 2**30)
        self._start_seconds = start_seconds
        self._recycle = recycle
        self._lock = threading.Condition()
        self._queue: deque[_Call] = deque()
        self._outcomes: deque[tuple[Any, Outcome]] = deque()
        self._in_flight: set[Hashable] = set()
        self._workers: list[_Worker] = []
        self._nursery: _Nursery | None = None
        self._failed_starts = 0
        self._broken: str | None = None
        self._closing = False
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_read, False)
        os.set_blocking(self._wake_write, False)
        self._thread = threading.Thread(target=self._run, name="reward-pool", daemon=True)
        self._thread.start()

    def submit(self, key: Hashable, index: int, episode: Episode | list[Episode], limit: float) -> None:
        """Queue a call of grader `index` (for a list of episodes the outcome is a list); `limit` seconds count from
        the moment a worker takes it.

        Raises ValueError when `key` is in flight already, and whatever pickle raises for an episode it cannot take.
        """
        payload = pickle.dumps((index, episode))
        with self._lock:
            if self._closing:
                raise WorkerError("the reward pool is closed")
            if key in self._in_flight:
                raise ValueError(f"reward call {key!r} is in flight already")
            self._in_flight.add(key)
            self._queue.append(_Call(key, payload, limit))
        self._wake()

    def poll(self, timeout: float | None = None) -> list[tuple[Any, Outcome]]:
        """Outcomes that are ready, waiting up to `timeout` seconds for the first. [] at once when none is due."""
        with self._lock:
            self._lock.wait_for(lambda: bool(self._outcomes) or not self._in_flight or self._closing, timeout)
            ready = list(self._outcomes)
            self._outcomes.clear()
            return ready

    def cancel(self, keys: Iterable[Hashable]) -> None:
        """Forget these calls: queued ones never start, running ones are killed. They have no outcome."""
        with self._lock:
            wanted = set(keys)
            self._queue = deque(call for call in self._queue if call.key not in wanted)
            self._outcomes = deque(item for item in self._outcomes if item[0] not in wanted)
            for worker in self._workers:
                if worker.call and worker.call.key in wanted:
                    worker.call.cancelled = True
            self._in_flight -= wanted
            self._lock.notify_all()
        self._wake()

    def worker_pids(self) -> list[int]:
        """Process ids of the workers that are ready or starting."""
        with self._lock:
            return [worker.pid for worker in self._workers]

    def close(self) -> None:
        """End all processes; calls in flight have no outcome. Safe to call twice."""
        with self._lock:
            first, self._closing = not self._closing, True
            self._lock.notify_all()
        if not first:
            return
        self._wake()
        if self._nursery is not None and not self._nursery.ready:
            self._nursery.process.kill()
        self._thread.join()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def __enter__(self) -> WorkerPool:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _wake(self) -> None:
        try:
            os.write(self._wake_write, b"x")
        except BlockingIOError:
            return  # a wake-up is waiting to be read already
        except OSError:
            if not self._closing:
                raise

    # Everything below runs in the pool's own thread.

    def _run(self) -> None:
        while not self._closing and self._broken is None:
            nursery = self._nursery = _Nursery(self._options, self._memory_bytes, self._start_seconds)
            try:
                nursery.await_ready()
                self._drive(nursery)
            except OSError as error:
                self._failed_starts += 1
                if self._failed_starts >= MAX_FAILED_STARTS:
                    self._broken = f"reward workers cannot be started: {error}"
            except WorkerError as error:
                self._broken = str(error)
            finally:
                self._drop_workers()
                nursery.close()
        while not self._closing:
            self._fail_all(self._broken or "the reward pool is closed")
            select.select([self._wake_read], [], [])
            self._drain_wakes()

    def _drive(self, nursery: _Nursery) -> None:
        while not self._closing and self._broken is None:
            while len(self._workers) < self._size:
                worker = nursery.fork()
                with self._lock:
                    self._workers.append(worker)
            self._dispatch(nursery)
            self._wait(nursery)
            self._enforce(nursery)

    def _dispatch(self, nursery: _Nursery) -> None:
        for worker in list(self._workers):
            if not worker.ready or worker.call is not None:
                continue
            with self._lock:
                if not self._queue:
                    return
                worker.call = self._queue.popleft()
            worker.started = time.monotonic()
            worker.deadline = worker.started + worker.call.limit
            worker.printed = 0
            try:
                send_frame(worker.channel, worker.call.payload)
            except OSError:
                self._lose(nursery, worker, "crash")

    def _wait(self, nursery: _Nursery) -> None:
        """Block until something happens or the next deadline, and take in what arrived."""
        busy = [worker.deadline for worker in self._workers if worker.call or not worker.ready]
        pause = max(0.0, min(busy) - time.monotonic()) if busy else None
        sources: list[int | socket.socket] = [self._wake_read, nursery.control]
        sources += [worker.channel for worker in self._workers]
        sources += [worker.output for worker in self._workers if worker.output is not None]
        readable = _readable(sources, pause)
        if nursery.control in readable:
            raise ConnectionError("the process that starts reward workers is gone")
        if self._wake_read in readable:
            self._drain_wakes()
        for worker in list(self._workers):
            if worker.output in readable:
                self._read_output(worker)
            if worker.channel in readable:
                self._read_reply(nursery, worker)

    def _read_output(self, worker: _Worker) -> None:
        if worker.output is None:
            return
        try:
            chunk = os.read(worker.output, 1 << 16)
        except BlockingIOError:
            return
        if not chunk:
            os.close(worker.output)
            worker.output = None
        worker.printed += len(chunk)
        worker.last_words = (worker.last_words + chunk)[-2000:]

    def _read_reply(self, nursery: _Nursery, worker: _Worker) -> None:
        try:
            chunk = worker.channel.recv(1 << 16)
        except OSError:
            chunk = b""
        if not chunk:
            self._read_output(worker)
            self._lose(nursery, worker, "crash")
            return
        worker.buffer += chunk
        if len(worker.buffer) < 4:
            return
        size = int.from_bytes(worker.buffer[:4], "big")
        if size > MAX_REPLY_BYTES or len(worker.buffer) > size + 4:
            self._lose(nursery, worker, "output")
        elif len(worker.buffer) == size + 4:
            payload = bytes(worker.buffer[4:])
            worker.buffer.clear()
            self._take_reply(nursery, worker, payload)

    def _take_reply(self, nursery: _Nursery, worker: _Worker, payload: bytes) -> None:
        try:
            record = json.loads(payload)
            if worker.call is None:
                if "error" in record:
                    self._broken = str(record["error"])
                worker.ready = bool(record["ready"])
                self._failed_starts = 0
                return
            outcome = decode_verdict(record)
        except (ValueError, KeyError, TypeError):
            self._lose(nursery, worker, "output")
            return
        call, worker.call = worker.call, None
        worker.calls += 1
        self._finish(call, outcome)
        if self._recycle and worker.calls >= CALLS_PER_WORKER:
            self._remove(nursery, worker)

    def _enforce(self, nursery: _Nursery) -> None:
        """Kill what is past its limit, printed too much, or was cancelled."""
        now = time.monotonic()
        for worker in list(self._workers):
            late = (worker.call is not None or not worker.ready) and now >= worker.deadline
            if late or (worker.call is not None and worker.call.cancelled):
                self._lose(nursery, worker, "timeout")
            elif worker.printed > MAX_OUTPUT_BYTES:
                self._lose(nursery, worker, "output")

    def _lose(self, nursery: _Nursery, worker: _Worker, cause: Literal["timeout", "crash", "output"]) -> None:
        """Replace a worker, and say of its call why there is no verdict."""
        self._remove(nursery, worker)
        words = worker.last_words.decode(errors="replace").strip()
        tail = f"; its last words: {words[-500:]}" if words else ""
        if worker.call is None:
            if not worker.ready:
                self._failed_starts += 1
            if self._failed_starts >= MAX_FAILED_STARTS:
                self._broken = f"reward workers die before they are ready ({cause}){tail}"
            return
        seconds = time.monotonic() - worker.started
        reason = {
            "timeout": f"killed after {worker.call.limit:g} s",
            "crash": f"the worker process died after {seconds:.1f} s{tail}",
            "output": f"stopped after more than {MAX_OUTPUT_BYTES} bytes of output or a broken reply",
        }[cause]
        self._finish(worker.call, Lost(cause, reason, seconds))

    def _remove(self, nursery: _Nursery, worker: _Worker) -> None:
        with self._lock:
            self._workers.remove(worker)
        _hang_up(worker)
        nursery.kill(worker.pid)

    def _finish(self, call: _Call, outcome: Outcome) -> None:
        with self._lock:
            if call.cancelled:
                return
            self._in_flight.discard(call.key)
            self._outcomes.append((call.key, outcome))
            self._lock.notify_all()

    def _drop_workers(self) -> None:
        """The nursery is going: its workers die with it, and their calls are lost."""
        with self._lock:
            workers, self._workers = self._workers, []
        for worker in workers:
            _hang_up(worker)
            if worker.call is not None:
                seconds = time.monotonic() - worker.started
                self._finish(worker.call, Lost("crash", "the process that starts reward workers died", seconds))

    def _fail_all(self, reason: str) -> None:
        with self._lock:
            calls, self._queue = self._queue, deque()
        for call in calls:
            self._finish(call, Lost("crash", reason, 0.0))

    def _drain_wakes(self) -> None:
        try:
            while os.read(self._wake_read, 4096):
                pass
        except BlockingIOError:
            return


def _hang_up(worker: _Worker) -> None:
    worker.channel.close()
    if worker.output is not None:
        os.close(worker.output)


def _readable(sources: Sequence[int | socket.socket], timeout: float | None) -> set[int | socket.socket]:
    """Like select, for any number of descriptors and any descriptor value."""
    poller = select.poll()
    by_number = {source if isinstance(source, int) else source.fileno(): source for source in sources}
    for number in by_number:
        poller.register(number, select.POLLIN)
    events = poller.poll(None if timeout is None else timeout * 1000 + 1)
    return {by_number[number] for number, _ in events}
