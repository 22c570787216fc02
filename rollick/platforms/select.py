"""Which platform this process runs on."""

from __future__ import annotations

import torch

from rollick.errors import ConfigError
from rollick.platforms.base import Platform
from rollick.platforms.cpu import CpuPlatform
from rollick.platforms.cuda import CudaPlatform

PLATFORMS: dict[str, type[Platform]] = {"cuda": CudaPlatform, "cpu": CpuPlatform}
"""By device type, best first."""


def select_platform(device: str | torch.device | None = None) -> Platform:
    """The platform of a device ("cpu", "cuda", "cuda:1"); left out, the best one that is there.

    Raises ConfigError for an unknown kind of device and for one that this machine does not have.
    """
    if device is None:
        return next(platform for kind in PLATFORMS.values() if (platform := kind()).available())
    kind = str(device).split(":", 1)[0]
    if kind not in PLATFORMS:
        raise ConfigError(f"device '{device}': unknown kind '{kind}' (known: {', '.join(sorted(PLATFORMS))})")
    platform = PLATFORMS[kind]()
    if not platform.available():
        raise ConfigError(f"device '{device}': torch {torch.__version__} finds no {kind} device on this machine")
    return platform
