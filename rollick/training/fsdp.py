"""The built-in train backend: PyTorch FSDP2, on one process or many, on CPU or accelerators."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor
from torch.distributed.fsdp import FSDPModule
from torch.distributed.tensor import DTensor

from rollick.config.job import ModelSettings, TrainerSettings
from rollick.data.batch import Batch
from rollick.engines.base import Bucket
from rollick.errors import ConfigError, NumericsError
from rollick.models.export import export_model
from rollick.models.load import load_causal_lm
from rollick.models.weights import named_weights
from rollick.platforms.select import select_platform
from rollick.training.base import Loss, TokenOutputs, Totals, UpdateResult
from rollick.training.microbatch import plan_padded, plan_sharing
from rollick.training.optimizer import (
    build_optimizer,
    clip_gradients,
    gradient_norm,
    optimizer_state,
    set_learning_rate,
)
from rollick.training.packing import MicroBatch, filler, input_lengths, lay_out, shared_prefixes
from rollick.training.ranks import Ranks
from rollick.training.report import RankReport, merge_reports
from rollick.training.schedule import learning_rate
from rollick.training.scorer import build_scorer
from rollick.training.sharding import shard
from rollick.training.state import random_states, read_state, restore_random_states, write_state


class FsdpBackend:
    """One rank of a trained (or, with `trainable=False`, only scored) model; see `training.base.TrainBackend`.

    backend = FsdpBackend(0, 1, ModelSettings(path="models/tiny"), TrainerSettings(learning_rate=1e-3), 100)
    logprobs, _ = backend.logprobs(batch, temperature=1.0)     # float32[N]
    result = backend.update(batch, loss)                       # result.metrics["loss"], …

    Compute is in `model.dtype`; a trained model's weights and optimiser state are float32 (float64 for float64).
    """

    def __init__(
        self,
        rank: int,
        world_size: int,
        model: ModelSettings,
        trainer: TrainerSettings,
        planned_updates: int,
        trainable: bool = True,
        device: str | None = None,
        rendezvous: str | None = None,
        timeout: float = 1800.0,
    ):
        compute = getattr(torch, model.dtype)
        if trainable and compute == torch.float16:
            raise ConfigError("model.dtype: float16 gradients underflow without loss scaling; train in bfloat16")
        master = torch.promote_types(compute, torch.float32) if trainable else compute
        self._platform = select_platform(device)
        self._device = (
            torch.device(device) if device else self._platform.device(int(os.environ.get("LOCAL_RANK", rank)))
        )
        self._ranks = Ranks(rank, world_size, self._platform, rendezvous, timeout)
        self._settings, self._planned_updates = trainer, planned_updates
        # One process has nothing to shard: FSDP would only copy every weight around each layer (a tenth of an
        # update's time and memory for 19M weights on CPU). It is still what computes in another dtype than the
        # master weights', and what keeps weights on the host.
        self._sharded = world_size > 1 or compute != master or trainer.cpu_offload
        loaded = load_causal_lm(model, master, "cpu" if self._sharded else self._device)
        loaded.requires_grad_(trainable)
        self._scorer = build_scorer(loaded, trainer.packing, model.attention)
        if trainer.activation_checkpointing and trainable:
            self._scorer.checkpoint_activations()
        if self._sharded:
            self._ranks.require_group()
            kind = self._platform.device_type
            shard(self._scorer, kind, world_size, compute, master, trainer.cpu_offload)
        self._optimizer = build_optimizer(self._weights, trainer) if trainable else None
        self._updates = 0

    @property
    def _weights(self) -> dict[str, Tensor]:
        return named_weights(self._scorer.model)

    def logprobs(self, batch: Batch | None, temperature: float, entropy: bool = False) -> tuple[Tensor, Tensor | None]:
        """Log-probs and entropies [N] of this rank's rows, in float32 (float64 when the model is), 0 where
        loss_mask is False. None as a batch gives empty tensors."""
        dtype = torch.promote_types(self._scorer.model.dtype, torch.float32)
        size = batch.num_tokens if batch is not None else 0
        scores, entropies = torch.zeros(size, dtype=dtype), torch.zeros(size, dtype=dtype)
        plan = self._plan(batch)
        with torch.no_grad():
            for index in range(max(self._ranks.gather(len(plan)))):
                micro = self._micro_batch(batch, plan, index)
                part, part_entropy = self._forward(micro, temperature, entropy)
                if micro is not None:
                    scores[micro.positions] = part.to("cpu", dtype)
                    if part_entropy is not None:
                        entropies[micro.positions] = part_entropy.to("cpu", dtype)
        self._reshard()
        return scores, entropies if entropy else None

    def update(self, batch: Batch | None, loss: Loss) -> UpdateResult:
        """One optimiser update over all ranks' rows, see `TrainBackend.update`.

        A batch without any live token changes nothing and gives `skipped_update` 1. Raises NumericsError on
        every rank, naming the rows of all ranks, when a live token's log-prob, the loss or the gradient is NaN or
        infinite; weights, optimiser and schedule are then as before.
        """
        if self._optimizer is None:
            raise ValueError("this model is only scored (trainable=False); it has no optimiser to update it")
        plan = self._plan(batch)
        counts = self._ranks.gather(_counts(batch, plan, self._settings.tokens_per_micro_batch))
        totals = Totals(tokens=sum(c[0] for c in counts), sequences=sum(c[1] for c in counts))
        if totals.tokens == 0:
            return UpdateResult({"loss": 0.0, "skipped_update": 1.0, "tokens": 0.0, "sequences": 0.0})
        passes = max(c[2] for c in counts)
        report = RankReport()
        for index in range(passes):
            self._accumulate(self._micro_batch(batch, plan, index), loss, totals, report)
        norm = gradient_norm(self._weights.values())
        merged = merge_reports(self._ranks.gather(report.close()), float(norm))
        if merged.bad_rows:
            self._optimizer.zero_grad(set_to_none=True)
            raise NumericsError(merged.problem, merged.bad_rows)
        rate = self._step(norm)
        return UpdateResult(
            merged.metrics
            | {
                "learning_rate": rate,
                "grad_norm": float(norm),
                "micro_batches": float(passes),
                "tokens": float(totals.tokens),
                "sequences": float(totals.sequences),
                "rows_over_budget": float(sum(c[3] for c in counts)),
                "skipped_update": 0.0,
            }
        )

    def weights(self, bucket_bytes: int) -> Iterator[Bucket]:
        """Whole tensors under Hugging Face names in buckets of at most `bucket_bytes` (a larger tensor comes
        alone). Unsharded weights are handed out as they are, not copied: read them, do not write."""
        bucket: Bucket = {}
        size = 0
        for name, weight in self._whole_weights():
            if bucket and size + weight.nbytes > bucket_bytes:
                yield bucket
                bucket, size = {}, 0
            bucket[name] = weight
            size += weight.nbytes
        if bucket:
            yield bucket

    def save(self, directory: Path) -> None:
        """Write weights, optimiser, update counter and random states; all ranks call it together."""
        local = {"updates": self._updates, "random": random_states(self._platform)}
        write_state(Path(directory), self._state(), self._ranks.rank, self._ranks.size, local)

    def load(self, directory: Path) -> None:
        """Go on where `save` was called. Raises DataError when the checkpoint is missing, damaged or foreign."""
        local = read_state(Path(directory), self._state(), self._ranks.rank, self._ranks.size)
        self._updates = local["updates"]
        restore_random_states(self._platform, local["random"])

    def export(self, directory: Path, dtype: str | None = None) -> None:
        """Write a Hugging Face folder (rank 0 does). `dtype` casts; left out, weights stay in the master dtype."""
        whole = {name: weight.cpu() for name, weight in self._whole_weights()}
        if self._ranks.rank == 0:
            export_model(self._scorer.model, whole, Path(directory), getattr(torch, dtype) if dtype else None)
        self._ranks.gather(None)  # nobody goes on before the files are there

    def offload(self) -> None:
        """Move weights and optimiser state to host memory, so that an engine can have the device."""
        self._move(torch.device("cpu"))
        self._platform.release_memory()

    def onload(self) -> None:
        """Undo `offload`."""
        if not self._settings.cpu_offload:
            self._move(self._device)

    def close(self) -> None:
        self._ranks.close()

    def _plan(self, batch: Batch | None) -> list[list[int]]:
        """Rows per micro-batch; rows without live tokens are in none."""
        if batch is None:
            return []
        lengths = input_lengths(batch)
        rows = [row for row, length in enumerate(lengths) if length]
        computed, budget = [lengths[row] for row in rows], self._settings.tokens_per_micro_batch
        if self._scorer.packed:
            shared, groups = shared_prefixes(batch), batch.rows["group"].tolist()
            cut = plan_sharing(computed, [shared[row] for row in rows], [groups[row] for row in rows], budget)
        else:
            cut = plan_padded(computed, budget)
        return [[rows[i] for i in part] for part in cut]

    def _micro_batch(self, batch: Batch | None, plan: list[list[int]], index: int) -> MicroBatch | None:
        """None past the end of this rank's plan: other ranks have more rows and need it in their collectives."""
        return lay_out(batch, plan[index], self._scorer.packed) if batch is not None and index < len(plan) else None

    def _forward(self, micro: MicroBatch | None, temperature: float, entropy: bool) -> tuple[Tensor, Tensor | None]:
        inputs = filler(self._scorer.packed) if micro is None else micro.inputs
        return self._scorer(inputs.to(self._device), temperature, entropy)

    def _accumulate(self, micro: MicroBatch | None, loss: Loss, totals: Totals, report: RankReport) -> None:
        """Forward and backward of one micro-batch; gradients add up."""
        logprobs, entropy = self._forward(micro, loss.temperature, loss.needs_entropy)
        nothing = logprobs.sum() * 0.0
        if micro is None:
            nothing.backward()
            return
        live = micro.live.to(self._device)
        outputs = TokenOutputs(logprobs, entropy)
        result = loss(outputs, live, totals)
        report.watch(live, outputs, result)
        # Every rank must reach the backward pass's collectives, even with a loss that ignores the model.
        (result.loss if result.loss.requires_grad else nothing).backward()

    def _step(self, norm: Tensor) -> float:
        """Clip, update, forget the gradients; returns the learning rate that was used."""
        if self._optimizer is None:
            raise ValueError("this model has no optimiser")
        rate = learning_rate(
            self._updates + 1, self._planned_updates, self._settings.learning_rate, self._settings.schedule
        )
        if self._settings.max_grad_norm is not None:
            clip_gradients(self._weights.values(), norm, self._settings.max_grad_norm)
        set_learning_rate(self._optimizer, rate)
        self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        self._updates += 1
        return rate

    def _reshard(self) -> None:
        """After a pass without backward the root's weights are still gathered; later changes would miss them."""
        if isinstance(self._scorer, FSDPModule):
            self._scorer.reshard()

    def _whole_weights(self) -> Iterator[tuple[str, Tensor]]:
        for name, weight in self._weights.items():
            weight = weight.detach()
            yield name, weight.full_tensor() if isinstance(weight, DTensor) else weight

    def _state(self) -> dict[str, Tensor]:
        state = {f"weights/{name}": weight for name, weight in self._weights.items()}
        if self._optimizer is not None:
            moments = optimizer_state(self._optimizer, self._weights)
            state |= {f"optimizer/{name}": tensor for name, tensor in moments.items()}
        return state

    def _move(self, device: torch.device) -> None:
        self._scorer.to(device)
        if self._optimizer is not None:
            for state in self._optimizer.state.values():
                state.update({key: value.to(device) for key, value in state.items()})


def _counts(batch: Batch | None, plan: list[list[int]], budget: int) -> tuple[int, int, int, int]:
    """Live tokens, rows with one, micro-batches, and rows longer than a micro-batch may be."""
    if batch is None:
        return 0, 0, 0, 0
    long = sum(length > budget for length in input_lengths(batch))
    return int(batch.tokens["loss_mask"].sum()), sum(map(len, plan)), len(plan), long
