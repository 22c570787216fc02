"""The host processor."""

from __future__ import annotations

import ctypes
import resource
import sys
from pathlib import Path

import torch


class CpuPlatform:
    device_type = "cpu"
    collective_backend = "gloo"

    def available(self) -> bool:
        return True

    def device(self, index: int = 0) -> torch.device:
        return torch.device("cpu")

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)

    def random_state(self) -> dict[str, torch.Tensor]:
        return {"cpu": torch.get_rng_state()}

    def restore_random_state(self, state: dict[str, torch.Tensor]) -> None:
        torch.set_rng_state(state["cpu"])

    def synchronize(self) -> None:
        """The host runs in order."""

    def release_memory(self) -> None:
        """glibc keeps freed blocks until it is asked; other C libraries need no asking."""
        if sys.platform == "linux":
            trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
            if trim is not None:
                trim(0)

    def peak_memory_bytes(self) -> int:
        """Resident memory of this process at its highest."""
        for line in _status():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        unit = 1 if sys.platform == "darwin" else 1024
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit

    def reset_peak_memory(self) -> None:
        """Linux only; elsewhere the peak counts from the start of the process."""
        marks = Path("/proc/self/clear_refs")
        if marks.exists():
            marks.write_text("5", encoding="ascii")


def _status() -> list[str]:
    status = Path("/proc/self/status")
    return status.read_text(encoding="ascii", errors="replace").splitlines() if status.exists() else []
