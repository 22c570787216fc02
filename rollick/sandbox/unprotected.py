"""`isolation: none`: limits of time, output and memory, and nothing that keeps a program from harming the machine."""

from __future__ import annotations

import contextlib
import math
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from rollick.sandbox.base import Outcome, Program, RunVerdict, infrastructure
from rollick.sandbox.output import Stream, describe, ran_out_of_memory, wait_for

_PAUSE_SECONDS = 0.02


class UnprotectedSandbox:
    """For programs that are trusted, and for machines that are sandboxes themselves. Programs run as the caller, with
    the caller's files and network in reach; of the processes they start, those that stay in their session are ended."""

    description = "none (programs can read, write and connect as this user can)"

    def run(self, program: Program) -> Outcome:
        with tempfile.TemporaryDirectory(prefix="rollick-run-", ignore_cleanup_errors=True) as folder:
            try:
                _write_files(Path(folder), program)
                return _run_in(folder, program)
            except OSError as error:
                return infrastructure(f"cannot run {program.command[0]}: {error}")

    def close(self) -> None:
        """Nothing is held between runs."""


def _write_files(folder: Path, program: Program) -> None:
    for name, content in program.files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        if content.startswith((b"\x7fELF", b"#!")):
            path.chmod(0o755)


def _run_in(folder: str, program: Program) -> Outcome:
    limits = program.limits

    def set_limits() -> None:
        cpu = math.ceil(limits.seconds)
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        resource.setrlimit(resource.RLIMIT_DATA, (limits.memory_bytes, limits.memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (limits.disk_bytes, limits.disk_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))

    environment = {
        "PATH": f"{sys.base_prefix}/bin:/usr/local/bin:/usr/bin:/bin",
        "HOME": folder,
        "TMPDIR": folder,
        "LANG": "C.UTF-8",
        **program.environment,
    }
    with tempfile.TemporaryFile() as stdin:
        stdin.write(program.stdin)
        stdin.seek(0)
        begin = time.monotonic()
        process = subprocess.Popen(
            program.command,
            cwd=folder,
            env=environment,
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=set_limits,  # noqa: PLW1509 - it only sets limits, and this mode promises nothing
        )
    assert process.stdout and process.stderr
    with process.stdout as stdout, process.stderr as stderr:
        streams = Stream(stdout.fileno(), limits.output_bytes), Stream(stderr.fileno(), limits.output_bytes)
        cut = _follow(process, streams, begin + limits.seconds)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        status = process.wait()
    return _outcome(program, cut, status, streams, time.monotonic() - begin)


def _follow(process: subprocess.Popen[bytes], streams: tuple[Stream, Stream], deadline: float) -> RunVerdict | None:
    """Read until the program has ended, or the limit it met."""
    while time.monotonic() < deadline:
        ended = process.poll() is not None
        ready = wait_for(streams, 0.0 if ended else _PAUSE_SECONDS)
        for stream in ready:
            stream.read()
        if any(stream.over for stream in streams):
            return "output_limit"
        if ended and not ready:
            return None
        if not any(stream.open for stream in streams) and not ended:
            time.sleep(_PAUSE_SECONDS)
    return "timeout"


def _outcome(
    program: Program, cut: RunVerdict | None, status: int, streams: tuple[Stream, Stream], seconds: float
) -> Outcome:
    stdout, stderr = (bytes(stream.data) for stream in streams)
    if cut is None:
        cut = "ok" if status == 0 else "exit" if status > 0 else "killed"
        if status == -signal.SIGXCPU:
            cut = "timeout"
        elif status and ran_out_of_memory(stderr):
            cut = "memory"
    own = None if cut in ("timeout", "output_limit") else status
    outcome = Outcome(cut, own, stdout, stderr, seconds)
    return replace(outcome, reason=describe(outcome, program.limits.seconds))
