import sys
from collections.abc import Iterator
from typing import ClassVar

import pytest

from rollick.runtime.local import LocalRuntime
from tests.runtime import contract


@pytest.fixture
def runtime() -> Iterator[LocalRuntime]:
    with LocalRuntime() as runtime:
        yield runtime


@pytest.mark.parametrize("check", contract.CHECKS, ids=lambda check: check.__name__)
def test_local_runtime_meets_the_contract(check, runtime: LocalRuntime) -> None:
    check(runtime)


class Closing:
    log: ClassVar[list[str]] = []

    def __init__(self, rank: int, world_size: int, fails_at: int = -1):
        if rank == fails_at:
            raise ValueError(f"rank {rank} cannot start")
        self.rank = rank

    def close(self) -> None:
        Closing.log.append(f"closed {self.rank}")


def test_closing_ends_workers_last_first_and_twice_is_once(runtime: LocalRuntime) -> None:
    Closing.log.clear()
    runtime.start("closing", Closing, size=2)
    runtime.close()
    runtime.close()
    assert Closing.log == ["closed 1", "closed 0"]


def test_workers_before_a_failing_one_are_closed(runtime: LocalRuntime) -> None:
    Closing.log.clear()
    with pytest.raises(ValueError, match="rank 2 cannot start"):
        runtime.start("closing", Closing, size=3, fails_at=2)
    assert Closing.log == ["closed 1", "closed 0"]


def test_an_error_keeps_the_workers_own_traceback(runtime: LocalRuntime) -> None:
    group = runtime.start("counter", contract.Counter)
    with pytest.raises(Exception) as caught:
        group.call("fail")
    names = [entry.name for entry in caught.traceback]
    assert "fail" in names, "a debugger must land in the worker's code"


def test_no_ray_is_imported(runtime: LocalRuntime) -> None:
    runtime.start("counter", contract.Counter)
    assert "ray" not in sys.modules
