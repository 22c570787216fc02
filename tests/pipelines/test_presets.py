"""Each preset through the whole pipeline, and through the real backend however the batch is cut."""

import json

import pytest
import torch

from rollick.config.algorithm import AlgorithmSettings, preset_names
from rollick.config.job import ModelSettings, TrainerSettings
from rollick.config.rl import RlJob
from rollick.pipelines import rl
from rollick.pipelines.policy_batch import PolicyBatches, scored_rows
from rollick.state.jsonl import read_jsonl
from rollick.training.fsdp import FsdpBackend
from rollick.training.policy_loss import PolicyLoss
from tests.models.tiny import tiny_model_folder, write_jsonl
from tests.pipelines.steps import MAX_NEW_TOKENS, groups


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model_folder(tmp_path_factory.mktemp("presets") / "model")


def job(model, folder, **settings):
    rows = [{"id": f"q{i}", "prompt": f"{i}+{i}=", "ground_truth": str(2 * i)} for i in range(4)]
    tasks = str(write_jsonl(folder / "train.jsonl", rows))
    environment = {
        "kind": "tasks",
        "dataset": {"path": tasks},
        "rewards": [{"kind": "function", "path": "tests.pipelines.graders:share_of_letter_e"}],
    }
    defaults = {
        "pipeline": "rl",
        "name": "preset",
        "output_dir": folder / "runs",
        "seed": 3,
        "steps": 1,
        "model": {"path": str(model)},
        "environments": [environment],
        "rollout": {"prompts_per_step": 2, "max_prompt_tokens": 40, "max_new_tokens": 4},
        "trainer": {"learning_rate": 1e-3},
    }
    return RlJob.model_validate(defaults | settings)


SELECTING = {"raft": {"raft_select": "best"}, "raft_pp": {"raft_select": "best"}}
"""A random model is never right; the best of its answers are."""


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_runs_from_prompts_to_new_weights(model, tmp_path, preset):
    """Failure case 44; the second update of a step is off-policy, so every ratio is in use."""
    algorithm = {"preset": preset, "group_size": 4, "epochs_per_batch": 2, **SELECTING.get(preset, {})}
    directory = rl.run(job(model, tmp_path, algorithm=algorithm))
    [row] = read_jsonl(directory / "metrics.jsonl")
    assert row["updates"] == 2 and row["grad_norm"] > 0
    assert row["policy/ratio"] != 1.0
    assert ("kl/reference" in row) == bool(AlgorithmSettings(preset=preset).kl_coef)


def test_the_controller_and_the_moments_are_in_the_checkpoint(model, tmp_path):
    algorithm = {"preset": "reinforce_pp", "group_size": 4, "kl_target": 1.0, "kl_horizon": 40, "reward_std": "running"}
    directory = rl.run(job(model, tmp_path, algorithm=algorithm))
    [manifest] = directory.glob("checkpoints/*/manifest.json")
    state = json.loads(manifest.read_text())["meta"]["algorithm"]
    assert state["kl_coef"] == {"tasks": pytest.approx(0.01 * (1 - 0.2 * 8 / 40))}
    assert state["reward_moments"]["tasks"]["count"] == 8


COMPOSED = {
    **{preset: {"preset": preset} for preset in preset_names()},
    **{loss: {"policy_loss": loss} for loss in ("kl_cov", "clip_cov", "sao", "kimi_token", "gspo_token", "dppo")},
    "dro": {"policy_loss": "dro", "dro_beta": 0.1},
    "masked": {"correction_mask": "token", "correction_range": [0.5, 2.0], "kpop_limit": 0.5, "opsm_limit": 0.1},
    "m2po": {"m2po_limit": 0.5, "correction_weight": "sequence", "correction_weight_normalized": True},
}


@pytest.fixture(scope="module")
def backends(model):
    """Two cuts of the same rows: all in one micro-batch, and about one row in each."""
    settings = [
        TrainerSettings(learning_rate=1e-30, tokens_per_micro_batch=tokens, packing=packing)
        for tokens, packing in ((4096, "packed"), (12, "padded"))
    ]
    made = [FsdpBackend(0, 1, ModelSettings(path=str(model)), one, 1000) for one in settings]
    yield made
    for backend in made:
        backend.close()


@pytest.mark.parametrize("name", COMPOSED)
def test_neither_micro_batches_nor_packing_nor_the_order_of_rows_change_an_update(backends, name):
    """Failure case 28, for every composed loss in the real backend. The learning rate is 1e-30: weights stay."""
    algorithm = AlgorithmSettings(**COMPOSED[name])
    rows = scored_rows(groups())
    generator = torch.Generator().manual_seed(1)
    base, _ = backends[0].logprobs(rows.batch, 1.0)
    for column in ("old_logprobs", "ref_logprobs", "behaviour_logprobs"):
        rows.batch.tokens[column] = base + 0.3 * torch.randn(len(base), generator=generator)
    batch = PolicyBatches(algorithm, MAX_NEW_TOKENS).make(rows).batch
    loss = PolicyLoss.from_settings(algorithm, temperature=1.0, max_new_tokens=MAX_NEW_TOKENS)
    order = torch.randperm(batch.num_rows, generator=generator).tolist()
    whole = backends[0].update(batch, loss).metrics
    cut = backends[1].update(batch.select(order), loss).metrics
    assert cut["micro_batches"] > whole["micro_batches"] == 1
    for metric in ("loss", "grad_norm", "loss/policy", "policy/ratio", "policy/clip_fraction"):
        assert cut[metric] == pytest.approx(whole[metric], rel=1e-4, abs=1e-6), metric
