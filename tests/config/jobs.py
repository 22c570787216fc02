"""Small job files for the settings tests; plug-ins of our own keep model code out."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from rollick.config.load import load_job
from rollick.errors import ConfigError

RL_JOB: dict[str, Any] = {
    "pipeline": "rl",
    "name": "tiny",
    "steps": 4,
    "model": {"path": "no-such-model"},
    "environments": [
        {
            "kind": "tests.config.fake_environment",
            "dataset": {"path": "train.jsonl"},
            "rewards": [{"kind": "tests.config.fake_reward"}],
        }
    ],
    "engine": {"kind": "tests.config.fake_engine"},
    "rollout": {"prompts_per_step": 4},
}
SFT_JOB: dict[str, Any] = {
    "pipeline": "sft",
    "name": "tiny",
    "steps": 4,
    "model": {"path": "no-such-model"},
    "dataset": {"path": "train.jsonl"},
}


def changed(job: dict[str, Any], **sections: Any) -> dict[str, Any]:
    """A copy with sections merged in: changed(RL_JOB, rollout={"top_p": 0.9}); None removes a key."""
    result = copy.deepcopy(job)
    for key, value in sections.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key].update(value)
        else:
            result[key] = value
    return result


def write_job(folder: Path, job: dict[str, Any] | str, name: str = "job.yaml") -> Path:
    path = folder / name
    path.write_text(job if isinstance(job, str) else yaml.safe_dump(job, sort_keys=False), encoding="utf-8")
    return path


def problems_of(path: Path, *overrides: str) -> list[str]:
    """The violations that loading reports; an empty list when the job is good."""
    try:
        load_job(path, overrides)
    except ConfigError as error:
        return error.problems
    return []
