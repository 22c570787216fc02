"""The runtime of one process: workers are plain objects, calls are plain calls, a debugger sees everything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rollick.errors import WorkerError
from rollick.runtime.base import Future


class ReadyFuture:
    """A call that already happened."""

    def __init__(self, value: Any = None, error: Exception | None = None):
        self._value = value
        self._error = error

    def result(self, timeout: float | None = None) -> Any:
        if self._error is not None:
            raise self._error
        return self._value

    def done(self) -> bool:
        return True


class LocalWorkerGroup:
    """Ranks of one role in this process, called one after the other.

    A `timeout` cannot interrupt a call in the caller's own thread and is ignored here. What a worker raises
    reaches the caller unchanged, with the worker's own traceback.
    """

    def __init__(self, role: str, workers: Sequence[Any]):
        self.role = role
        self.size = len(workers)
        self._workers = list(workers)

    def call(self, method: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> list[Any]:
        return [self._invoke(rank, method, args, kwargs) for rank in range(self.size)]

    def call_rank(self, rank: int, method: str, *args: Any, timeout: float | None = None, **kwargs: Any) -> Any:
        if not 0 <= rank < self.size:
            raise WorkerError(f"role '{self.role}' has ranks 0 to {self.size - 1}, not {rank}")
        return self._invoke(rank, method, args, kwargs)

    def scatter(
        self, method: str, shards: Sequence[Any], *args: Any, timeout: float | None = None, **kwargs: Any
    ) -> list[Any]:
        if len(shards) != self.size:
            raise WorkerError(f"role '{self.role}' has {self.size} ranks but got {len(shards)} shards for {method}")
        return [self._invoke(rank, method, (shard, *args), kwargs) for rank, shard in enumerate(shards)]

    def call_async(self, method: str, *args: Any, **kwargs: Any) -> list[Future[Any]]:
        return [self._attempt(rank, method, args, kwargs) for rank in range(self.size)]

    def close(self) -> None:
        """End the workers, last rank first; those with a `close` method get it called."""
        while self._workers:
            close = getattr(self._workers.pop(), "close", None)
            if close is not None:
                close()
        self.size = 0

    def _invoke(self, rank: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        function = getattr(self._workers[rank], method, None)
        if function is None:
            worker = type(self._workers[rank]).__name__
            raise WorkerError(f"role '{self.role}' rank {rank}: {worker} has no method '{method}'")
        return function(*args, **kwargs)

    def _attempt(self, rank: int, method: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReadyFuture:
        try:
            return ReadyFuture(self._invoke(rank, method, args, kwargs))
        except Exception as error:  # noqa: BLE001 - it is raised again by result(), as for any remote call
            return ReadyFuture(error=error)


class LocalRuntime:
    """Keeps every worker in this process."""

    def __init__(self) -> None:
        self._groups: list[LocalWorkerGroup] = []

    def start(self, role: str, factory: Callable[..., Any], size: int = 1, **kwargs: Any) -> LocalWorkerGroup:
        """Workers are created in rank order. When one cannot be, those before it are closed and the error goes on."""
        workers: list[Any] = []
        try:
            for rank in range(size):
                workers.append(factory(rank=rank, world_size=size, **kwargs))
        except BaseException:
            LocalWorkerGroup(role, workers).close()
            raise
        group = LocalWorkerGroup(role, workers)
        self._groups.append(group)
        return group

    def put(self, value: Any) -> Any:
        return value

    def get(self, reference: Any) -> Any:
        return reference

    def close(self) -> None:
        while self._groups:
            self._groups.pop().close()

    def __enter__(self) -> LocalRuntime:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
