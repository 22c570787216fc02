"""Training that was saved and loaded in a new process goes on bit for bit."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from rollick.config.job import TrainerSettings
from rollick.errors import DataError
from rollick.training.optimizer import build_optimizer, optimizer_state
from tests.models.tiny import tiny_model_folder
from tests.training.processes import run_ranks
from tests.training.rows import WeightedLoss, backend, ragged_batch, snapshot

DTYPES = ("float32", "bfloat16")
OPTIONS = {"weight_decay": 0.1, "schedule": {"kind": "cosine", "warmup_updates": 2}, "planned_updates": 5}


def train(one, updates):
    """Batches are drawn from every generator, so that a forgotten one shows."""
    records = []
    for _ in updates:
        seed = int(torch.randint(1000, ())) + int(np.random.randint(1000)) + random.randrange(1000)
        records.append(one.update(ragged_batch(seed=seed), WeightedLoss()).metrics)
    return records


def seed_all():
    torch.manual_seed(3)
    np.random.seed(3)
    random.seed(3)


def go_on(rank, ranks, meet, folder):
    results = {}
    for dtype in DTYPES:
        one = backend(folder, dtype, rendezvous=meet, **OPTIONS)
        one.load(folder.parent / f"state_{dtype}")
        results[dtype] = train(one, range(2, 5)), snapshot(one)
    return results


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("resume") / "model", "qwen2")


def test_five_updates_equal_two_a_new_process_and_three(folder, tmp_path):
    """Case 122."""
    whole = {}
    for dtype in DTYPES:
        seed_all()
        one = backend(folder, dtype, **OPTIONS)
        whole[dtype] = train(one, range(5)), snapshot(one)
        seed_all()
        part = backend(folder, dtype, **OPTIONS)
        train(part, range(2))
        part.save(folder.parent / f"state_{dtype}")
    [resumed] = run_ranks(1, tmp_path, go_on, folder)
    for dtype in DTYPES:
        assert resumed[dtype][0] == whole[dtype][0][2:]
        for name, tensor in whole[dtype][1].items():
            assert torch.equal(resumed[dtype][1][name], tensor), name


def test_a_state_saved_before_the_first_update_is_a_fresh_one(folder, tmp_path):
    one = backend(folder, **OPTIONS)
    one.save(tmp_path / "state")
    other = backend(folder, **OPTIONS)
    other.load(tmp_path / "state")
    fresh = backend(folder, **OPTIONS)
    batch = ragged_batch()
    assert other.update(batch, WeightedLoss()).metrics == fresh.update(batch, WeightedLoss()).metrics
    assert all(torch.equal(tensor, snapshot(fresh)[name]) for name, tensor in snapshot(other).items())


def test_weights_without_gradient_or_never_updated_have_a_state_that_saves_and_loads():
    """Case 122: parameters without gradient, and two parameter groups."""
    weights = {
        name: torch.nn.Parameter(torch.ones(shape)) for name, shape in {"a": (2, 2), "b": (2,), "c": (2,)}.items()
    }
    weights["c"].requires_grad_(False)
    optimizer = build_optimizer(weights, TrainerSettings(weight_decay=0.1))
    assert [len(group["params"]) for group in optimizer.param_groups] == [1, 1]
    weights["a"].grad = torch.ones(2, 2)
    optimizer.step()
    state = optimizer_state(optimizer, weights)
    assert sorted(state) == [f"{name}/{key}" for name in "ab" for key in ("exp_avg", "exp_avg_sq", "step")]
    assert (float(state["a/step"]), float(state["b/step"])) == (1, 0)
    weights["b"].grad = torch.ones(2)
    optimizer.step()
    assert torch.isfinite(weights["b"]).all() and bool((weights["b"] < 1).all())


def test_a_checkpoint_of_another_model_or_a_damaged_one_is_one_sentence(folder, tmp_path):
    backend(folder).save(tmp_path / "state")
    wider = backend(tiny_model_folder(tmp_path / "wide", "qwen2", hidden_size=128))
    with pytest.raises(DataError, match=r"checkpoint '.*state' cannot be loaded into this model: \S"):
        wider.load(tmp_path / "state")
    for file in (tmp_path / "state").glob("*.distcp"):
        file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    with pytest.raises(DataError, match="cannot be loaded"):
        backend(folder).load(tmp_path / "state")
