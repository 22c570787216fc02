"""Real processes that meet over gloo."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.multiprocessing as mp


def run_ranks(size: int, folder: Path, function: Callable[..., Any], *args: Any, timeout: float = 150.0) -> list[Any]:
    """`function(rank, size, rendezvous, *args)` in `size` fresh processes; what it returns, by rank.

    Raises whatever a rank raised, and TimeoutError when they are not done in `timeout` seconds.
    """
    folder.mkdir(parents=True, exist_ok=True)
    context = mp.spawn(_enter, (size, folder, function, args), nprocs=size, join=False)
    deadline = time.monotonic() + timeout
    while not context.join(timeout=1.0):  # comes back whenever one of them ends
        if time.monotonic() > deadline:
            for process in context.processes:
                process.kill()
            raise TimeoutError(f"{size} ranks were not done in {timeout} seconds")
    return [torch.load(folder / f"result_{rank}.pt", weights_only=False) for rank in range(size)]


def _enter(rank: int, size: int, folder: Path, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
    os.environ["HF_HUB_OFFLINE"] = "1"
    torch.set_num_threads(1)
    result = function(rank, size, f"file://{folder / 'meet'}", *args)
    torch.save(result, folder / f"result_{rank}.pt")
