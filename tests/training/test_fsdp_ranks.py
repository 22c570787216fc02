"""Real processes over gloo equal one process: log-probs, loss, gradients, failures, checkpoints."""

import pytest
import torch

from rollick.data.batch import Batch
from rollick.errors import NumericsError, WorkerError
from rollick.training.trainer import split_rows
from tests.models.tiny import tiny_model_folder
from tests.training.contract import naive_scores
from tests.training.processes import run_ranks
from tests.training.rows import MeanLoss, WeightedLoss, backend, first_moments, make_sample, ragged_batch, snapshot

OPTIONS = {"max_grad_norm": None, "tokens_per_micro_batch": 48}
SIZES = (8, 2, 1)
"""Rows of the batches of case 133, on three ranks: the last two leave ranks without a row."""


def uneven_batch() -> Batch:
    """Case 30: inputs of 7, 7, 7 tokens for one rank and 3 for the other, under a budget of 8."""
    samples = [make_sample(f"s{i}", 3, 5, seed=i) for i in range(3)] + [make_sample("s3", 2, 2, seed=3)]
    batch = Batch.from_samples(samples)
    batch.tokens["coefficients"] = torch.linspace(-1, 1, batch.num_tokens, dtype=torch.float64)
    return batch


def shard(batch: Batch, rows: list[int]) -> Batch | None:
    return batch.select(rows) if rows else None


def one_update(folder, batch, rows, rank, ranks, meet, dtype="float64", **options):
    one = backend(folder, dtype, rank, ranks, rendezvous=meet, **{**OPTIONS, **options})
    part = shard(batch, rows)
    scores, entropies = one.logprobs(part, 0.7, entropy=True)
    metrics = one.update(part, WeightedLoss()).metrics
    return one, {
        "rows": rows,
        "scores": scores,
        "entropies": entropies,
        "metrics": metrics,
        "grads": first_moments(one),
    }


def on_two_ranks(rank, ranks, meet, folder):
    results = {}
    one, results["uneven"] = one_update(
        folder, uneven_batch(), [[0, 1, 2], [3]][rank], rank, ranks, meet, tokens_per_micro_batch=8
    )
    broken = ragged_batch()
    broken.tokens["coefficients"][int(broken.offsets[4]) - 1] = float("nan")
    before = snapshot(one)
    try:
        one.update(shard(broken, split_rows(broken, ranks)[rank]), WeightedLoss())
    except NumericsError as error:
        results["bad_rows"] = error.row_ids
    results["unchanged"] = all(torch.equal(tensor, before[name]) for name, tensor in snapshot(one).items())
    empty = Batch.from_samples([make_sample("empty", 6, 0)])
    results["skipped"] = one.update(empty if rank else None, MeanLoss()).metrics
    one.save(folder.parent / "state")
    one.export(folder.parent / "export")
    results["weights"] = snapshot(one)
    results["after"] = one.update(shard(ragged_batch(), split_rows(ragged_batch(), ranks)[rank]), MeanLoss()).metrics
    one.load(folder.parent / "state")
    results["again"] = one.update(shard(ragged_batch(), split_rows(ragged_batch(), ranks)[rank]), MeanLoss()).metrics
    for dtype in ("float32", "bfloat16"):
        rows = split_rows(ragged_batch(), ranks)[rank]
        _, results[dtype] = one_update(folder, ragged_batch(), rows, rank, ranks, meet, dtype)
    _, results["offloaded"] = one_update(folder, ragged_batch(), rows, rank, ranks, meet, cpu_offload=True)
    _, results["checkpointed"] = one_update(
        folder, ragged_batch(), rows, rank, ranks, meet, activation_checkpointing=True
    )
    one.close()
    return results


def on_three_ranks(rank, ranks, meet, folder):
    results = {}
    for size in SIZES:
        rows = split_rows(ragged_batch(size), ranks)[rank]
        _, results[size] = one_update(folder, ragged_batch(size), rows, rank, ranks, meet)
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tiny_model_folder(tmp_path_factory.mktemp("ranks") / "model", "qwen3")


@pytest.fixture(scope="module")
def two(folder, tmp_path_factory):
    return run_ranks(2, tmp_path_factory.mktemp("two"), on_two_ranks, folder)


