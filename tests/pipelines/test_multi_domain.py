"""Mathematics, programs, instructions and choices in one job, with a grader that crashes and one that hangs."""

import random
from collections import Counter

import pytest

from rollick.config.rl import RlJob
from rollick.config.sft import SftJob
from rollick.pipelines import rl, sft
from rollick.state.jsonl import read_jsonl
from tests.models.tiny import tiny_model_folder, write_jsonl
from tests.sandbox.running import why_not

DOMAINS = {
    "maths": ("1+{}=?", ["7", "8"], "7", {"kind": "math"}),
    "programs": ("print {}", ["print(7)", "print(8)"], [{"stdin": "", "stdout": "7\n"}], {"kind": "code"}),
    "instructions": ("list {}", ["one two", "one, two"], [{"id": "punctuation:no_comma"}], {"kind": "ifeval"}),
    "choices": ("choose {}", ["B", "C"], "B", {"kind": "choice"}),
}
"""Prompt, the answers that the warm-up teaches in equal parts (the first one is right), ground truth, reward."""
FAULTY = {"maths": "crashes_at_times", "choices": "hangs_at_times"}
STEPS = 10


@pytest.fixture(scope="module")
def warmed(tmp_path_factory):
    """A tiny model that gives the right answer to half of the tasks."""
    folder, draw = tmp_path_factory.mktemp("domains"), random.Random(0)
    rows = [
        {"prompt": prompt.format(i), "completion": answers[draw.random() < 0.5]}
        for prompt, answers, _, _ in DOMAINS.values()
        for i in range(40)
    ]
    job = {
        "pipeline": "sft",
        "name": "warm-up",
        "output_dir": folder,
        "steps": 80,
        "samples_per_update": 32,
        "max_length": 64,
        "model": {"path": str(tiny_model_folder(folder / "model"))},
        "dataset": {"path": str(write_jsonl(folder / "warm_up.jsonl", rows))},
        "trainer": {"learning_rate": 5e-3},
    }
    return sft.run(SftJob.model_validate(job)) / "export"


def environment(folder, name, prompts, faulty=None, held_out=False):
    prompt, _, truth, reward = DOMAINS[name]
    rows = [{"id": f"{name}{i}", "prompt": prompt.format(i), "ground_truth": truth} for i in prompts]
    if reward["kind"] == "code":
        sandbox = {} if why_not() is None else {"sandbox": {"isolation": "none"}}
        reward = {**reward, "extract": "whole", **sandbox}
    rewards = [{**reward, "weight": 2.0}]
    if faulty:
        rewards.append({"kind": "function", "path": f"tests.pipelines.graders:{faulty}", "weight": 0.0, "timeout": 0.3})
    dataset = write_jsonl(folder / f"{name}{prompts.start}.jsonl", rows)
    label = f"held-out-{name}" if held_out else name
    return {"kind": "tasks", "name": label, "dataset": {"path": str(dataset)}, "rewards": rewards}


def test_four_domains_learn_together_beside_graders_that_break(warmed, tmp_path):
    job = {
        "pipeline": "rl",
        "name": "domains",
        "output_dir": tmp_path / "runs",
        "seed": 3,
        "steps": STEPS,
        "model": {"path": str(warmed)},
        "environments": [
            {**environment(tmp_path, name, range(40), FAULTY.get(name)), "weight": 2.0 if name == "maths" else 1.0}
            for name in DOMAINS
        ],
        "rollout": {"prompts_per_step": 10, "max_prompt_tokens": 40, "max_new_tokens": 10},
        "algorithm": {"preset": "grpo", "group_size": 4},
        "trainer": {"learning_rate": 2e-3},
        "logging": {"sample_groups": 10},
        "evaluation": {
            "environments": [environment(tmp_path, name, range(40, 48), held_out=True) for name in DOMAINS],
            "success_reward": 2.0,
            "samples_per_prompt": 4,
            "sampling": {"temperature": 1.0},
        },
    }
    run = rl.run(RlJob.model_validate(job))
    before, *steps = read_jsonl(run / "metrics.jsonl")
    assert [row["step"] for row in steps] == list(range(1, STEPS + 1))
    for name in DOMAINS:
        accuracy = [row[f"evaluation/held-out-{name}/accuracy"] for row in (before, steps[-1])]
        assert accuracy[1] >= 0.8 and accuracy[1] > accuracy[0], (name, accuracy)
        assert steps[-1][f"domain/{name}/reward/mean"] > 1.6
    sampled = Counter(row["domain"] for path in (run / "samples").iterdir() for row in read_jsonl(path))
    assert sampled == {name: STEPS * 4 * (4 if name == "maths" else 2) for name in DOMAINS}
    failures = [row["reason"] for row in read_jsonl(run / "events.jsonl") if row.get("to") == "failed"]
    assert sum(row["rollout/failed"] for row in steps) == len(failures)
    for broken in ("'crashes_at_times': the worker process died", "'hangs_at_times': timeout after 0.3 s"):
        assert any(broken in reason for reason in failures), failures
