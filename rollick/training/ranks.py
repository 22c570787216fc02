"""The process group of a trainer, and what its ranks tell one another besides gradients."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, TypeVar

import torch.distributed as dist

from rollick.errors import WorkerError
from rollick.platforms.base import Platform

T = TypeVar("T")


class Ranks:
    """`size` processes that call the same methods in the same order; one process alone needs no process group.

    `rendezvous` is torch's init_method ("tcp://host:port", "file:///path"). A process group that is already there
    is used as it is. `timeout` in seconds bounds every collective.
    """

    def __init__(self, rank: int, size: int, platform: Platform, rendezvous: str | None, timeout: float):
        self.rank, self.size = rank, size
        self._platform, self._timeout = platform, timedelta(seconds=timeout)
        self._owns_group = False
        if size > 1:
            self._join(rendezvous)

    def require_group(self) -> None:
        """Sharding needs a process group even for one process."""
        if not dist.is_initialized():
            self._start(store=dist.HashStore())

    def gather(self, value: T) -> list[T]:
        """Every rank's value, by rank."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value)
        return values

    def close(self) -> None:
        if self._owns_group and dist.is_initialized():
            dist.destroy_process_group()
        self._owns_group = False

    def _join(self, rendezvous: str | None) -> None:
        if not dist.is_initialized():
            if rendezvous is None:
                raise WorkerError(f"trainer rank {self.rank} of {self.size}: no rendezvous address to meet the others")
            self._start(init_method=rendezvous)
        if (dist.get_rank(), dist.get_world_size()) != (self.rank, self.size):
            raise WorkerError(
                f"trainer rank {self.rank} of {self.size}: this process already belongs to a process group as rank "
                f"{dist.get_rank()} of {dist.get_world_size()}"
            )

    def _start(self, **where: Any) -> None:
        backend = self._platform.collective_backend
        if self._platform.device_type != "cpu":
            backend = f"cpu:gloo,{self._platform.device_type}:{backend}"
        dist.init_process_group(backend, rank=self.rank, world_size=self.size, timeout=self._timeout, **where)
        self._owns_group = True
