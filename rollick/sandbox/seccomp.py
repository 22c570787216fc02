"""A seccomp filter in plain BPF: which system calls a sandboxed program cannot make.

Denied is what reaches other namespaces, kernel facilities that no solution to a task needs, and memory that no limit
counts. A denied call fails with EPERM, so that libraries can fall back; a call unknown to this table, with ENOSYS.
Unknown architectures get no filter and with it no sandbox. See seccomp(2) and linux/filter.h.
"""

from __future__ import annotations

import errno
import platform
import struct

_LOAD_WORD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _KILL_PROCESS, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER, _ARCHITECTURE, _FIRST_ARGUMENT, _SECOND_ARGUMENT = 0, 4, 16, 24

_NEW_NAMESPACES = 0x7E020080
"""CLONE_NEW{TIME,NS,CGROUP,UTS,IPC,USER,PID,NET}."""
_AF_UNIX = 1
_TERMINAL_INJECTION = (0x5412, 0x541C)
"""TIOCSTI, TIOCLINUX."""
_LAST_KNOWN = 462
_X32_BIT = 0x40000000

_EVERYWHERE = {
    "pidfd_getfd": 438, "process_madvise": 440, "mount_setattr": 442, "quotactl_fd": 443, "memfd_secret": 447,
    "open_tree": 428, "move_mount": 429, "fsopen": 430, "fsconfig": 431, "fsmount": 432, "fspick": 433,
    "io_uring_setup": 425, "io_uring_enter": 426, "io_uring_register": 427,
    "set_mempolicy_home_node": 450, "statmount": 457, "listmount": 458,
}  # fmt: skip
_X86_64 = {
    "shmget": 29, "shmat": 30, "shmctl": 31, "semget": 64, "msgget": 68, "syslog": 103, "ptrace": 101, "uselib": 134,
    "personality": 135, "ustat": 136, "sysfs": 139, "vhangup": 153, "modify_ldt": 154, "pivot_root": 155,
    "_sysctl": 156, "adjtimex": 159, "chroot": 161, "acct": 163, "settimeofday": 164, "mount": 165, "umount2": 166,
    "swapon": 167, "swapoff": 168, "reboot": 169, "sethostname": 170, "setdomainname": 171, "iopl": 172,
    "ioperm": 173, "init_module": 175, "delete_module": 176, "quotactl": 179, "lookup_dcookie": 212,
    "clock_settime": 227, "mbind": 237, "set_mempolicy": 238, "mq_open": 240, "kexec_load": 246, "add_key": 248,
    "request_key": 249, "keyctl": 250, "migrate_pages": 256, "unshare": 272, "move_pages": 279,
    "perf_event_open": 298, "fanotify_init": 300, "name_to_handle_at": 303, "open_by_handle_at": 304,
    "clock_adjtime": 305, "setns": 308, "process_vm_readv": 310, "process_vm_writev": 311, "kcmp": 312,
    "finit_module": 313, "memfd_create": 319, "kexec_file_load": 320, "bpf": 321, "userfaultfd": 323,
}  # fmt: skip
_AARCH64 = {
    "lookup_dcookie": 18, "umount2": 39, "mount": 40, "pivot_root": 41, "chroot": 51, "vhangup": 58, "quotactl": 60,
    "acct": 89, "personality": 92, "unshare": 97, "kexec_load": 104, "init_module": 105, "delete_module": 106,
    "clock_settime": 112, "syslog": 116, "ptrace": 117, "reboot": 142, "sethostname": 161, "setdomainname": 162,
    "settimeofday": 170, "adjtimex": 171, "mq_open": 180, "msgget": 186, "semget": 190, "shmget": 194, "shmctl": 195,
    "shmat": 196, "add_key": 217, "request_key": 218, "keyctl": 219, "swapon": 224, "swapoff": 225, "mbind": 235,
    "set_mempolicy": 237, "migrate_pages": 238, "move_pages": 239, "perf_event_open": 241, "fanotify_init": 262,
    "name_to_handle_at": 264, "open_by_handle_at": 265, "clock_adjtime": 266, "setns": 268, "process_vm_readv": 270,
    "process_vm_writev": 271, "kcmp": 272, "finit_module": 273, "memfd_create": 279, "bpf": 280, "userfaultfd": 282,
    "kexec_file_load": 294,
}  # fmt: skip
_CLONE3 = 435

_ARCHITECTURES = {
    "x86_64": (0xC000003E, _X86_64, {"ioctl": 16, "socket": 41, "clone": 56, "prlimit64": 302}),
    "aarch64": (0xC00000B7, _AARCH64, {"ioctl": 29, "socket": 198, "clone": 220, "prlimit64": 261}),
}


def denied_calls(machine: str) -> dict[str, int]:
    """Numbers of the calls that are denied whatever their arguments."""
    return {**_EVERYWHERE, **_ARCHITECTURES[machine][1]}


def filter_program(machine: str | None = None) -> bytes | None:
    """The filter as an array of `struct sock_filter`, None where this architecture (default: this one) has no table."""
    machine = machine or platform.machine()
    if machine not in _ARCHITECTURES:
        return None
    audit_arch, _, checked = _ARCHITECTURES[machine]
    lines = [_load(_ARCHITECTURE), *_unless_equal(audit_arch, _KILL_PROCESS), _load(_NUMBER)]
    if machine == "x86_64":
        lines += _where(_AT_LEAST, _X32_BIT, _fail(errno.ENOSYS))
    lines += _where(_AT_LEAST, _LAST_KNOWN + 1, _fail(errno.ENOSYS))
    lines += _where(_EQUAL, _CLONE3, _fail(errno.ENOSYS))  # its flags lie in memory; the C library falls back to clone
    for number in denied_calls(machine).values():
        lines += _where(_EQUAL, number, _fail(errno.EPERM))
    lines += _with_argument(checked["clone"], _FIRST_ARGUMENT, _where(_ANY_BIT, _NEW_NAMESPACES, _fail(errno.EPERM)))
    lines += _with_argument(checked["socket"], _FIRST_ARGUMENT, _unless_equal(_AF_UNIX, _fail(errno.EAFNOSUPPORT)))
    lines += _with_argument(checked["prlimit64"], _FIRST_ARGUMENT, _unless_equal(0, _fail(errno.EPERM)))
    terminal = [line for request in _TERMINAL_INJECTION for line in _where(_EQUAL, request, _fail(errno.EPERM))]
    lines += _with_argument(checked["ioctl"], _SECOND_ARGUMENT, terminal)
    lines.append(_instruction(_RETURN, _ALLOW))
    return b"".join(lines)


def _instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("=HBBI", code, if_true, if_false, value)


def _load(offset: int) -> bytes:
    return _instruction(_LOAD_WORD, offset)


def _fail(number: int) -> int:
    return _ERRNO | number


def _where(test: int, value: int, action: int) -> list[bytes]:
    """If the loaded word passes `test`, end with `action`."""
    return [_instruction(test, value, 0, 1), _instruction(_RETURN, action)]


def _unless_equal(value: int, action: int) -> list[bytes]:
    return [_instruction(_EQUAL, value, 1, 0), _instruction(_RETURN, action)]


def _with_argument(number: int, argument: int, tests: list[bytes]) -> list[bytes]:
    """For call `number`: run `tests` on the low word of an argument, then allow."""
    body = [_load(argument), *tests, _instruction(_RETURN, _ALLOW)]
    return [_instruction(_EQUAL, number, 0, len(body)), *body]
