"""A judge inside a training run: what it pays, what it costs, and that its key is in no file."""

import json

import pytest

from rollick.config.rl import RlJob
from rollick.errors import RewardError
from rollick.pipelines import rl
from rollick.state.jsonl import read_jsonl
from tests.models.tiny import tiny_model_folder, write_jsonl
from tests.rewards.http_service import Raw, service
from tests.rewards.test_judge import asked, verdict

KEY = "sk-1618033988749894"


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", KEY)
    model = tiny_model_folder(tmp_path / "model")
    rows = [{"prompt": f"{i}+{i}=", "ground_truth": str(2 * i), "tags": "sums" if i % 2 else "other"} for i in range(4)]
    tasks = write_jsonl(tmp_path / "train.jsonl", rows)

    def job(url: str, **settings) -> RlJob:
        judge = {"kind": "judge", "url": url, "model": "m", "api_key_env": "JUDGE_KEY", "retries": 0}
        rewards = [
            {"kind": "function", "path": "tests.rewards.graders:length", "name": "long", "clip": [0, 3], "weight": 0.1},
            {**judge, "gate": "long", "gate_at": 4, "price_per_million": [1, 1]},
            {"kind": "match", "task_tags": ["sums"]},
        ]
        defaults = {
            "pipeline": "rl",
            "name": "judged",
            "output_dir": tmp_path / "runs",
            "steps": 2,
            "model": {"path": str(model)},
            "environments": [{"kind": "tasks", "dataset": {"path": str(tasks)}, "rewards": rewards}],
            "algorithm": {"group_size": 4},
            "rollout": {"prompts_per_step": 4, "max_prompt_tokens": 40, "max_new_tokens": 6},
        }
        return RlJob.model_validate(defaults | settings)

    return job


def test_a_judge_behind_a_gate_pays_and_is_paid(job, caplog, capsys):
    def grade(request):
        return verdict(request, reason="", grade=min(10, len(asked(request)[1]["answer"])))

    with service(grade) as (url, requests):
        directory = rl.run(job(url))
    assert len(requests) == 32
    for row in read_jsonl(directory / "metrics.jsonl"):
        assert row["reward/judge/requests"] == row["reward/judge/graded"] == 16
        assert row["reward/judge/prompt_tokens"] == 1600 and row["reward/judge/cost"] == pytest.approx(16 * 120 / 1e6)
        assert 0 <= row["reward/judge/gated/mean"] <= 1
    for sample in read_jsonl(directory / "samples" / "step_000001.jsonl"):
        parts = sample["reward_parts"]
        expected = 0.1 * min(parts["long"], 3) + parts["judge"] * (parts["long"] >= 4) + parts.get("match", 0)
        assert sample["reward"] == pytest.approx(expected)
        assert parts["judge/gated"] == float(parts["long"] < 4)
    out, err = capsys.readouterr()
    assert KEY not in out + err + caplog.text
    holding = [path for path in directory.rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]
    assert holding == [] and "JUDGE_KEY" in (directory / "config.yaml").read_text()


def test_a_judge_that_breaks_stops_the_run_and_shows_the_samples_without_the_key(job):
    echo = lambda request: Raw(json.dumps(dict(request.headers)).encode(), status=500)
    with service(echo) as (url, _), pytest.raises(RewardError) as stopped:
        rl.run(job(url))
    text = str(stopped.value)
    assert "episodes failed" in text and "HTTP 500" in text and "[hidden]" in text and KEY not in text
    assert "\n  s0/p" in text and "(task train/" in text and "; answer: '" in text
