"""Reading what programs print without ever holding more than a limit, and saying in words how they ended."""

from __future__ import annotations

import os
import re
import select
from collections.abc import Iterable
from dataclasses import dataclass, field

from rollick.sandbox.base import Outcome

_OUT_OF_MEMORY = re.compile(rb"^(?:[\w.]*MemoryError\b|.*std::bad_alloc|.*heap out of memory)", re.MULTILINE)


@dataclass
class Stream:
    """What was read so far, never more than `limit` bytes; `over` when there was more."""

    fd: int
    limit: int
    data: bytearray = field(default_factory=bytearray)
    over: bool = False
    open: bool = True

    def read(self) -> None:
        chunk = os.read(self.fd, 1 << 16)
        self.open = bool(chunk)
        space = self.limit - len(self.data)
        self.over = self.over or len(chunk) > space
        self.data += chunk[:space]


def wait_for(streams: Iterable[Stream], seconds: float) -> list[Stream]:
    """The open streams that have something to read (or have ended), after at most `seconds`; [] when none is open."""
    by_fd = {stream.fd: stream for stream in streams if stream.open}
    if not by_fd:
        return []
    poll = select.poll()
    for fd in by_fd:
        poll.register(fd, select.POLLIN)
    return [by_fd[fd] for fd, _ in poll.poll(max(0.0, seconds) * 1000)]


def ran_out_of_memory(stderr: bytes) -> bool:
    """Whether a program's last words are those of Python, C++ or V8 when memory is refused to them."""
    return _OUT_OF_MEMORY.search(stderr[-4000:]) is not None


def describe(outcome: Outcome, seconds: float) -> str:
    """One sentence about how a program ended, with its last words where there are any."""
    words = outcome.stderr[-500:].decode(errors="replace").strip().splitlines()
    tail = f": {words[-1]}" if words else ""
    return {
        "ok": "",
        "exit": f"exit status {outcome.status}{tail}",
        "killed": f"ended by signal {-(outcome.status or 0)}{tail}",
        "timeout": f"stopped after {seconds:g} s",
        "memory": "wanted more memory than allowed",
        "output_limit": "printed more than allowed",
        "infrastructure": outcome.reason,
    }[outcome.verdict]
