"""What happens inside the namespaces of one run: its init, which sets limits, watches and reports, and the program.

The init is process 1 in there. When it ends, the kernel kills every other process, whatever session it moved to and
whatever signals it ignores; so a verdict and the end of the run are one thing.
"""

from __future__ import annotations

import base64
import contextlib
import json
import math
import os
import resource
import select
import signal
import socket
import sys
import time
from dataclasses import astuple, dataclass
from typing import Any, ClassVar, NoReturn

from rollick.sandbox import kernel
from rollick.sandbox.root import WORK
from rollick.sandbox.seccomp import filter_program

_WATCH_SECONDS = 0.02
"""How often memory is looked at."""
_STACK_BYTES = 8 << 20
_PENDING_SIGNALS = 1024
_COUNTED = ("RssAnon:", "RssShmem:", "VmPTE:", "VmSwap:")
"""Of /proc/PID/status: what a process holds in memory, page tables among it."""


@dataclass(frozen=True)
class Descriptors:
    """What the caller hands over for one run: files for spec and stdin, pipe ends for the rest. The lifeline is a
    pipe whose other end the caller alone holds: when it closes, the run is over."""

    spec: int
    stdin: int
    stdout: int
    stderr: int
    report: int
    lifeline: int

    COUNT: ClassVar[int] = 6

    def tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(BrokenPipeError):
            os.write(self.report, json.dumps(message).encode() + b"\n")


@dataclass(frozen=True)
class Identity:
    """The uid of the program and that of its init; `changes` unless both are the caller's own."""

    program: int
    init: int
    changes: bool

    def become(self, uid: int) -> None:
        kernel.forget_capabilities()
        if self.changes:
            os.setgroups([])
            os.setresgid(uid, uid, uid)
            os.setresuid(uid, uid, uid)
        kernel.drop_capabilities()


