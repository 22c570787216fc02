"""The process that starts sandboxed programs: `python -m rollick.sandbox.launcher FD VISIBLE MECHANISM`.

It imports once, moves into the minimal root once, and then forks a supervisor per run, so that a run costs
milliseconds. It speaks with `rollick.sandbox.local` over a socket: one message with six descriptors is one run.
Nothing a program does comes back here except its exit status. It ends when the socket closes, and with it all runs,
because every run also watches its own lifeline.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import sys
from typing import Any, NoReturn

from rollick.sandbox import kernel
from rollick.sandbox.bubblewrap import enter_bubblewrap, find_bubblewrap
from rollick.sandbox.root import enter_minimal_root
from rollick.sandbox.run import Descriptors, Identity, be_init

MESSAGE = b"run"
SUPERVISOR_UID = 61999
FIRST_UID, UIDS = 62000, 512
"""As root, every concurrent run has a uid of its own from here on; limits of processes are counted by uid."""
_REAP_SECONDS = 0.5
_APART = kernel.NEW_NETWORK | kernel.NEW_IPC | kernel.NEW_HOSTNAME | kernel.NEW_CGROUP


def claim_uid() -> tuple[int, socket.socket]:
    """A uid that no other run on this machine has, as long as the socket stays open (also when its owner is killed).

    Raises OSError when all are taken.
    """
    start = os.getpid()
    for step in range(UIDS):
        uid = FIRST_UID + (start + step) % UIDS
        claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            claim.bind(f"\0rollick-sandbox-uid-{uid}")
        except OSError:
            claim.close()
            continue
        return uid, claim
    raise OSError(f"all {UIDS} uids for sandboxes are in use")


def enter_user_namespace() -> None:
    """Become somebody who may make mounts and namespaces, under the same uid."""
    uid, gid = os.geteuid(), os.getegid()
    kernel.unshare(kernel.NEW_USERS | kernel.NEW_MOUNTS)
    _write_proc("setgroups", "deny")
    _write_proc("uid_map", f"{uid} {uid} 1")
    _write_proc("gid_map", f"{gid} {gid} 1")


def _write_proc(name: str, text: str) -> None:
    with open(f"/proc/self/{name}", "w") as file:
        file.write(text)


class Starter:
    """How a run is brought into namespaces of its own. Raises OSError when the kernel does not allow it."""

    def __init__(self, mechanism: str, visible: dict[str, str]):
        self.as_root = os.geteuid() == 0
        self._bubblewrap = mechanism == "bubblewrap"
        self._visible = visible
        if self._bubblewrap:
            if find_bubblewrap() is None:
                raise OSError("bwrap is not installed (apt-get install bubblewrap)")
            return
        if self.as_root:
            kernel.unshare(kernel.NEW_MOUNTS)
        else:
            enter_user_namespace()
        enter_minimal_root(visible, keep_proc=not self.as_root)

    def start(self, descriptors: Descriptors, spec: dict[str, Any]) -> tuple[int, socket.socket | None]:
        """Fork the run's init. Returns its pid and the claim on its uid, to be held as long as the run lasts."""
        uid, claim = claim_uid() if self.as_root else (os.geteuid(), None)
        if self.as_root:
            for end in (descriptors.stdout, descriptors.stderr):
                os.fchown(end, uid, uid)  # so that a program can open /dev/stdout
        if not self._bubblewrap:
            self._leave_namespaces()
        pid = os.fork()
        if pid == 0:
            if claim:
                claim.close()
            self._become_init(descriptors, spec, uid)
        return pid, claim

    def _leave_namespaces(self) -> None:
        if self.as_root:
            kernel.unshare(kernel.NEW_MOUNTS | kernel.NEW_PIDS | _APART)
        else:
            enter_user_namespace()
            kernel.unshare(kernel.NEW_PIDS | _APART)

    def _become_init(self, descriptors: Descriptors, spec: dict[str, Any], uid: int) -> NoReturn:
        if not self._bubblewrap:
            be_init(descriptors, spec, Identity(uid, SUPERVISOR_UID if self.as_root else uid, changes=self.as_root))
        try:
            if self.as_root:
                Identity(uid, uid, changes=True).become(uid)
            enter_bubblewrap(descriptors, spec, self._visible)
        except BaseException as error:  # noqa: BLE001 - a forked child must never return from here
            descriptors.tell({"error": f"{type(error).__name__}: {error}"})
        finally:
            os._exit(0)


def supervise(descriptors: Descriptors, spec: dict[str, Any], starter: Starter) -> None:
    """Start a run, and see that it ends when the lifeline does."""
    os.setsid()
    pid, _claim = starter.start(descriptors, spec)
    init = os.pidfd_open(pid)
    for end in (descriptors.stdin, descriptors.stdout, descriptors.stderr):
        os.close(end)
    select.select([init, descriptors.lifeline], [], [])
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)  # returns when everything inside is gone; only then does the report end


def serve(channel: socket.socket, starter: Starter) -> None:
    while True:
        ready, _, _ = select.select([channel], [], [], _REAP_SECONDS)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if not ready:
            continue
        message, fds, _, _ = socket.recv_fds(channel, len(MESSAGE), Descriptors.COUNT)
        if not message:
            return
        if os.fork() == 0:
            channel.close()
            _run_one(Descriptors(*fds), starter)
        for fd in fds:
            os.close(fd)


def _run_one(descriptors: Descriptors, starter: Starter) -> None:
    try:
        with open(descriptors.spec, closefd=False, encoding="utf-8") as file:
            spec = json.load(file)
        supervise(descriptors, spec, starter)
    except BaseException as error:  # noqa: BLE001 - a forked child must never return from here; the caller is told
        descriptors.tell({"error": f"{type(error).__name__}: {error}"})
    finally:
        os._exit(0)


def main() -> None:
    channel = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the caller's to handle
    try:
        starter = Starter(mechanism=sys.argv[3], visible=json.loads(sys.argv[2]))
    except OSError as error:
        channel.send(json.dumps({"error": str(error)}).encode())
        return
    channel.send(json.dumps({"ready": True, "root": starter.as_root}).encode())
    serve(channel, starter)


if __name__ == "__main__":
    main()
