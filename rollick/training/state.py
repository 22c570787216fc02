"""A trainer's state on disk: weights and optimiser through torch's distributed checkpoint, one small file per rank."""

from __future__ import annotations

import json
import pickle
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed.checkpoint as dcp
from torch import Tensor
from torch.distributed.checkpoint.api import CheckpointException

from rollick.errors import DataError
from rollick.platforms.base import Platform


def write_state(directory: Path, tensors: dict[str, Tensor], rank: int, size: int, local: dict[str, Any]) -> None:
    """`tensors` go into sharded files that any number of ranks can read; `local` (JSON values and tensors) is
    this rank's own."""
    directory.mkdir(parents=True, exist_ok=True)
    with _without_notes():
        dcp.save({name: t.detach() for name, t in tensors.items()}, checkpoint_id=directory, no_dist=size == 1)
    torch.save(local, _local_file(directory, rank, size))


def read_state(directory: Path, tensors: dict[str, Tensor], rank: int, size: int) -> dict[str, Any]:
    """Read into `tensors` in place; returns this rank's own values.

    Another number of ranks than the one that saved takes rank 0's. Raises DataError when the checkpoint is not
    there, is damaged, or holds other names or shapes.
    """
    if not (directory / ".metadata").is_file():
        raise DataError(f"checkpoint '{directory}': there is no trainer state")
    try:
        with _without_notes():
            dcp.load({name: t.detach() for name, t in tensors.items()}, checkpoint_id=directory, no_dist=size == 1)
        own = _local_file(directory, rank, size)
        path = own if own.is_file() else sorted(directory.glob("rank_0_of_*.pt"))[0]
        return torch.load(path, weights_only=True)
    except (CheckpointException, RuntimeError, OSError, IndexError, ValueError, pickle.UnpicklingError) as error:
        raise DataError(f"checkpoint '{directory}' cannot be loaded into this model: {_reason(error)}") from error


def random_states(platform: Platform) -> dict[str, Any]:
    """Every generator of this process that a run may draw from."""
    kind, keys, *rest = np.random.get_state()
    return {
        "torch": platform.random_state(),
        "numpy": [str(kind), torch.from_numpy(np.asarray(keys, np.int64)), *rest],
        "python": json.dumps(random.getstate()),
    }


def restore_random_states(platform: Platform, states: dict[str, Any]) -> None:
    platform.restore_random_state(states["torch"])
    kind, keys, *rest = states["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), *rest))
    version, internal, gauss = json.loads(states["python"])
    random.setstate((version, tuple(internal), gauss))


@contextmanager
def _without_notes() -> Iterator[None]:
    """torch warns that one process saves as one process, and that files of an earlier try are replaced."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        warnings.filterwarnings("ignore", message="Detected an existing checkpoint")
        yield


def _local_file(directory: Path, rank: int, size: int) -> Path:
    return directory / f"rank_{rank}_of_{size}.pt"


def _reason(error: BaseException) -> str:
    lines = [line.strip() for line in str(error).strip().split("\n") if line.strip()]
    return lines[-1] if lines else type(error).__name__