@pytest.fixture(scope="module")
def three(folder, tmp_path_factory):
    return run_ranks(3, tmp_path_factory.mktemp("three"), on_three_ranks, folder)


def assert_equal_to_one_process(folder, batch, ranks, atol, dtype="float64", **options):
    _, alone = one_update(folder, batch, list(range(batch.num_rows)), 0, 1, None, dtype, **options)
    for name in ("scores", "entropies"):
        for rank in ranks:
            rows = torch.isin(batch.row_index(), torch.tensor(rank["rows"], dtype=torch.long))
            expected = alone[name][rows]
            torch.testing.assert_close(rank[name], expected, atol=atol, rtol=0)
    for rank in ranks:
        for key in ("loss", "weighted", "grad_norm", "tokens", "sequences", "learning_rate"):
            assert rank["metrics"][key] == pytest.approx(alone["metrics"][key], abs=10 * atol)
        for name, gradient in alone["grads"].items():
            torch.testing.assert_close(rank["grads"][name], gradient, atol=atol, rtol=0, msg=name)


def test_a_light_rank_runs_empty_passes_and_the_gradient_is_that_of_one_process(folder, two):
    """Case 30."""
    uneven = [rank["uneven"] for rank in two]
    assert [rank["metrics"]["micro_batches"] for rank in uneven] == [3, 3]
    assert_equal_to_one_process(folder, uneven_batch(), uneven, 1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_any_number_of_rows_on_three_ranks_equals_one_process(folder, three, size):
    """Cases 133 and 137."""
    ranks = [rank[size] for rank in three]
    assert sum(len(rank["rows"]) for rank in ranks) == size
    assert_equal_to_one_process(folder, ragged_batch(size), ranks, 1e-6)


@pytest.mark.parametrize(
    "key, dtype, atol",
    [
        ("float32", "float32", 1e-5),
        ("offloaded", "float64", 1e-6),
        ("checkpointed", "float64", 1e-6),
    ],
)
def test_dtypes_and_memory_options_equal_one_process(folder, two, key, dtype, atol):
    assert_equal_to_one_process(folder, ragged_batch(), [rank[key] for rank in two], atol, dtype)


def test_bfloat16_on_two_ranks_is_as_close_to_the_exact_gradient_as_on_one(folder, two):
    _, exact = one_update(folder, ragged_batch(), list(range(8)), 0, 1, None)
    for name, gradient in exact["grads"].items():
        error = (two[0]["bfloat16"]["grads"][name].double() - gradient).norm() / gradient.norm()
        assert error < 0.05, name


def test_one_ranks_nan_stops_all_ranks_with_the_same_rows(two):
    assert [rank["bad_rows"] for rank in two] == [["s3"], ["s3"]]
    assert all(rank["unchanged"] for rank in two)


def test_a_batch_without_live_tokens_is_skipped_on_all_ranks(two):
    """Case 24."""
    assert [rank["skipped"]["skipped_update"] for rank in two] == [1, 1]


def test_a_checkpoint_of_two_ranks_goes_on_there_and_on_one(folder, two):
    assert [rank["again"] for rank in two] == [rank["after"] for rank in two]
    one = backend(folder, **OPTIONS)
    one.load(folder.parent / "state")
    assert all(torch.equal(tensor, two[1]["weights"][name]) for name, tensor in snapshot(one).items())
    metrics = one.update(ragged_batch(), MeanLoss()).metrics
    assert metrics["loss"] == pytest.approx(two[0]["after"]["loss"], abs=1e-9)
    assert metrics["grad_norm"] == pytest.approx(two[0]["after"]["grad_norm"], abs=1e-9)


def test_two_ranks_export_one_whole_model(folder, two):
    one = backend(folder, **OPTIONS)
    one.load(folder.parent / "state")
    expected, _ = naive_scores(folder.parent / "export", ragged_batch(), 1.0, torch.float64)
    torch.testing.assert_close(one.logprobs(ragged_batch(), 1.0)[0], expected, atol=1e-6, rtol=0)


def test_several_ranks_without_a_meeting_point_are_refused(folder):
    with pytest.raises(WorkerError, match="no rendezvous"):
        backend(folder, rank=1, ranks=2)
