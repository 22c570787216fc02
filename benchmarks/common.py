"""What every benchmark shares: the machine, the versions, and the one JSON line at the end."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).parent / "results"
PACKAGES = ("torch", "transformers", "trl", "tensordict", "numpy")


def machine() -> dict[str, Any]:
    """Processor, cores, memory and the versions of the packages that matter for speed."""
    import torch

    versions = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "accelerator": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "python": platform.python_version(),
        "versions": versions,
    }


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.processor() or platform.machine()


def report(name: str, result: dict[str, Any], save: bool = True) -> None:
    """Write `benchmarks/results/<name>.json` with machine and versions, and print the result as the last line."""
    if save:
        RESULTS.mkdir(exist_ok=True)
        document = {"benchmark": name, "result": result, "machine": machine()}
        (RESULTS / f"{name}.json").write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    print(json.dumps({"benchmark": name, **result}), flush=True)


def alternate(sides: dict[str, Callable[[], float]], rounds: int) -> dict[str, list[float]]:
    """Measure all sides in turn, `rounds` times, so that a slow minute of the machine hits each of them.

    Each callable returns its own figure (tokens/s, samples/s …); the order turns round every time.
    """
    figures: dict[str, list[float]] = {name: [] for name in sides}
    for turn in range(rounds):
        names = list(sides) if turn % 2 == 0 else list(sides)[::-1]
        for name in names:
            started = time.perf_counter()
            figures[name].append(sides[name]())
            print(
                f"round {turn + 1} {name}: {figures[name][-1]:.2f} ({time.perf_counter() - started:.1f} s)", flush=True
            )
    return figures


def median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
