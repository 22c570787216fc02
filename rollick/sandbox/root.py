"""The small read-only root that programs see instead of the machine's."""

from __future__ import annotations

import os

from rollick.sandbox import kernel

WORK = "/tmp"
"""The one place a program can write: its own tmpfs, working directory and home."""
PACKAGES = "/opt/packages"
"""Where the Python packages of the caller's environment are shown."""
SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/lib32", "/libx32", "/etc/ld.so.cache", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
LINKS = {
    "/dev/fd": "/proc/self/fd",
    "/dev/stdin": "/proc/self/fd/0",
    "/dev/stdout": "/proc/self/fd/1",
    "/dev/stderr": "/proc/self/fd/2",
    "/dev/shm": WORK,
}
_PASSWD = "root:x:0:0::/nonexistent:/bin/false\nnobody:x:65534:65534::/nonexistent:/bin/false\n"


def enter_minimal_root(visible: dict[str, str], keep_proc: bool) -> None:
    """Move this process into a new root: system folders and `visible` (shown path → real path), all read-only.

    `keep_proc` leaves the machine's /proc there, for kernels that allow a new one only beside an old one. Raises
    OSError. Needs a mount namespace of its own.
    """
    shown = {path: path for path in SYSTEM + DEVICES if os.path.exists(path)} | visible
    links = {path: os.readlink(path) for path in shown if os.path.islink(path) and path in SYSTEM}
    # Held open, because the new root is built on a folder that may hide them.
    sources = {path: os.open(real, os.O_PATH) for path, real in shown.items() if path not in links}
    kernel.mount("", "/", flags=kernel.RECURSIVE | kernel.PRIVATE)
    base = "/tmp"
    kernel.mount("sandbox", base, "tmpfs", kernel.NO_SETUID, "size=1m,mode=0755")
    for folder in ("proc", "dev", "etc", WORK.lstrip("/")):
        os.makedirs(os.path.join(base, folder), exist_ok=True)
    for path, source in sources.items():
        _show(f"/proc/self/fd/{source}", base + path, is_device=path in DEVICES)
        os.close(source)
    for path, target in {**LINKS, **links}.items():
        os.symlink(target, base + path)
    with open(base + "/etc/passwd", "w") as file:
        file.write(_PASSWD)
    if keep_proc:
        kernel.mount("/proc", base + "/proc", flags=kernel.BIND | kernel.RECURSIVE)
    kernel.pivot_root(base, "old")
    kernel.remount_root_read_only()


def _show(source: str, target: str, is_device: bool) -> None:
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        os.makedirs(os.path.dirname(target), exist_ok=True)
        with open(target, "x"):
            pass
    if is_device:
        kernel.mount(source, target, flags=kernel.BIND)
    else:
        kernel.bind_read_only(source, target)
