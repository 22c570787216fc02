"""Every job file that is shipped loads, and its data holds what it says."""

import json
from pathlib import Path

import pytest

from rollick.config.load import load_job

EXAMPLES = Path(__file__).parents[2] / "examples"
JOBS = sorted(EXAMPLES.rglob("*.yaml"))


def prompts_and_truths(name):
    for line in (EXAMPLES / "data" / name).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        yield row["prompt"] if "prompt" in row else row["messages"][-1]["content"], row["ground_truth"]


@pytest.mark.parametrize("path", JOBS, ids=lambda path: str(path.relative_to(EXAMPLES)))
def test_job_files_load(path):
    job, _ = load_job(path, [])
    assert job.name


def test_the_file_of_sums_is_right_and_split():
    train, test = (list(prompts_and_truths(f"sums_{name}.jsonl")) for name in ("train", "test"))
    for question, truth in train + test:
        operands = [int(word) for word in question.replace("?", " ").split() if word.isdigit()]
        assert sum(operands) == int(truth)
    assert len({q for q, _ in train + test}) == len(train) + len(test)
    asked = [{tuple(w for w in q.replace("?", " ").split() if w.isdigit()) for q, _ in rows} for rows in (train, test)]
    assert not asked[0] & asked[1]


def test_a_row_may_have_messages_or_a_prompt(monkeypatch):
    monkeypatch.chdir(EXAMPLES.parent)
    job, _ = load_job(EXAMPLES / "rlvr_jsonl.yaml", [])
    tasks = job.environments[0].tasks()
    assert {tasks[index].prompt[0]["role"] for index in range(len(tasks))} == {"user"}
    assert tasks[0].ground_truth.isdigit()
