"""`pipeline: rl`, end to end on tiny models made from scratch: real engine, real backend, real graders."""

import json
import os
import signal
import threading
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM

from rollick.config.rl import RlJob
from rollick.errors import InterruptedRun, RewardError
from rollick.pipelines import rl
from rollick.rollout.events import replay
from rollick.state.jsonl import read_jsonl
from rollick.state.samples import sample_path
from tests.models.tiny import tiny_model_folder, write_jsonl


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    return tiny_model_folder(tmp_path_factory.mktemp("rl") / "model")


@pytest.fixture
def job(model, tmp_path):
    rows = [{"id": f"q{i}", "prompt": f"{i}+{i}=", "ground_truth": str(2 * i)} for i in range(6)]
    tasks = str(write_jsonl(tmp_path / "train.jsonl", rows))

    def job(name: str = "run", **settings) -> RlJob:
        environment = {
            "kind": "tasks",
            "dataset": {"path": tasks},
            "rewards": [{"kind": "function", "path": "tests.pipelines.graders:share_of_letter_e"}],
        }
        defaults = {
            "pipeline": "rl",
            "name": name,
            "output_dir": tmp_path / "runs",
            "seed": 3,
            "steps": 3,
            "model": {"path": str(model)},
            "environments": [environment],
            "algorithm": {"preset": "grpo", "group_size": 4},
            "rollout": {"prompts_per_step": 3, "max_prompt_tokens": 40, "max_new_tokens": 6},
            "trainer": {"learning_rate": 1e-2},
        }
        return RlJob.model_validate(defaults | settings)

    return job


def metrics(directory: Path) -> list[dict]:
    return list(read_jsonl(directory / "metrics.jsonl"))


def weights(directory: Path) -> bytes:
    return (directory / "export" / "model.safetensors").read_bytes()


def comparable(rows: list[dict]) -> list[dict]:
    """Metrics without what depends on the clock."""
    return [{k: v for k, v in row.items() if k != "time" and "seconds" not in k} for row in rows]


def test_a_policy_learns_and_leaves_a_readable_run_behind(job, model):
    directory = rl.run(job(steps=12, rollout={"prompts_per_step": 6, "max_prompt_tokens": 40, "max_new_tokens": 6}))
    rows = metrics(directory)
    assert [row["step"] for row in rows] == list(range(1, 13))
    assert rows[-1]["reward/mean"] > rows[0]["reward/mean"] + 0.2, "the reward must rise"
    for row in rows:
        assert row["mismatch/kl"] == pytest.approx(0, abs=1e-5), "engine and trainer agree"
        assert row["mismatch/prob_diff"] < 1e-5
    assert {"config.yaml", "versions.json", "metrics.jsonl", "events.jsonl", "samples", "checkpoints", "export"} <= {
        path.name for path in directory.iterdir()
    }
    sample = json.loads((directory / "samples" / "step_000001.jsonl").read_text().splitlines()[0])
    assert len(sample["token_ids"]) == len(sample["loss_mask"]) == len(sample["behaviour_logprobs"])
    assert set(sample["versions"]) == {-1, 0} and sample["reward_parts"].keys() == {"share_of_letter_e"}
    before, after = (AutoModelForCausalLM.from_pretrained(path) for path in (model, directory / "export"))
    assert not torch.equal(before.lm_head.weight, after.lm_head.weight)


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(job):
    first, second, other = rl.run(job("a")), rl.run(job("b")), rl.run(job("c", seed=4))
    assert weights(first) == weights(second) != weights(other)
    assert comparable(metrics(first)) == comparable(metrics(second)) != comparable(metrics(other))


def test_a_resumed_run_is_the_uninterrupted_one_to_the_byte(job):
    """failure cases 106, 107, 111, 119: no prompt again, no label doubled, the first rollout on resumed weights."""
    whole = rl.run(job("whole", steps=4, checkpoint={"every": 2}))
    half = job("half", steps=4, checkpoint={"every": 2})
    stop_after(half, 2)
    resumed = rl.run(half, resume=True)
    assert weights(resumed) == weights(whole)
    assert comparable(metrics(resumed)) == comparable(metrics(whole))


def stop_after(job: RlJob, steps: int) -> None:
    """Run until `steps` are done and then press Ctrl-C, as a signal to this process."""

    def press() -> None:
        path = job.output_dir / job.name / "metrics.jsonl"
        while not done.wait(0.01):
            if path.exists() and path.read_text().count("\n") >= steps:
                os.kill(os.getpid(), signal.SIGINT)
                return

    done = threading.Event()
    thread = threading.Thread(target=press)
    thread.start()
    try:
        with pytest.raises(InterruptedRun, match=r"continue with --resume"):
            rl.run(job)
    finally:
        done.set()
        thread.join(timeout=10)


