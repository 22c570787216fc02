"""What the sandbox tests share."""

import functools
import os
from pathlib import Path

import pytest

from rollick.errors import ConfigError
from rollick.sandbox.base import Limits, Outcome, Program, Sandbox
from rollick.sandbox.local import LocalSandbox
from rollick.sandbox.settings import SandboxSettings, build_isolated

QUICK = Limits(seconds=5.0, memory_bytes=256 << 20)


@functools.cache
def why_not() -> str | None:
    """Why this machine cannot isolate programs, None when it can."""
    try:
        build_isolated(SandboxSettings()).close()
    except ConfigError as error:
        return str(error)
    return None


def local_sandbox() -> LocalSandbox:
    """Skips the test where the kernel allows no namespaces."""
    if why_not():
        pytest.skip(why_not())
    return LocalSandbox()


def python(source: str, stdin: bytes = b"", limits: Limits = QUICK, **files: bytes) -> Program:
    return Program({"main.py": source.encode(), **files}, ("python3", "-S", "-B", "main.py"), stdin, limits)


def run(sandbox: Sandbox, source: str, stdin: bytes = b"", **limits: float) -> Outcome:
    return sandbox.run(python(source, stdin, Limits(**{"seconds": 5.0, "memory_bytes": 256 << 20, **limits})))


def descendants(pid: int) -> list[int]:
    """Living processes and zombies below a process."""
    found = []
    for task in Path(f"/proc/{pid}/task").iterdir():
        for child in map(int, (task / "children").read_text().split()):
            found += [child, *descendants(child)]
    return found


def own_kibibytes() -> int:
    """Resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") // 1024
