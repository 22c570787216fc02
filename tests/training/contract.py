"""What every train backend must keep, whatever its implementation and number of ranks.

`check_*` take a backend (world size 1) that was just built on a tiny model; `tests/training/test_fsdp.py` runs them.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from rollick.data.batch import Batch
from rollick.errors import DataError, NumericsError
from rollick.training.base import TrainBackend
from tests.training.rows import MeanLoss, WeightedLoss, make_sample, ragged_batch, snapshot, with_coefficients

CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def naive_scores(folder: Path, batch: Batch, temperature: float, dtype: torch.dtype) -> tuple[torch.Tensor, ...]:
    """Log-probs and entropies [N] by the model's own full logits, one row at a time."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=dtype)
    if dtype == torch.float64 and hasattr(model.config, "num_experts"):
        model.set_experts_implementation("eager")
    scores, entropies = torch.zeros(2, batch.num_tokens, dtype=dtype)
    for begin, end in zip(batch.offsets[:-1].tolist(), batch.offsets[1:].tolist()):
        ids = batch.tokens["token_ids"][begin:end]
        with torch.no_grad():
            logp = torch.log_softmax(model(ids[None]).logits[0, :-1] / temperature, -1)
        scores[begin + 1 : end] = logp.gather(1, ids[1:, None])[:, 0]
        entropies[begin + 1 : end] = -(logp.exp() * logp).sum(-1)
    mask = batch.tokens["loss_mask"]
    return scores * mask, entropies * mask


@check
def check_log_probs_and_entropies_equal_a_full_softmax(backend: TrainBackend, folder: Path) -> None:
    """Case 31: lengths out of order, every output back at its own row."""
    batch = ragged_batch()
    for temperature in (1.0, 0.7):
        scores, entropies = backend.logprobs(batch, temperature, entropy=True)
        expected, expected_entropies = naive_scores(folder, batch, temperature, torch.float64)
        torch.testing.assert_close(scores.double(), expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(entropies.double(), expected_entropies, atol=1e-5, rtol=0)


@check
def check_a_rank_without_rows_gets_empty_tensors(backend: TrainBackend, folder: Path) -> None:
    scores, entropies = backend.logprobs(None, 1.0, entropy=True)
    assert scores.shape == entropies.shape == (0,)


@check
def check_an_update_lowers_the_loss_and_changes_every_weight(backend: TrainBackend, folder: Path) -> None:
    batch, before = ragged_batch(), snapshot(backend)
    losses = [backend.update(batch, MeanLoss()).metrics["loss"] for _ in range(3)]
    assert losses[0] > losses[1] > losses[2]
    assert [name for name, tensor in snapshot(backend).items() if torch.equal(tensor, before[name])] == []


@check
def check_rows_without_live_tokens_count_nowhere(backend: TrainBackend, folder: Path) -> None:
    """Case 24, mixed batch: the loss is the good row's alone."""
    good, *empty = [make_sample("good", 4, 3), *[make_sample(f"empty{i}", 6 + i, 0, seed=i) for i in range(3)]]
    alone = backend.logprobs(Batch.from_samples([good]), 1.0)[0].sum() / -3
    metrics = backend.update(Batch.from_samples([empty[0], good, *empty[1:]]), MeanLoss()).metrics
    assert metrics["loss"] == pytest.approx(float(alone), abs=1e-5)
    assert (metrics["tokens"], metrics["sequences"], metrics["skipped_update"]) == (3, 1, 0)


@check
def check_an_all_masked_batch_changes_nothing(backend: TrainBackend, folder: Path) -> None:
    """Case 24: a finite zero loss, the step skipped and said so."""
    before = snapshot(backend)
    batch = Batch.from_samples([make_sample(f"empty{i}", 6 + i, 0) for i in range(3)])
    metrics = backend.update(batch, MeanLoss()).metrics
    assert (metrics["loss"], metrics["skipped_update"], metrics["tokens"]) == (0, 1, 0)
    assert all(torch.equal(tensor, before[name]) for name, tensor in snapshot(backend).items())


@check
def check_nan_in_a_live_position_names_its_row_and_changes_nothing(backend: TrainBackend, folder: Path) -> None:
    batch, before = ragged_batch(), snapshot(backend)
    batch.tokens["coefficients"][int(batch.offsets[4]) - 1] = float("nan")
    with pytest.raises(NumericsError, match="1 row: s3;") as caught:
        backend.update(batch, WeightedLoss())
    assert caught.value.row_ids == ["s3"]
    assert all(torch.equal(tensor, before[name]) for name, tensor in snapshot(backend).items())
    clean = backend.update(ragged_batch(), WeightedLoss()).metrics
    assert clean["learning_rate"] > 0 and clean["grad_norm"] > 0


@check
def check_nan_in_a_masked_position_is_never_seen(backend: TrainBackend, folder: Path) -> None:
    clean, dirty = ragged_batch(), ragged_batch()
    dirty.tokens["coefficients"][~dirty.tokens["loss_mask"]] = float("nan")
    before = backend.logprobs(clean, 1.0)[0]
    assert torch.equal(before, backend.logprobs(dirty, 1.0)[0])
    assert all(torch.isfinite(torch.tensor(v)) for v in backend.update(dirty, WeightedLoss()).metrics.values())


@check
def check_weights_come_whole_once_and_in_bounded_buckets(backend: TrainBackend, folder: Path) -> None:
    buckets = list(backend.weights(20_000))
    names = [name for bucket in buckets for name in bucket]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64)
    assert len(names) == len(set(names))
    assert names == [name for name, _ in model.named_parameters()]
    assert all(len(b) == 1 or sum(t.nbytes for t in b.values()) <= 20_000 for b in buckets)
    own = dict(model.named_parameters())
    assert all(torch.equal(t.double(), own[name]) for bucket in buckets for name, t in bucket.items())


