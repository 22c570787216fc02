"""Weights from trainer to engine, and the proof that they arrived."""

from __future__ import annotations

import time
from collections.abc import Iterator

import torch

from rollick.engines.base import Bucket, Engine
from rollick.errors import WorkerError
from rollick.models.hashing import tensor_hash
from rollick.training.trainer import Trainer


def publish_weights(trainer: Trainer, engine: Engine, version: int, dtype: torch.dtype) -> dict[str, float]:
    """Stream the trainer's weights into the engine and check its receipt.

    Tensors are cast to `dtype` (the engine's) on the way and hashed there; the engine hashes what stands in its
    model afterwards. Raises WorkerError naming the parameters that are missing or differ, or a wrong version.
    Returns `publish/seconds`, `publish/bytes` and `publish/tensors`.
    """
    started = time.monotonic()
    sent: dict[str, str] = {}
    size = 0

    def stream() -> Iterator[Bucket]:
        nonlocal size
        for bucket in trainer.weights():
            cast = {name: tensor.detach().to(dtype) for name, tensor in bucket.items()}
            sent.update({name: tensor_hash(tensor) for name, tensor in cast.items()})
            size += sum(tensor.nbytes for tensor in cast.values())
            yield cast

    receipt = engine.update_weights(version, stream())
    _verify(receipt.version, receipt.hashes, version, sent)
    return {
        "publish/seconds": time.monotonic() - started,
        "publish/bytes": float(size),
        "publish/tensors": float(len(sent)),
    }


def _verify(served: int, loaded: dict[str, str], version: int, sent: dict[str, str]) -> None:
    if served != version:
        raise WorkerError(f"weight publish: stale: the engine serves version {served} after version {version} was sent")
    missing = sorted(set(sent) - set(loaded))
    if missing:
        raise WorkerError(
            f"weight publish of version {version}: partial: the engine did not load {len(missing)} of {len(sent)} "
            f"parameters, among them {', '.join(missing[:5])}"
        )
    differing = sorted(name for name in sent if loaded[name] != sent[name])
    if differing:
        raise WorkerError(
            f"weight publish of version {version}: {len(differing)} of {len(sent)} parameters in the engine differ "
            f"from what the trainer sent, among them {', '.join(differing[:5])}"
        )
