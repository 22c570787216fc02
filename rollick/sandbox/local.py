"""Programs in namespaces of this machine, without Docker and without a daemon.

    with LocalSandbox() as sandbox:
        sandbox.run(Program({"main.py": b"print(6 * 7)"}, ("python3", "main.py"))).stdout    # b"42\\n"

A run sees a small read-only root, one bounded tmpfs, its own processes and no network; it has no capabilities, a
seccomp filter and limits of every kind. `rollick.sandbox.launcher` starts it, `rollick.sandbox.run` is its inside.
"""

from __future__ import annotations

import base64
import fcntl
import json
import os
import socket
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import rollick
from rollick.errors import ConfigError
from rollick.sandbox.base import Outcome, Program, RunVerdict, infrastructure
from rollick.sandbox.launcher import MESSAGE
from rollick.sandbox.output import Stream, describe, ran_out_of_memory, wait_for
from rollick.sandbox.root import PACKAGES, WORK
from rollick.sandbox.seccomp import filter_program

START_SECONDS = 30.0
"""Time that starting may take (the launcher once, a run each time) before it is called an infrastructure failure."""
GRACE_SECONDS = 1.5
"""Past the wall limit, when the run's own init has not ended it."""
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
Mechanism = Literal["namespaces", "bubblewrap"]
ENVIRONMENT = {
    "PATH": f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin",
    "HOME": WORK,
    "TMPDIR": WORK,
    "USER": "sandbox",
    "LANG": "C.UTF-8",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONHASHSEED": "0",
    "PYTHONPATH": PACKAGES,
}


def visible_paths(read_only: Mapping[str, str] | None = None) -> dict[str, str]:
    """What is shown besides the system: this Python and its packages, and the caller's own folders."""
    shown = dict(read_only or {})
    if not sys.base_prefix.startswith("/usr"):
        for folder in ("bin", "lib", "lib64"):
            path = os.path.join(sys.base_prefix, folder)
            if os.path.isdir(path):
                shown[path] = os.path.realpath(path)
    packages = sysconfig.get_path("purelib")
    if os.path.isdir(packages):
        shown[PACKAGES] = packages
    return shown


class _Launcher:
    """The launcher process seen from here. Raises ConfigError with the kernel's words when it cannot isolate."""

    def __init__(self, visible: Mapping[str, str], mechanism: str):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.channel = ours
        self.owner = os.getpid()
        environment = {"PYTHONPATH": str(Path(rollick.__file__).parents[1])}
        command = [sys.executable, "-P", "-S", "-s", "-B", "-m", "rollick.sandbox.launcher", str(theirs.fileno())]
        with theirs:
            self.process = subprocess.Popen(
                [*command, json.dumps(dict(visible)), mechanism],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=environment,
                cwd="/",
            )
        ours.settimeout(START_SECONDS)
        try:
            answer = json.loads(ours.recv(1 << 16) or b'{"error": "it died while it started"}')
        except TimeoutError:
            answer = {"error": f"it did not start within {START_SECONDS:g} s"}
        if "error" in answer:
            self.close()
            raise ConfigError(str(answer["error"]))
        self.as_root = bool(answer["root"])

    def start(self, fds: list[int]) -> None:
        socket.send_fds(self.channel, [MESSAGE], fds)

    @property
    def alive(self) -> bool:
        return self.owner == os.getpid() and self.process.poll() is None

    def close(self) -> None:
        self.channel.close()
        if self.owner != os.getpid():
            return
        try:
            self.process.wait(5.0)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class LocalSandbox:
    """Runs programs in their own namespaces on this machine, made by the kernel alone or by bubblewrap.

    `read_only` maps paths inside to real ones that are shown besides the system folders and this Python. As root every
    run has a uid of its own; else it runs in a user namespace. Raises ConfigError where the kernel allows neither.
    """

    def __init__(self, read_only: Mapping[str, str] | None = None, mechanism: Mechanism = "namespaces"):
        if sys.platform != "linux" or filter_program() is None:
            raise ConfigError(f"no support for {sys.platform} on {os.uname().machine}")
        self._visible = visible_paths(read_only)
        self._mechanism = mechanism
        self._lock = threading.Lock()
        self._launcher: _Launcher | None = _Launcher(self._visible, self._mechanism)
        who = "a uid per run" if self._launcher.as_root else "a user namespace per run"
        self._description = f"{mechanism} ({who}; no network, own tmpfs, read-only root, seccomp, rlimits)"

    @property
    def description(self) -> str:
        return self._description

    def run(self, program: Program) -> Outcome:
        """The program's outcome; `infrastructure` when the sandbox itself failed. Never raises for what a program
        does."""
        try:
            run = _Run(program)
        except OSError as error:
            return infrastructure(f"cannot prepare a run: {error}")
        try:
            with self._lock:
                launcher = self._ready_launcher()
                launcher.start(run.handed_over)
            run.close_handed_over()
            return run.follow()
        except (OSError, ConfigError) as error:
            return infrastructure(f"cannot start a run: {error}")
        finally:
            run.close()

    def _ready_launcher(self) -> _Launcher:
        """A launcher of this very process: not one that died, nor one from before a fork."""
        if self._launcher is None or not self._launcher.alive:
            if self._launcher is not None:
                self._launcher.close()
            self._launcher = None
            self._launcher = _Launcher(self._visible, self._mechanism)
        return self._launcher

    def close(self) -> None:
        """End the launcher and all runs. Safe to call twice."""
        with self._lock:
            if self._launcher is not None:
                self._launcher.close()
                self._launcher = None

    def __enter__(self) -> LocalSandbox:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def _sealed(name: str, content: bytes) -> int:
    """A file in memory that nobody can change any more."""
    fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
    return fd


