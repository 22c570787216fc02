"""What ran: versions, code and machine, so that a result can be traced and repeated."""

from __future__ import annotations

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = ("rollick", "torch", "transformers", "tensordict", "safetensors", "numpy", "datasets", "math-verify")


def describe_versions() -> dict[str, Any]:
    """Versions are read from package metadata, so that nothing is imported for it.

    {"python": "3.11.2", "rollick": "0.1.0", "torch": "2.13.0", …, "git": {"commit": "9fe1c2…", "dirty": false},
     "platform": "Linux-6.1-x86_64", "cpus": 8}
    """
    return {
        "python": platform.python_version(),
        **{package: _package_version(package) for package in PACKAGES},
        "git": git_state(Path(__file__).parent),
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
    }


def git_state(folder: Path) -> dict[str, Any] | None:
    """Commit of the checkout that `folder` belongs to; None outside of one or without git."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    return {"commit": commit, "dirty": bool(_git(folder, "status", "--porcelain", "--untracked-files=no"))}


def _package_version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *arguments: str) -> str | None:
    try:
        result = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.strip()
