"""Measuring two frameworks against each other: each round of each side in a process of its own."""

from __future__ import annotations

import importlib
import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.common import alternate, median

PREFIX = "MEASURED "
ROOT = Path(__file__).parent.parent


def peak_memory_gb() -> float:
    """Highest resident memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


def hand_back(measured: dict[str, Any]) -> None:
    """Called by a side at its end: what it measured, to the process that started it."""
    print(PREFIX + json.dumps({**measured, "peak_memory_gb": round(peak_memory_gb(), 3)}), flush=True)


def compare(
    module: str, arguments: list[str], figure: str, rounds: int, threads: int, timeout: float
) -> dict[str, dict[str, Any]]:
    """Run `python -m <module> --side ours|trl <arguments>` in turn; medians over the rounds of each side."""
    measured: dict[str, list[dict[str, Any]]] = {"ours": [], "trl": []}

    def side(name: str) -> Callable[[], float]:
        def run() -> float:
            measured[name].append(_run_side(module, ["--side", name, *arguments], threads, timeout))
            return float(measured[name][-1][figure])

        return run

    alternate({name: side(name) for name in measured}, rounds)
    return {
        name: {key: round(median([run[key] for run in runs]), 3) for key in runs[0]} for name, runs in measured.items()
    }


def _run_side(module: str, arguments: list[str], threads: int, timeout: float) -> dict[str, Any]:
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": str(threads),
        "HF_HUB_OFFLINE": "1",
        "TOKENIZERS_PARALLELISM": "false",
        "CUDA_VISIBLE_DEVICES": "",
    }
    done = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        check=False,
        text=True,
        timeout=timeout,
    )
    lines = [line for line in done.stdout.splitlines() if line.startswith(PREFIX)]
    if done.returncode or not lines:
        raise RuntimeError(f"{module} {' '.join(arguments)} failed ({done.returncode}):\n{done.stdout}{done.stderr}")
    return json.loads(lines[-1].removeprefix(PREFIX))


def train_ours(job: dict[str, Any], folder: Path) -> Path:
    """Run a job as `rollick run` does, in this process; returns its run directory. JSON is YAML too."""
    from rollick.config.load import load_job

    place = Path(tempfile.mkdtemp(dir=folder))
    (place / "job.yaml").write_text(json.dumps({**job, "output_dir": str(place)}), encoding="utf-8")
    settings, _ = load_job(place / "job.yaml", [])
    run: Path = importlib.import_module(f"rollick.pipelines.{settings.pipeline}").run(settings)
    return run