class _Run:
    """One run seen from the caller: the pipes, the limits that hold here, and the verdict."""

    def __init__(self, program: Program):
        self._limits = program.limits
        spec = {
            "files": {name: base64.b64encode(content).decode() for name, content in program.files.items()},
            "command": list(program.command),
            "environment": {**ENVIRONMENT, **program.environment},
            "limits": asdict(program.limits),
        }
        self._mine: list[int] = []
        self.handed_over: list[int] = []
        try:
            self.handed_over += [_sealed("spec", json.dumps(spec).encode())]
            self.handed_over += [_sealed("stdin", program.stdin)]
            readers = [self._pipe() for _ in range(3)]
            lifeline, hold = os.pipe()
            self.handed_over.append(lifeline)
            self._mine.append(hold)
        except OSError:
            self.close()
            raise
        self._lifeline = hold
        self._stdout, self._stderr = (Stream(fd, self._limits.output_bytes) for fd in readers[:2])
        self._report = Stream(readers[2], 1 << 16)

    def _pipe(self) -> int:
        read_end, write_end = os.pipe()
        self._mine.append(read_end)
        self.handed_over.append(write_end)
        return read_end

    def close_handed_over(self) -> None:
        while self.handed_over:
            os.close(self.handed_over.pop())

    def close(self) -> None:
        self.close_handed_over()
        while self._mine:
            os.close(self._mine.pop())

    def _cut_lifeline(self) -> None:
        if self._lifeline in self._mine:
            self._mine.remove(self._lifeline)
            os.close(self._lifeline)

    def follow(self) -> Outcome:
        """Read until everything inside has ended, and make sure that it ends in time."""
        begin = time.monotonic()
        deadline = begin + START_SECONDS
        started = False
        cut: RunVerdict | None = None
        while self._report.open:
            if self._report.data and not started:
                started = True
                deadline = time.monotonic() + self._limits.seconds + GRACE_SECONDS
            left = deadline - time.monotonic()
            if left <= 0:
                if cut is not None:
                    return infrastructure("the run did not end when it was told to")
                cut = "timeout" if started else "infrastructure"
            for stream in self._ready(left):
                stream.read()
            if cut is None and (self._stdout.over or self._stderr.over):
                cut = "output_limit"
            if cut is not None and self._lifeline in self._mine:
                self._cut_lifeline()
                deadline = time.monotonic() + START_SECONDS
        return self._outcome(cut, time.monotonic() - begin)

    def _ready(self, seconds: float) -> list[Stream]:
        return wait_for((self._stdout, self._stderr, self._report), seconds)

    def _drain(self) -> None:
        """Nothing writes any more; take what still lies in the pipes."""
        while streams := [s for s in self._ready(1.0) if not s.over]:
            for stream in streams:
                stream.read()

    def _outcome(self, cut: RunVerdict | None, seconds: float) -> Outcome:
        self._drain()
        report: dict[str, Any] = {}
        for line in self._report.data.decode().splitlines():
            report |= json.loads(line)
        if "error" in report:
            return infrastructure(report["error"])
        if cut is None and (self._stdout.over or self._stderr.over):
            cut = "output_limit"
        if cut is None and "verdict" not in report:
            return infrastructure("the run ended without a report")
        outcome = Outcome(
            cut or report["verdict"],
            status=report.get("status"),
            stdout=bytes(self._stdout.data),
            stderr=bytes(self._stderr.data),
            seconds=report.get("seconds", seconds),
            cpu_seconds=report.get("cpu_seconds", 0.0),
            peak_bytes=report.get("peak_bytes", 0),
        )
        if outcome.verdict in ("exit", "killed") and ran_out_of_memory(outcome.stderr):
            outcome = replace(outcome, verdict="memory")
        return replace(outcome, reason=describe(outcome, self._limits.seconds))