@pytest.mark.parametrize(
    "algorithm",
    [
        {"kl_coef": 0.1, "kl_estimator": "k1"},
        {"kl_coef": 0.1, "kl_estimator": "k3", "entropy_coef": 0.01},
        {"advantage_std": "none", "loss_aggregation": "sequence_mean_token_sum_norm"},
        {"epochs_per_batch": 2, "clip_high": 0.28, "dual_clip": 3.0},
        {"truncated_answers": "mask"},
    ],
    ids=",".join,
)
def test_every_combination_of_options_runs(job, algorithm):
    """failure case 44."""
    directory = rl.run(job(steps=2, algorithm={"group_size": 4, **algorithm}))
    rows = metrics(directory)
    assert len(rows) == 2
    if "kl_coef" in algorithm:
        assert rows[0]["kl/reference"] == pytest.approx(0, abs=1e-6), "the policy starts at its reference"
        assert rows[1]["kl/reference"] != 0
    assert ("mismatch/effective_sample_size" in rows[0]) == ("epochs_per_batch" in algorithm)
    if "epochs_per_batch" in algorithm:
        assert rows[0]["mismatch/effective_sample_size"] == pytest.approx(1, abs=1e-5)
        assert rows[0]["mismatch/prob_correlation"] == pytest.approx(1, abs=1e-5)
        assert 0 <= rows[0]["mismatch/prob_diff_max"] < 1e-4
        assert rows[0]["policy/ratio"] != 1.0, "the second epoch is off-policy"


def test_several_updates_per_step_follow_the_schedule(job):
    """failure case 56: the learning rate depends on the planned updates only."""
    trainer = {"learning_rate": 1e-2, "samples_per_update": 4, "schedule": {"kind": "linear"}}
    rows = metrics(rl.run(job(steps=2, trainer=trainer)))
    assert [row["updates"] for row in rows] == [3, 3]
    assert rows[1]["learning_rate"] < rows[0]["learning_rate"]


def test_evaluation_runs_before_training_and_at_the_end_with_its_own_sampling(job, tmp_path):
    """failure case 95: the evaluation's sampling is its own."""
    held_out = write_jsonl(tmp_path / "test.jsonl", [{"prompt": "7+1=", "ground_truth": "8"}])
    rewards = [{"kind": "function", "path": "tests.pipelines.graders:share_of_letter_e"}]
    evaluation = {
        "every": 2,
        "environments": [{"kind": "tasks", "dataset": {"path": str(held_out)}, "rewards": rewards}],
        "sampling": {"temperature": 1.0},
        "samples_per_prompt": 4,
        "pass_at": [1, 2],
        "success_reward": 0.1,
    }
    rows = metrics(rl.run(job(steps=3, evaluation=evaluation)))
    assert [row["step"] for row in rows if "evaluation/accuracy" in row] == [0, 2, 3]
    assert rows[0]["evaluation/samples"] == 4 and "evaluation/pass@2" in rows[0] and "loss" not in rows[0]


def test_a_grader_that_gives_nan_stops_the_run_with_its_name_and_the_value(job):
    environment = job().environments[0].model_dump()
    environment["rewards"] = [{"kind": "function", "path": "tests.pipelines.graders:not_a_number"}]
    with pytest.raises(RewardError, match=r"episodes failed.*nan"):
        rl.run(job(environments=[environment]))


def test_the_last_step_saves_a_checkpoint_and_resuming_there_has_nothing_to_do(job):
    first = rl.run(job())
    before = weights(first)
    again = rl.run(job(), resume=True)
    assert weights(again) == before and [row["step"] for row in metrics(again)] == [1, 2, 3]


def test_a_watch_that_sees_hacking_tells_once_and_writes_metric_and_event(job, capsys):
    """The letter e is all that pays here, so answers repeat themselves while the reward rises."""
    watch = {"window": 6, "length_growth": None, "repetition_rise": 0.01, "reward_rise": 0.1, "format_rise": None}
    settings = {
        "steps": 14,
        "rollout": {"prompts_per_step": 6, "max_prompt_tokens": 40, "max_new_tokens": 6},
        "logging": {"hacking_watch": watch, "sample_groups": 2},
    }
    directory = rl.run(job("whole", **settings))
    rows = metrics(directory)
    on = [row["alarm/repetition"] for row in rows]
    assert on[:5] == [0.0] * 5 and 1.0 in on and all("alarm/format_only" in row for row in rows)
    starts = [i for i, value in enumerate(on) if value and not on[i - 1]]
    alarms = [row for row in read_jsonl(directory / "events.jsonl") if row.get("alarm") == "repetition"]
    assert [row["step"] for row in alarms] == starts
    written = {row["id"] for row in read_jsonl(sample_path(directory / "samples", starts[0] + 1))}
    assert len(alarms[0]["samples"]) == 3 and set(alarms[0]["samples"]) <= written
    assert f"possible reward hacking at step {starts[0] + 1} (repetition)" in capsys.readouterr().out
    assert replay(read_jsonl(directory / "events.jsonl")).counters()["consumed"] == 14 * 6 * 4


def test_the_graders_counters_are_metrics_of_each_step(job):
    rows = metrics(rl.run(job()))
    assert [row["reward/share_of_letter_e/graded"] for row in rows] == [12.0] * 3
    assert [row["reward/share_of_letter_e/failed"] for row in rows] == [0.0] * 3


def test_without_the_watch_there_are_no_alarms(job):
    [row] = metrics(rl.run(job(steps=1, logging={"hacking_watch": None})))
    assert not [name for name in row if name.startswith("alarm/") or name == "rollout/repetition"]
