"""What differs between kinds of devices. Outside this folder no file names a vendor."""

from __future__ import annotations

from typing import Protocol

import torch


class Platform(Protocol):
    """One kind of device. `device_type` is torch's name of it, `collective_backend` that of its process groups."""

    device_type: str
    collective_backend: str

    def available(self) -> bool: ...

    def device(self, index: int = 0) -> torch.device:
        """The device a rank works on; `index` is its local rank."""

    def seed(self, seed: int) -> None:
        """Seed torch's generators of host and device."""

    def random_state(self) -> dict[str, torch.Tensor]:
        """The state of those generators, for a checkpoint."""

    def restore_random_state(self, state: dict[str, torch.Tensor]) -> None: ...

    def synchronize(self) -> None:
        """Wait for the device, before reading a clock."""

    def release_memory(self) -> None:
        """Give cached, unused memory back to the system."""

    def peak_memory_bytes(self) -> int:
        """Largest memory in use since the start or the last `reset_peak_memory`."""

    def reset_peak_memory(self) -> None: ...
