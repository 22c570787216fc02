"""The processes behind `rollick.rewards.pool`: a nursery that imports once, and the workers it forks.

The nursery (`python -m rollick.rewards.worker FD`) is single-threaded and loads the graders' packages one time, so
a worker is forked in milliseconds, warm. It reaps and kills workers with everything they started, and ends with
them when its parent goes away, however that happens: by a closed pipe, or by signal where the pipe leaked.

Frames are four bytes of length (big-endian) and a payload. Towards workers the payload is a pickle that the
trainer made; what comes back from them is JSON, because a grader may have run code that must not be trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import inspect
import json
import os
import pickle
import resource
import select
import signal
import socket
import struct
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rollick.data.records import Episode
from rollick.errors import RollickError
from rollick.rewards.base import Abstain, Failed, Reward, RewardOptions, Score, Verdict, checked

MAX_REPLY_BYTES = 1 << 20
"""A verdict longer than this is a failure of its grader."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_REAP_SECONDS = 1.0


def send_frame(channel: socket.socket, payload: bytes) -> None:
    channel.sendall(struct.pack(">I", len(payload)) + payload)


def receive_frame(channel: socket.socket) -> bytes | None:
    """The next payload, or None at the end of the stream."""
    header = _receive_exactly(channel, 4)
    return None if header is None else _receive_exactly(channel, struct.unpack(">I", header)[0])


def _receive_exactly(channel: socket.socket, count: int) -> bytes | None:
    data = bytearray()
    while len(data) < count:
        chunk = channel.recv(count - len(data))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def encode_verdict(verdict: Verdict) -> dict[str, Any]:
    return {"verdict": type(verdict).__name__, **asdict(verdict)}


def decode_verdict(record: dict[str, Any]) -> Verdict | list[Verdict]:
    """Undo `encode_verdict`, also of a batch; raises KeyError, TypeError or ValueError for anything else."""
    if "verdicts" in record:
        return [_decode(one) for one in record["verdicts"]]
    return _decode(record)


def _decode(record: dict[str, Any]) -> Verdict:
    kinds = {"Score": Score, "Abstain": Abstain, "Failed": Failed}
    fields = {key: value for key, value in record.items() if key != "verdict"}
    return kinds[record["verdict"]](**fields)


def grade(reward: Reward, label: str, episode: Episode) -> Verdict:
    """One call whose every outcome is a verdict: an exception in a grader is its failure, not the run's."""
    try:
        verdict: Any = reward.score(episode)
        return checked(asyncio.run(verdict) if inspect.iscoroutine(verdict) else verdict, label)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a grader is foreign code; what it raised is reported
        return Failed(_raised(label, error))


def grade_batch(reward: Any, label: str, episodes: Sequence[Episode]) -> list[Verdict]:
    """One verdict per episode, from `score_batch` where the reward has it. When that fails as a whole, each fails."""
    if not hasattr(reward, "score_batch"):
        return [grade(reward, label, episode) for episode in episodes]
    try:
        verdicts = list(reward.score_batch(episodes))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - as above
        return [Failed(_raised(label, error))] * len(episodes)
    if len(verdicts) != len(episodes):
        return [Failed(f"reward '{label}' gave {len(verdicts)} verdicts for {len(episodes)} episodes")] * len(episodes)
    return [checked(verdict, label) for verdict in verdicts]


def _raised(label: str, error: BaseException) -> str:
    frame = traceback.extract_tb(error.__traceback__)[-1]
    where = f"{Path(frame.filename).name}:{frame.lineno}"
    return f"reward '{label}' raised {type(error).__name__}: {error!s:.300} ({where})"


def _prctl(option: int, value: int) -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0)