@check
def check_an_export_gives_the_same_log_probs_in_transformers(backend: TrainBackend, folder: Path) -> None:
    batch = ragged_batch()
    backend.update(batch, MeanLoss())
    target = folder.parent / f"{folder.name}_export"
    backend.export(target)
    scores, _ = backend.logprobs(batch, 1.0)
    expected, _ = naive_scores(target, batch, 1.0, torch.float64)
    torch.testing.assert_close(scores.double(), expected, atol=1e-5, rtol=0)


@check
def check_offload_and_onload_leave_the_results(backend: TrainBackend, folder: Path) -> None:
    batch = ragged_batch()
    backend.update(batch, MeanLoss())
    before = backend.logprobs(batch, 1.0)[0]
    backend.offload()
    backend.onload()
    assert torch.equal(before, backend.logprobs(batch, 1.0)[0])
    assert backend.update(batch, MeanLoss()).metrics["grad_norm"] > 0


@check
def check_a_first_token_that_is_live_is_refused_by_name(backend: TrainBackend, folder: Path) -> None:
    batch = with_coefficients(Batch.from_samples([make_sample("fine", 3, 2), make_sample("headless", 0, 3)]))
    with pytest.raises(ValueError, match="row headless"):
        backend.update(batch, MeanLoss())


@check
def check_a_missing_checkpoint_is_one_sentence(backend: TrainBackend, folder: Path) -> None:
    with pytest.raises(DataError, match="there is no trainer state"):
        backend.load(folder / "nothing")


@check
def check_saved_and_loaded_weights_are_equal(backend: TrainBackend, folder: Path) -> None:
    batch, directory = ragged_batch(), folder.parent / f"{folder.name}_state"
    backend.update(batch, MeanLoss())
    backend.save(directory)
    saved = snapshot(backend)
    after = backend.update(batch, MeanLoss()).metrics
    backend.load(directory)
    assert all(torch.equal(tensor, saved[name]) for name, tensor in snapshot(backend).items())
    assert backend.update(batch, MeanLoss()).metrics == after
