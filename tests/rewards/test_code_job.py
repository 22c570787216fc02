"""A job with `kind: code`: what a policy writes is found, run in a sandbox and graded, and trained on."""

from pathlib import Path

import pytest

from rollick.config.rl import RlJob
from rollick.pipelines import rl
from rollick.state.jsonl import read_jsonl
from tests.models.tiny import tiny_model_folder, write_jsonl
from tests.sandbox.running import why_not


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_a_policy_learns_from_programs_that_run(tmp_path: Path):
    """The `language` is one that a tiny model can learn: its programs succeed when they hold the letter e."""
    model = tiny_model_folder(tmp_path / "model")
    rows = [{"id": f"q{i}", "prompt": f"{i}+{i}=", "ground_truth": [{"stdin": "", "stdout": ""}]} for i in range(6)]
    dataset = {"path": str(write_jsonl(tmp_path / "train.jsonl", rows))}
    language = {"fences": ["text"], "file": "main.txt", "command": ["grep", "-q", "e", "main.txt"]}
    job = RlJob.model_validate(
        {
            "pipeline": "rl",
            "name": "code",
            "output_dir": tmp_path / "runs",
            "seed": 3,
            "steps": 8,
            "model": {"path": str(model)},
            "environments": [
                {
                    "kind": "tasks",
                    "dataset": dataset,
                    "rewards": [{"kind": "code", "extract": "whole", "language": language}],
                }
            ],
            "algorithm": {"preset": "grpo", "group_size": 4},
            "rollout": {"prompts_per_step": 6, "max_prompt_tokens": 40, "max_new_tokens": 6},
            "trainer": {"learning_rate": 1e-2},
        }
    )
    directory = rl.run(job)
    rows = list(read_jsonl(directory / "metrics.jsonl"))
    assert [row["step"] for row in rows] == list(range(1, 9))
    assert rows[-1]["reward/code/mean"] > rows[0]["reward/code/mean"] + 0.2, "the reward must rise"
