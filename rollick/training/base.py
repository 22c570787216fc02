"""The TrainBackend contract and the loss contract that it runs.

A loss is a sum and explicit global denominators: the backend adds up what the loss returns over micro-batches
and ranks and divides by nothing, so the way a batch is cut never changes the gradient.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import torch

from rollick.data.batch import Batch
from rollick.engines.base import Bucket


@dataclass(frozen=True)
class Totals:
    """Global denominators of one optimiser update, over all micro-batches and ranks.

    `tokens` = live (loss-masked) tokens, `sequences` = rows with at least one live token.
    """

    tokens: int
    sequences: int


@dataclass
class TokenOutputs:
    """What the model says about the live tokens of a micro-batch, in row order.

    All tensors have shape [M] where M counts the tokens with loss_mask True. `logprobs` (with gradient) are at
    the given temperature; `entropy` is there when the loss asked for it.
    """

    logprobs: torch.Tensor
    entropy: torch.Tensor | None = None


@dataclass
class LossOutput:
    """`loss`: this micro-batch's share of the global loss (already divided by the global denominators; shares
    add up). `metrics`: name → (sum, weight), both scalar tensors; the logged value is Σsum / Σweight."""

    loss: torch.Tensor
    metrics: dict[str, tuple[torch.Tensor, torch.Tensor]] = field(default_factory=dict)


class Loss(Protocol):
    """A picklable callable. `live` is the micro-batch restricted to live tokens: `live.tokens` has batch size
    [M] and `live.row_index()` gives each live token's row."""

    @property
    def needs_entropy(self) -> bool: ...

    @property
    def temperature(self) -> float: ...

    def __call__(self, outputs: TokenOutputs, live: Batch, totals: Totals) -> LossOutput: ...


@dataclass(frozen=True)
class UpdateResult:
    """One optimiser update: mean metrics by name (`loss`, `grad_norm`, `learning_rate` and the loss's own)."""

    metrics: dict[str, float]


class TrainBackend(Protocol):
    """One rank's share of a trainable model. Every method is collective: all ranks call it together.

    `tests/training/contract.py` runs against each implementation and world size.
    """

    def logprobs(
        self, batch: Batch, temperature: float, entropy: bool = False
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Log-probs (and entropies) float32[N] of this rank's rows, aligned with tokens, 0 at positions whose
        loss_mask is False; no gradient. A rank may get an empty batch (None)."""

    def update(self, batch: Batch, loss: Loss) -> UpdateResult:
        """Forward and backward over micro-batches of at most tokens_per_micro_batch tokens, one clipped
        optimiser step, schedule advanced. NaN or infinity in loss or gradient raises NumericsError naming rows,
        and leaves weights and optimiser as they were."""

    def weights(self, bucket_bytes: int) -> Iterator[Bucket]:
        """Full tensors under Hugging Face names, in buckets; never a second full copy."""

    def save(self, directory: Path) -> None:
        """Weights, optimiser, schedule and random states of this rank."""

    def load(self, directory: Path) -> None: ...

    def export(self, directory: Path) -> None:
        """A Hugging Face folder (rank 0 writes; tied weights once)."""

    def offload(self) -> None: ...

    def onload(self) -> None: ...
