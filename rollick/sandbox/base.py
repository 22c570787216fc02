"""The contract of sandboxes: where code that a model wrote is run.

    program = Program({"main.py": b"print(input()[::-1])"}, ("python3", "main.py"), stdin=b"abc\\n")
    outcome = sandbox.run(program)
    outcome.verdict, outcome.stdout       # "ok", b"cba\\n"

A sandbox that fails is not a program that fails: its outcome is `infrastructure`, with a reason, and nobody may take
it for a wrong answer.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import PurePosixPath
from typing import Literal, Protocol

RunVerdict = Literal["ok", "exit", "timeout", "memory", "output_limit", "killed", "infrastructure"]
"""ok: exit status 0 · exit: another status · timeout: wall or CPU time ran out · memory: more than allowed was
wanted · output_limit: more was printed than allowed · killed: a signal ended it · infrastructure: the sandbox failed,
nothing is known about the program."""

MIB = 1 << 20


@dataclass(frozen=True)
class Limits:
    """What one run may use. Limits hold for the whole tree of processes unless said otherwise.

    Limits(seconds=2.0, memory_bytes=256 << 20)
    """

    seconds: float = 10.0
    """Wall time from the start of the program; one process may use as much CPU time, rounded up."""
    memory_bytes: int = 512 * MIB
    """Private writable memory of one process, and resident memory of all."""
    output_bytes: int = MIB
    """Of stdout and of stderr, each."""
    processes: int = 32
    """Processes and threads at a time."""
    disk_bytes: int = 64 * MIB
    """What the writable folder holds; a single file may be as long."""
    inodes: int = 2048
    """Files and folders in the writable folder."""
    open_files: int = 64
    """Descriptors of one process."""

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not value > 0:
                raise ValueError(f"limit {name} = {value} must be positive")


@dataclass(frozen=True)
class Program:
    """Files for an empty folder, and the command that is started there.

    `files` maps relative paths to contents. `command[0]` is a path inside the sandbox or a name on its PATH.
    `environment` is added to the sandbox's own few variables; nothing is inherited from the caller.

    Raises ValueError when a path is absolute, leaves the folder, or the command is empty.
    """

    files: dict[str, bytes]
    command: tuple[str, ...]
    stdin: bytes = b""
    limits: Limits = Limits()
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.command:
            raise ValueError("a program needs a command")
        for name in self.files:
            path = PurePosixPath(name)
            if path.is_absolute() or ".." in path.parts or not path.parts or "\0" in name:
                raise ValueError(f"file name {name!r} must be a relative path inside the sandbox")


@dataclass(frozen=True)
class Outcome:
    """How a run ended. Outputs are cut at the limit; `seconds` is wall time, `peak_bytes` 0 where unknown.

    Outcome("exit", status=1, stderr=b"…ZeroDivisionError: division by zero\\n", seconds=0.02)
    """

    verdict: RunVerdict
    status: int | None = None
    """Exit status, negative for a signal as in `subprocess`; None when the program did not end by itself."""
    stdout: bytes = b""
    stderr: bytes = b""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    peak_bytes: int = 0
    reason: str = ""
    """One sentence for people; empty for ok."""


class Sandbox(Protocol):
    """Runs programs; safe to use from several threads. `description` says by what means it isolates."""

    @property
    def description(self) -> str: ...

    def run(self, program: Program) -> Outcome: ...

    def close(self) -> None: ...


def infrastructure(reason: str) -> Outcome:
    return Outcome("infrastructure", reason=reason)
