"""Accelerators that torch calls "cuda" (NVIDIA, and AMD under ROCm)."""

from __future__ import annotations

import torch


class CudaPlatform:
    device_type = "cuda"
    collective_backend = "nccl"

    def available(self) -> bool:
        return torch.cuda.is_available()

    def device(self, index: int = 0) -> torch.device:
        return torch.device("cuda", index)

    def seed(self, seed: int) -> None:
        torch.manual_seed(seed)
        torch.cuda.manual_seed_all(seed)

    def random_state(self) -> dict[str, torch.Tensor]:
        return {"cpu": torch.get_rng_state(), "cuda": torch.cuda.get_rng_state()}

    def restore_random_state(self, state: dict[str, torch.Tensor]) -> None:
        torch.set_rng_state(state["cpu"])
        torch.cuda.set_rng_state(state["cuda"])

    def synchronize(self) -> None:
        torch.cuda.synchronize()

    def release_memory(self) -> None:
        torch.cuda.empty_cache()

    def peak_memory_bytes(self) -> int:
        return torch.cuda.max_memory_allocated()

    def reset_peak_memory(self) -> None:
        torch.cuda.reset_peak_memory_stats()
