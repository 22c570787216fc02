"""What every Runtime must do. A runtime's test file calls `check_all(runtime)`."""

from __future__ import annotations

import pytest

from rollick.errors import RollickError, WorkerError
from rollick.runtime.base import Runtime


class Counter:
    """A worker that remembers and can fail."""

    def __init__(self, rank: int, world_size: int, start: int = 0):
        if start < 0:
            raise ValueError(f"start must not be negative, got {start}")
        self.rank, self.world_size, self.total = rank, world_size, start

    def add(self, amount: int, times: int = 1) -> int:
        self.total += amount * times
        return self.total

    def describe(self) -> tuple[int, int]:
        return self.rank, self.world_size

    def fail(self) -> None:
        raise RollickError("this worker refuses")


def check_ranks_and_broadcast(runtime: Runtime) -> None:
    group = runtime.start("counter", Counter, size=3, start=10)
    assert (group.role, group.size) == ("counter", 3)
    assert group.call("describe") == [(0, 3), (1, 3), (2, 3)]
    assert group.call("add", 2, times=3, timeout=60) == [16, 16, 16]


def check_scatter_and_one_rank(runtime: Runtime) -> None:
    group = runtime.start("counter", Counter, size=2)
    assert group.scatter("add", [1, 5], timeout=60) == [1, 5]
    assert group.call_rank(1, "add", 1, timeout=60) == 6
    assert group.call("add", 0) == [1, 6]


def check_futures(runtime: Runtime) -> None:
    group = runtime.start("counter", Counter, size=2)
    futures = group.call_async("add", 4)
    assert [future.result(timeout=60) for future in futures] == [4, 4]
    assert all(future.done() for future in futures)
    failing = group.call_async("fail")
    with pytest.raises(RollickError, match="this worker refuses"):
        failing[0].result(timeout=60)


def check_references(runtime: Runtime) -> None:
    group = runtime.start("counter", Counter)
    reference = runtime.put(41)
    assert runtime.get(reference) == 41
    assert group.call("add", reference) == [41]


def check_misuse_is_named(runtime: Runtime) -> None:
    group = runtime.start("counter", Counter, size=2)
    with pytest.raises(WorkerError, match="2 ranks but got 3 shards"):
        group.scatter("add", [1, 2, 3])
    with pytest.raises(WorkerError, match="ranks 0 to 1, not 2"):
        group.call_rank(2, "add", 1)
    with pytest.raises(WorkerError, match="no method 'subtract'"):
        group.call("subtract")
    with pytest.raises(RollickError, match="this worker refuses"):
        group.call("fail")
    assert group.call("add", 1) == [1, 1], "a worker that raised is still there"


CHECKS = [
    check_ranks_and_broadcast,
    check_scatter_and_one_rank,
    check_futures,
    check_references,
    check_misuse_is_named,
]
