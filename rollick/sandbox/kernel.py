"""The Linux calls that Python has no function for, each raising OSError with what was tried."""

from __future__ import annotations

import ctypes
import os
import struct

NEW_MOUNTS, NEW_CGROUP, NEW_HOSTNAME, NEW_IPC = 0x00020000, 0x02000000, 0x04000000, 0x08000000
NEW_USERS, NEW_PIDS, NEW_NETWORK = 0x10000000, 0x20000000, 0x40000000

READ_ONLY, NO_SETUID, NO_DEVICES, NO_EXEC, REMOUNT = 1, 2, 4, 8, 32
BIND, RECURSIVE, PRIVATE = 4096, 16384, 1 << 18

PARENT_DEATH_SIGNAL, DUMPABLE, SECCOMP, NO_NEW_PRIVILEGES, AMBIENT_CAPABILITIES = 1, 4, 22, 38, 47

_DETACH = 2
_SYS_PIVOT_ROOT = {"x86_64": 155, "aarch64": 41}
_SYS_MOUNT_SETATTR = 442
_SYS_CAPSET = {"x86_64": 126, "aarch64": 91}
_AT_FDCWD, _AT_RECURSIVE = -100, 0x8000
_FILTER_MODE = 2
_CAPABILITY_VERSION = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> None:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def unshare(flags: int) -> None:
    _checked(_libc.unshare(flags), f"unshare({flags:#x})")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    arguments = (source.encode(), target.encode(), kind.encode(), ctypes.c_ulong(flags), data.encode())
    _checked(_libc.mount(*arguments), f"mount {kind or source} on {target}")


def bind_read_only(source: str, target: str) -> None:
    """Show `source` and what is mounted below it at `target`, without writing, devices and set-uid."""
    mount(source, target, flags=BIND | RECURSIVE)
    attributes = struct.pack("=QQQQ", READ_ONLY | NO_SETUID | NO_DEVICES, 0, 0, 0)
    arguments = (_AT_FDCWD, target.encode(), _AT_RECURSIVE, attributes, len(attributes))
    _checked(_libc.syscall(_SYS_MOUNT_SETATTR, *arguments), f"make {target} read-only (needs Linux 5.12)")


def pivot_root(new: str, old_inside: str) -> None:
    """Make `new` the root of this mount namespace and let go of everything outside of it."""
    old = os.path.join(new, old_inside)
    os.mkdir(old)
    _checked(_libc.syscall(_SYS_PIVOT_ROOT[os.uname().machine], new.encode(), old.encode()), f"pivot_root {new}")
    os.chdir("/")
    _checked(_libc.umount2(f"/{old_inside}".encode(), _DETACH), "umount the old root")
    os.rmdir(f"/{old_inside}")


def remount_root_read_only() -> None:
    mount("", "/", flags=REMOUNT | BIND | READ_ONLY | NO_SETUID | NO_DEVICES)


def prctl(option: int, value: int) -> None:
    _checked(_libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0), f"prctl({option})")


def forget_capabilities() -> None:
    """No program started from here can gain a capability, whoever it becomes (empties the bounding set)."""
    drop_from_bounding_set, capability = 24, 0
    while _libc.prctl(drop_from_bounding_set, capability, 0, 0, 0) == 0:
        capability += 1


def drop_capabilities() -> None:
    clear_all = 4
    _checked(_libc.prctl(AMBIENT_CAPABILITIES, clear_all, 0, 0, 0), "clear ambient capabilities")
    header = struct.pack("=II", _CAPABILITY_VERSION, 0)
    _checked(_libc.syscall(_SYS_CAPSET[os.uname().machine], header, bytes(24)), "capset")


def install_seccomp(instructions: bytes) -> None:
    """From here on the filter (see `rollick.sandbox.seccomp`) binds this process and all its children."""

    class FilterProgram(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("filter", ctypes.c_char_p))

    program = FilterProgram(len(instructions) // 8, instructions)
    prctl(NO_NEW_PRIVILEGES, 1)
    _checked(_libc.prctl(SECCOMP, _FILTER_MODE, ctypes.byref(program), 0, 0), "install seccomp filter")