def be_init(descriptors: Descriptors, spec: dict[str, Any], identity: Identity, has_mounts: bool = False) -> NoReturn:
    """Prepare the run, start the program, watch it, report, and end (with it, everything)."""
    try:
        _close_all_but(descriptors)
        if not has_mounts:
            socket.sethostname("sandbox")
            _mount_own(spec["limits"], identity)
        _write_files(spec["files"], identity)
        stdin = os.open(f"/proc/self/fd/{descriptors.stdin}", os.O_RDONLY)
        kernel.prctl(kernel.DUMPABLE, 0)  # from before the program is there, nobody in here may look into this process
        pid, failed = _start(stdin, descriptors, spec, identity)
        identity.become(identity.init)
        kernel.prctl(kernel.DUMPABLE, 0)  # the change of uid may have set it again
        kernel.prctl(kernel.PARENT_DEATH_SIGNAL, signal.SIGKILL)
        if reason := os.read(failed, 1000).decode():
            descriptors.tell({"error": reason})
        else:
            descriptors.tell({"started": True})
            descriptors.tell(_watch(pid, descriptors, spec["limits"]))
    except BaseException as error:  # noqa: BLE001 - process 1 must never return; the caller is told
        descriptors.tell({"error": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def _close_all_but(descriptors: Descriptors) -> None:
    kept = sorted(astuple(descriptors))
    for low, high in zip([2, *kept], [*kept, 4096]):
        os.closerange(low + 1, high)


def _mount_own(limits: dict[str, Any], identity: Identity) -> None:
    safe = kernel.NO_SETUID | kernel.NO_DEVICES
    kernel.mount("proc", "/proc", "proc", safe | kernel.NO_EXEC, "subset=pid")
    size = f"size={limits['disk_bytes']},nr_inodes={limits['inodes']}"
    owner = f"mode=0700,uid={identity.program},gid={identity.program if identity.changes else os.getegid()}"
    kernel.mount("work", WORK, "tmpfs", safe, f"{size},{owner}")
    os.chdir(WORK)


def _write_files(files: dict[str, str], identity: Identity) -> None:
    for name, content in files.items():
        folder = ""
        for part in name.split("/")[:-1]:
            folder = os.path.join(folder, part)
            if not os.path.isdir(folder):
                os.mkdir(folder)
                _give(folder, identity)
        data = base64.b64decode(content)
        with open(name, "wb") as file:
            file.write(data)
        if data.startswith((b"\x7fELF", b"#!")):
            os.chmod(name, 0o755)
        _give(name, identity)


def _give(path: str, identity: Identity) -> None:
    if identity.changes:
        os.chown(path, identity.program, identity.program)


def _start(stdin: int, descriptors: Descriptors, spec: dict[str, Any], identity: Identity) -> tuple[int, int]:
    """Fork the program. Returns its pid and a descriptor that yields why it could not be started, else nothing."""
    failed, tell_failed = os.pipe()
    pid = os.fork()
    if pid:
        os.close(tell_failed)
        for end in (stdin, descriptors.stdin, descriptors.stdout, descriptors.stderr):
            os.close(end)
        return pid, failed
    try:
        _become_program(stdin, descriptors, spec, identity)
    except BaseException as error:  # noqa: BLE001 - as above: a forked child, whose words are passed on
        os.write(tell_failed, f"cannot start {spec['command'][0]}: {error}".encode()[:1000])
    finally:
        os._exit(127)


def _become_program(stdin: int, descriptors: Descriptors, spec: dict[str, Any], identity: Identity) -> None:
    os.setsid()
    for number, end in enumerate((stdin, descriptors.stdout, descriptors.stderr)):
        os.dup2(end, number)
    for end in astuple(descriptors):
        os.set_inheritable(end, False)
    _set_limits(spec["limits"])
    identity.become(identity.program)
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    instructions = filter_program()
    if instructions is None:
        raise OSError(f"no seccomp filter for {os.uname().machine}")
    kernel.install_seccomp(instructions)
    os.execvpe(spec["command"][0], spec["command"], spec["environment"])


def _set_limits(limits: dict[str, Any]) -> None:
    cpu = math.ceil(limits["seconds"])
    memory = limits["memory_bytes"]
    for kind, soft, hard in (
        (resource.RLIMIT_CPU, cpu, cpu + 1),
        (resource.RLIMIT_DATA, memory, memory),
        (resource.RLIMIT_STACK, min(_STACK_BYTES, memory), memory),
        (resource.RLIMIT_FSIZE, limits["disk_bytes"], limits["disk_bytes"]),
        (resource.RLIMIT_NPROC, limits["processes"], limits["processes"]),
        (resource.RLIMIT_NOFILE, limits["open_files"], limits["open_files"]),
        (resource.RLIMIT_SIGPENDING, _PENDING_SIGNALS, _PENDING_SIGNALS),
        (resource.RLIMIT_CORE, 0, 0),
        (resource.RLIMIT_MEMLOCK, 0, 0),
        (resource.RLIMIT_MSGQUEUE, 0, 0),
    ):
        most = resource.getrlimit(kind)[1]  # what the caller itself is allowed is not to be exceeded
        if most != resource.RLIM_INFINITY:
            soft, hard = min(soft, most), min(hard, most)
        resource.setrlimit(kind, (soft, hard))


def _watch(pid: int, descriptors: Descriptors, limits: dict[str, Any]) -> dict[str, Any]:
    """Wait for the program, reaping orphans meanwhile, and say how it ended."""
    begin = time.monotonic()
    deadline = begin + limits["seconds"]
    ended = os.pidfd_open(pid)
    poll = select.poll()
    poll.register(ended, select.POLLIN)
    poll.register(descriptors.lifeline, select.POLLIN)
    peak = 0
    while True:
        left = deadline - time.monotonic()
        events = poll.poll(max(0.0, min(left, _WATCH_SECONDS)) * 1000)
        status, usage = _reap(pid)
        seconds = time.monotonic() - begin
        if status is not None and usage is not None:
            return _report_end(status, usage, seconds, peak, limits)
        resident = resident_bytes()
        peak = max(peak, resident)
        if resident > limits["memory_bytes"]:
            return {"verdict": "memory", "seconds": seconds, "peak_bytes": peak}
        if left <= 0 or any(fd == descriptors.lifeline for fd, _ in events):
            return {"verdict": "timeout", "seconds": seconds, "peak_bytes": peak}


def _reap(pid: int) -> tuple[int | None, resource.struct_rusage | None]:
    found: tuple[int | None, resource.struct_rusage | None] = (None, None)
    with contextlib.suppress(ChildProcessError):
        while True:
            child, status, usage = os.wait4(-1, os.WNOHANG)
            if child == 0:
                break
            if child == pid:
                found = os.waitstatus_to_exitcode(status), usage
    return found


def _report_end(
    status: int, usage: resource.struct_rusage, seconds: float, peak: int, limits: dict[str, Any]
) -> dict[str, Any]:
    cpu = usage.ru_utime + usage.ru_stime
    verdict = "ok" if status == 0 else "exit" if status > 0 else "killed"
    # The kernel counts the CPU limit on its own clock, which runs ahead of the usage it reports by some percent.
    if status == -signal.SIGXCPU or (status == -signal.SIGKILL and cpu >= 0.9 * math.ceil(limits["seconds"])):
        verdict = "timeout"
    return {
        "verdict": verdict,
        "status": status,
        "seconds": seconds,
        "cpu_seconds": cpu,
        "peak_bytes": max(peak, usage.ru_maxrss * 1024),
    }


def resident_bytes() -> int:
    """Memory of all processes here but this one, without the pages of files that can be read again."""
    total = 0
    for name in os.listdir("/proc"):
        if not name.isdigit() or name == "1":
            continue
        with contextlib.suppress(OSError), open(f"/proc/{name}/status") as status:
            for line in status:
                if line.startswith(_COUNTED):
                    total += int(line.split()[1]) * 1024
    return total


def main() -> None:
    """The init of a run in namespaces that somebody else has made: `python -m rollick.sandbox.run FD…`."""
    descriptors = Descriptors(*map(int, sys.argv[1:]))
    os.lseek(descriptors.spec, 0, os.SEEK_SET)  # whoever made the namespaces has read it
    with open(descriptors.spec, closefd=False, encoding="utf-8") as file:
        spec = json.load(file)
    be_init(descriptors, spec, Identity(os.geteuid(), os.geteuid(), changes=False), has_mounts=True)


if __name__ == "__main__":
    main()