def _serve(channel: socket.socket, options: Sequence[RewardOptions]) -> None:
    """A worker's life: build the graders, say ready, answer calls until the channel closes."""
    try:
        rewards: list[Any] = [one.build() for one in options]
        for reward in rewards:
            if hasattr(reward, "load"):
                reward.load()
    except RollickError as error:
        send_frame(channel, json.dumps({"error": str(error)}).encode())
        return
    send_frame(channel, json.dumps({"ready": True}).encode())
    while (payload := receive_frame(channel)) is not None:
        index, episode = pickle.loads(payload)
        label = options[index].label
        if isinstance(episode, list):
            record = {"verdicts": [encode_verdict(one) for one in grade_batch(rewards[index], label, episode)]}
        else:
            record = encode_verdict(grade(rewards[index], label, episode))
        reply = json.dumps(record).encode()
        if len(reply) > MAX_REPLY_BYTES:
            failed = Failed(f"reward '{label}' returned {len(reply)} bytes of parts; the limit is {MAX_REPLY_BYTES}")
            reply = json.dumps(encode_verdict(failed)).encode()
        send_frame(channel, reply)


class _Nursery:
    def __init__(self, control: socket.socket, options: Sequence[RewardOptions], memory_bytes: int | None):
        self.control = control
        self.options = options
        self.memory_bytes = memory_bytes
        self.parent = os.getppid()
        self.workers: set[int] = set()

    def run(self) -> None:
        """Obey `fork` and `kill PID` until the parent is gone; then leave nothing behind."""
        try:
            while os.getppid() == self.parent:
                if not select.select([self.control], [], [], _REAP_SECONDS)[0]:
                    self.reap()
                    continue
                request, fds, _, _ = socket.recv_fds(self.control, 64, 2)
                if not request:
                    break
                self.control.sendall(b"%d\n" % self.obey(request.split(), fds))
                self.reap()
        finally:
            self.end_all()

    def end_all(self) -> None:
        for pid in list(self.workers):
            self.kill(pid)
        for _ in range(100):
            self.reap()
            if not _children(os.getpid()):
                return
            time.sleep(0.01)

    def obey(self, words: list[bytes], fds: list[int]) -> int:
        if words[0] == b"fork":
            return self.fork(*fds)
        pid = int(words[1])
        self.kill(pid)
        return pid

    def fork(self, channel: int, output: int) -> int:
        pid = os.fork()
        if pid:
            os.close(channel)
            os.close(output)
            self.workers.add(pid)
            return pid
        status = 1
        try:
            os.setsid()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            self.control.close()
            os.dup2(output, 1)
            os.dup2(output, 2)
            os.close(output)
            if self.memory_bytes is not None:
                resource.setrlimit(resource.RLIMIT_DATA, (self.memory_bytes, self.memory_bytes))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            _serve(socket.socket(fileno=channel), self.options)
            status = 0
        except BaseException:  # noqa: BLE001 - the last words of a forked child, which must never return from here
            traceback.print_exc()
        finally:
            with contextlib.suppress(OSError, ValueError):
                sys.stderr.flush()
                sys.stdout.flush()
            os._exit(status)

    def kill(self, pid: int) -> None:
        """End a worker and everything below it, also what moved to a session of its own."""
        if pid in self.workers:
            _kill_tree(pid)
            os.waitpid(pid, 0)
            self.workers.discard(pid)

    def reap(self) -> None:
        """Collect the dead; kill orphans of workers, which the kernel hands to this process."""
        for pid in _children(os.getpid()):
            if pid not in self.workers:
                _kill_tree(pid)
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.workers.discard(pid)


def _kill_tree(pid: int) -> None:
    # Stopped first, so that nothing can fork while its descendants are being listed.
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGSTOP)
    for child in _children(pid):
        _kill_tree(child)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text().split())
    return found


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    setup = receive_frame(control)
    if setup is None:
        return
    try:
        options, memory_bytes = pickle.loads(setup)
        for one in options:
            one.preload()
    except (ImportError, AttributeError, RollickError) as error:
        control.sendall(f"cannot load the graders: {error}\n".encode())
        return
    gc.collect()
    gc.freeze()
    control.sendall(b"ready\n")
    _Nursery(control, options, memory_bytes).run()


if __name__ == "__main__":
    main()
