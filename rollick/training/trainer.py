"""The controller's handle on one model that is trained (or only scored) by a group of workers."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import torch

from rollick.config.job import ModelSettings, TrainerSettings
from rollick.data.batch import Batch
from rollick.engines.base import Bucket
from rollick.runtime.base import Runtime
from rollick.training.base import Loss, UpdateResult

BUCKET_BYTES = 256 * 2**20


class Trainer:
    """Splits batches over data-parallel ranks, runs the backend there, and puts results back in row order.

    trainer = Trainer(runtime, job.model, job.trainer, planned_updates=100, seed=0)
    old = trainer.logprobs(batch, temperature=1.0)[0]      # float32[N], aligned with batch.tokens
    result = trainer.update(batch, loss)                   # one optimiser step
    """

    def __init__(
        self,
        runtime: Runtime,
        model: ModelSettings,
        settings: TrainerSettings,
        planned_updates: int,
        seed: int = 0,
        role: str = "trainer",
        trainable: bool = True,
        size: int = 1,
    ):
        from rollick.training.fsdp import FsdpBackend

        torch.manual_seed(seed)
        self._group = runtime.start(
            role,
            FsdpBackend,
            size,
            model=model,
            trainer=settings,
            planned_updates=planned_updates,
            trainable=trainable,
        )

    def update(self, batch: Batch, loss: Loss) -> UpdateResult:
        """One optimiser update over all rows of `batch`; raises NumericsError naming rows."""
        shards = [_shard(batch, rows) for rows in split_rows(batch, self._group.size)]
        return self._group.scatter("update", shards, loss)[0]

    def logprobs(
        self, batch: Batch, temperature: float, entropy: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probs and (asked for) entropies, float32[N] each, 0 where loss_mask is False."""
        assignment = split_rows(batch, self._group.size)
        shards = [_shard(batch, rows) for rows in assignment]
        parts = self._group.scatter("logprobs", shards, temperature, entropy)
        scored = _gather(batch, assignment, [part[0] for part in parts])
        return scored, _gather(batch, assignment, [part[1] for part in parts]) if entropy else None

    def weights(self, bucket_bytes: int = BUCKET_BYTES) -> Iterator[Bucket]:
        """Full tensors under Hugging Face names, streamed in buckets of at most `bucket_bytes`."""
        return self._group.call("weights", bucket_bytes)[0]

    def save(self, directory: Path) -> None:
        self._group.call("save", directory)

    def load(self, directory: Path) -> None:
        self._group.call("load", directory)

    def export(self, directory: Path) -> None:
        """Write a Hugging Face folder (weights and config; the caller adds the tokenizer)."""
        self._group.call("export", directory)

    def close(self) -> None:
        self._group.close()


def split_rows(batch: Batch, ranks: int) -> list[list[int]]:
    """Row indices per rank: the longest rows first, each to the rank with the fewest tokens so far, so that
    no rank stays empty while another has two rows. Order within a rank is the batch's.

    Lengths 5, 3, 3 over two ranks give [[0], [1, 2]].
    """
    lengths = batch.lengths.tolist()
    assignment: list[list[int]] = [[] for _ in range(ranks)]
    loads = [0] * ranks
    for row in sorted(range(len(lengths)), key=lambda i: -lengths[i]):
        rank = min(range(ranks), key=lambda r: (loads[r], len(assignment[r]), r))
        assignment[rank].append(row)
        loads[rank] += lengths[row]
    return [sorted(rows) for rows in assignment]


def _shard(batch: Batch, rows: list[int]) -> Batch | None:
    if len(rows) == batch.num_rows:
        return batch
    return batch.select(rows) if rows else None


def _gather(batch: Batch, assignment: list[list[int]], parts: list[torch.Tensor]) -> torch.Tensor:
    """Put each rank's values back at the positions its rows have in the whole batch."""
    if len(assignment) == 1:
        return parts[0]
    whole = torch.zeros(batch.num_tokens, dtype=next(p.dtype for p in parts if p is not None))
    for rows, part in zip(assignment, parts):
        start = 0
        for row in rows:
            begin, end = int(batch.offsets[row]), int(batch.offsets[row + 1])
            whole[begin:end] = part[start : start + end - begin]
            start += end - begin
    return whole
