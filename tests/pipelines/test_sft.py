"""`pipeline: sft`, end to end on tiny models made from scratch."""

import json
import math
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from rollick.config.job import CheckpointSettings, DatasetSettings, ModelSettings, ScheduleSettings, TrainerSettings
from rollick.config.sft import SftEvaluationSettings, SftJob
from rollick.data.batch import Batch
from rollick.data.datasets import load_rows
from rollick.data.records import Sample
from rollick.data.sft_rows import prepare_sft_rows
from rollick.errors import ConfigError, DataError, InterruptedRun
from rollick.models.tokenizer import load_tokenizer
from rollick.pipelines import sft
from rollick.pipelines.sft import evaluation_metrics, nll_totals
from rollick.state.jsonl import read_jsonl
from rollick.training.trainer import Trainer
from tests.models.tiny import tiny_model_folder, write_jsonl

SUMS = [(a, b) for a in range(6) for b in range(6)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return tiny_model_folder(tmp_path_factory.mktemp("sft") / "model")


@pytest.fixture
def job(model, tmp_path):
    rows = [
        {
            "messages": [
                {"role": "user", "content": f"{a}+{b}="},
                {"role": "assistant", "content": f"{a + b}" + " it is" * (a % 3)},
            ]
        }
        for a, b in SUMS
    ]
    train = write_jsonl(tmp_path / "train.jsonl", rows)

    def job(name="run", **settings):
        defaults = {
            "model": ModelSettings(path=str(model)),
            "dataset": DatasetSettings(path=str(train)),
            "steps": 6,
            "samples_per_update": 8,
            "trainer": TrainerSettings(learning_rate=3e-3, tokens_per_micro_batch=128),
        }
        return SftJob(
            pipeline="sft",
            name=name,
            output_dir=tmp_path / "runs",
            **defaults | settings,
        )

    return job


def metrics(directory):
    return list(read_jsonl(directory / "metrics.jsonl"))


def weights(directory):
    return (directory / "export" / "model.safetensors").read_bytes()


def without_times(rows):
    return [{k: v for k, v in row.items() if k not in ("time", "tokens_per_second")} for row in rows]


def independent_nll(model, rows, job):
    """Per row, the float64 negative log-likelihoods of its trained tokens, one row at a time."""
    model = AutoModelForCausalLM.from_pretrained(model, dtype=torch.float64)
    nlls = []
    for sample in rows:
        ids, mask = torch.from_numpy(sample.token_ids), torch.from_numpy(sample.loss_mask)
        with torch.no_grad():
            logprobs = model(ids[None]).logits[0, :-1].log_softmax(-1)
        nlls.append(-logprobs.gather(1, ids[1:, None])[:, 0][mask[1:]])
    return nlls


def prepared(job):
    return prepare_sft_rows(load_rows(job.dataset), load_tokenizer(job.model), job, [2])


def test_the_loss_falls_and_the_exported_model_answers(job):
    trainer = TrainerSettings(learning_rate=1e-2, schedule=ScheduleSettings(kind="linear"))
    dataset = job().dataset.model_copy(update={"limit": 12})
    directory = sft.run(job(steps=80, samples_per_update=12, dataset=dataset, trainer=trainer))
    rows = metrics(directory)
    assert [row["step"] for row in rows] == list(range(1, 81))
    assert rows[0]["loss"] > 4
    assert rows[-1]["loss"] < 0.2
    assert {"loss", "learning_rate", "grad_norm", "tokens", "tokens_per_second", "epoch", "samples"} <= set(rows[0])
    assert rows[0]["data/rows"] == 12
    assert rows[-1]["samples"] == 960
    assert rows[-1]["epoch"] == 80

    shown = list(read_jsonl(directory / "samples" / "step_000000.jsonl"))
    assert [row["response"] for row in shown] == [f"{i}<|im_end|>" for i in range(4)]
    assert shown[3]["prompt"] == "<|im_start|>user\n0+3=<|im_end|>\n<|im_start|>assistant\n"

    model = AutoModelForCausalLM.from_pretrained(directory / "export")
    tokenizer = AutoTokenizer.from_pretrained(directory / "export")
    assert model.generation_config.eos_token_id == 2
    prompt = tokenizer.apply_chat_template(
        [{"role": "user", "content": "1+4="}], add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    answer = model.generate(**prompt, max_new_tokens=8, do_sample=False)[0, prompt["input_ids"].shape[1] :]
    assert tokenizer.decode(answer) == "5 it is<|im_end|>"


@pytest.fixture
def updates(monkeypatch):
    """Row ids of every update; `updates.before[n]` is called before the n-th one (from 1)."""

    class Updates(list):
        def __init__(self):
            super().__init__()
            self.before = {}

    seen, update = Updates(), Trainer.update

    def recorded(self, batch, loss):
        seen.append(batch.row_ids)
        seen.before.get(len(seen), lambda: None)()
        return update(self, batch, loss)

    monkeypatch.setattr(Trainer, "update", recorded)
    return seen


def test_ctrl_c_and_resume_end_like_an_uninterrupted_run(job, updates):
    """Cases 107 and 119: no row twice, no label twice, equal bytes."""
    straight = sft.run(job("straight"))
    rows = list(updates)
    updates.clear()
    updates.before[3] = lambda: signal.raise_signal(signal.SIGINT)
    with pytest.raises(InterruptedRun, match="stopped after step 3 of 6; continue with --resume"):
        sft.run(job("stopped"))
    updates.before.clear()
    stopped = sft.run(job("stopped"), resume=True)
    assert updates == rows
    assert weights(stopped) == weights(straight)
    assert without_times(metrics(stopped)) == without_times(metrics(straight))


def test_a_crash_costs_the_steps_since_the_last_checkpoint_only(job, updates):
    straight = sft.run(job("straight"))
    rows = list(updates)
    updates.clear()

    def crash():
        raise OSError("power cut")

    settings = {"checkpoint": CheckpointSettings(every=2)}
    updates.before[6] = crash
    with pytest.raises(OSError, match="power cut"):
        sft.run(job("crashed", **settings))
    updates.before.clear()
    updates.clear()
    crashed = sft.run(job("crashed", **settings), resume=True)
    assert updates == rows[4:]
    assert weights(crashed) == weights(straight)
    assert without_times(metrics(crashed)) == without_times(metrics(straight))


@pytest.mark.slow
def test_a_killed_process_resumes_to_the_same_bytes(job, updates, tmp_path):
    straight = sft.run(job("straight"))
    settings = job("killed", checkpoint=CheckpointSettings(every=2))
    (tmp_path / "job.json").write_text(settings.model_dump_json())
    script = (
        "import os, sys; from pathlib import Path\n"
        "from rollick.config.sft import SftJob; from rollick.pipelines import sft\n"
        "from rollick.training.trainer import Trainer\n"
        "update, count = Trainer.update, iter(range(1, 99))\n"
        "Trainer.update = lambda *a: os.kill(os.getpid(), 9) if next(count) == 6 else update(*a)\n"
        "sft.run(SftJob.model_validate_json(Path(sys.argv[1]).read_text()))\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "job.json")]
    assert subprocess.run(command, check=False, capture_output=True, timeout=120).returncode == -signal.SIGKILL
    updates.clear()
    killed = sft.run(settings, resume=True)
    assert len(updates) == 2
    assert weights(killed) == weights(straight)
    assert without_times(metrics(killed)) == without_times(metrics(straight))


def test_a_run_that_is_over_resumes_to_its_end_only(job, updates):
    directory = sft.run(job())
    before = weights(directory)
    updates.clear()
    assert sft.run(job(), resume=True) == directory
    assert not updates
    assert weights(directory) == before
    with pytest.raises(ConfigError, match="continue it with --resume"):
        sft.run(job())


def test_a_dataset_that_changed_is_not_resumed(job, tmp_path):
    sft.run(job())
    with (tmp_path / "train.jsonl").open("a") as file:
        file.write('{"prompt": "9+9=", "completion": "18"}\n')
    with pytest.raises(DataError, match="cannot resume: the checkpoint drew from 36 rows"):
        sft.run(job(steps=8), resume=True)


@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean_token_mean"])
@pytest.mark.parametrize("packing", ["packed", "padded"])
def test_the_logged_loss_is_the_loss_by_hand(job, model, aggregation, packing):
    """Cases 3, 27, 28 and 144: per row or per token, packed or padded, the mode decides and never the layout."""
    settings = job(
        steps=1,
        samples_per_update=36,
        loss_aggregation=aggregation,
        trainer=TrainerSettings(learning_rate=1e-3, packing=packing, tokens_per_micro_batch=64),
    )
    nlls = independent_nll(model, prepared(settings), settings)
    per_row = torch.stack([nll.mean() for nll in nlls]).mean().item()
    per_token = torch.cat(nlls).mean().item()
    assert abs(per_row - per_token) > 1e-3
    [row] = metrics(sft.run(settings))
    assert row["loss"] == pytest.approx(per_token if aggregation == "token_mean" else per_row, abs=1e-5)
    assert row["loss/nll"] == pytest.approx(per_token, abs=1e-5)
    assert row["trained_tokens"] == sum(len(nll) for nll in nlls)


@pytest.mark.parametrize("limit", [3, 9])
@pytest.mark.parametrize("aggregation", ["token_mean", "sequence_mean_token_mean"])
def test_evaluation_counts_every_row_once(job, model, limit, aggregation):
    """Case 143: fewer rows than a batch, and a short last batch."""
    evaluation = SftEvaluationSettings(every=2, dataset=job().dataset.model_copy(update={"limit": limit}))
    settings = job(steps=3, samples_per_update=4, evaluation=evaluation, loss_aggregation=aggregation)
    directory = sft.run(settings)
    rows = metrics(directory)
    assert ["eval/loss" in row for row in rows] == [False, True, True]
    nlls = independent_nll(
        directory / "export", prepared(settings.model_copy(update={"dataset": evaluation.dataset})), job
    )
    tokens = torch.cat(nlls).mean().item()
    expected = tokens if aggregation == "token_mean" else torch.stack([nll.mean() for nll in nlls]).mean().item()
    assert rows[-1]["eval/loss"] == pytest.approx(expected, abs=1e-5)
    assert rows[-1]["eval/perplexity"] == pytest.approx(math.exp(tokens), rel=1e-5)


def _batch(*lengths):
    samples = []
    for number, length in enumerate(lengths):
        token_ids = np.full(length + 1, 5)
        zeros = np.zeros(length + 1, np.float32)
        mask = np.arange(length + 1) > 0
        samples.append(
            Sample(str(number), str(number), "", "", token_ids, mask, zeros, zeros, token_ids, [], None, False)
        )
    return Batch.from_samples(samples)


def test_a_mean_over_batches_is_the_mean_over_rows_and_tokens():
    """Cases 143 (9 rows, batches of 4, 4 and 1 with losses .5, .5, 1.0: .5556) and 28 (.5 by row, .375 by token)."""
    totals = sum(
        nll_totals(_batch(*[2] * rows), torch.full((3 * rows,), -loss)) for rows, loss in ((4, 0.5), (4, 0.5), (1, 1.0))
    )
    for aggregation in ("token_mean", "sequence_mean_token_mean"):
        assert evaluation_metrics(totals, aggregation)["eval/loss"] == pytest.approx(5 / 9, abs=1e-12)
    totals = nll_totals(_batch(3, 5), torch.tensor([9.0, -1, -1, -1, 9, 0, 0, 0, 0, 0]))
    assert totals.tolist() == [3, 8, 1, 2]
    assert evaluation_metrics(totals, "sequence_mean_token_mean")["eval/loss"] == 0.5
    assert evaluation_metrics(totals, "token_mean")["eval/loss"] == 0.375
    assert evaluation_metrics(totals, "token_mean")["eval/perplexity"] == pytest.approx(math.exp(0.375))


def test_epochs_use_every_row_that_often_and_the_last_update_takes_the_rest(job, updates):
    directory = sft.run(job(steps=None, epochs=2, samples_per_update=10))
    assert [len(rows) for rows in updates] == [10] * 7 + [2]
    used = [row for rows in updates for row in rows]
    assert sorted(used[:36]) == sorted(used[36:]) == sorted(f"train/{i}" for i in range(36))
    assert used[:36] != used[36:]
    assert metrics(directory)[-1]["epoch"] == 2


def test_a_pad_token_that_is_the_end_token_changes_nothing(job, model, tmp_path):
    """Case 32: labels come from lengths and masks, never from the pad id."""
    twin = tmp_path / "pad-is-eos"
    shutil.copytree(model, twin)
    config = json.loads((twin / "tokenizer_config.json").read_text())
    (twin / "tokenizer_config.json").write_text(json.dumps(config | {"pad_token": config["eos_token"]}))
    assert load_tokenizer(ModelSettings(path=str(twin))).pad_token_id == 2
    trainer = TrainerSettings(learning_rate=3e-3, packing="padded")
    own = sft.run(job("own", trainer=trainer))
    other = sft.run(job("other", model=ModelSettings(path=str(twin)), trainer=trainer))
    assert weights(own) == weights(other)


def test_bad_input_is_one_sentence_and_leaves_no_run(job, tmp_path):
    cases = [
        (DataError, "does not exist", {"dataset": DatasetSettings(path="missing.jsonl")}),
        (DataError, "no column 'prompt'", {"dataset": job().dataset.model_copy(update={"columns": {"x": "messages"}})}),
        (DataError, "none of its 36 rows has a token to train on", {"max_length": 4}),
        (DataError, "there is no folder 'nowhere/at/all'", {"model": ModelSettings(path="nowhere/at/all")}),
        (
            ConfigError,
            "warmup_updates = 9 is more than the 2 updates",
            {"steps": None, "epochs": 1, "samples_per_update": 30}
            | {"trainer": TrainerSettings(schedule=ScheduleSettings(warmup_updates=9))},
        ),
    ]
    for error, part, settings in cases:
        with pytest.raises(error) as caught:
            sft.run(job(**settings))
        assert part in str(caught.value)
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "runs").exists()
