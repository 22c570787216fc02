"""The Runtime contract: start groups of workers, call their methods, move bulk data by reference.

A worker is an ordinary object; `rollick.runtime.local` keeps it in this process, other runtimes put each rank
into its own. Pipelines are written against this page and never know which.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

T = TypeVar("T", covariant=True)


class Future(Protocol[T]):
    """The result of an asynchronous call; `result` re-raises what the worker raised, as WorkerError when the
    worker died or did not answer in `timeout` seconds."""

    def result(self, timeout: float | None = None) -> T: ...

    def done(self) -> bool: ...


class WorkerGroup(Protocol):
    """`size` ranks of one role. Keyword `timeout` (seconds) bounds every call."""

    role: str
    size: int

    def call(self, method: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> list[Any]:
        """Same arguments to every rank; results by rank."""

    def call_rank(self, rank: int, method: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        """One rank only."""

    def scatter(
        self, method: str, shards: Sequence[Any], *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> list[Any]:
        """`shards[rank]` as the first argument of each rank; results by rank. Needs exactly `size` shards."""

    def call_async(self, method: str, *args: Any, **kwargs: Any) -> list[Future[Any]]:
        """Like `call`, without waiting."""

    def close(self) -> None: ...


class Runtime(Protocol):
    def start(self, role: str, factory: Callable[..., Any], size: int = 1, **kwargs: Any) -> WorkerGroup:
        """Create `size` workers by `factory(rank=…, world_size=size, **kwargs)`; raises WorkerError when one fails."""

    def put(self, value: Any) -> Any:
        """A reference that any worker call accepts in place of the value."""

    def get(self, reference: Any) -> Any: ...

    def close(self) -> None:
        """End all workers; safe to call twice."""
