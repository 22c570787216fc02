"""The demo's own files: its material, and its two jobs with fewer steps."""

import importlib
import json
import random
import re
import sys
from pathlib import Path

import pytest

from rollick.config.load import load_job

ROOT = Path(__file__).parents[2]
DEMO = ROOT / "examples" / "demo"
METRICS_PAGE = (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def demo():
    """The demo's modules, as its own script imports them."""
    sys.path.insert(0, str(DEMO))
    try:
        yield importlib.import_module("material"), importlib.import_module("run")
    finally:
        sys.path.remove(str(DEMO))
        for name in ("material", "learning_curve", "run"):
            sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def trained(demo, tmp_path_factory):
    """Run directories of a warm-up of 2 updates and 2 steps of GRPO, started as `rollick run` does."""
    material, _ = demo
    folder = tmp_path_factory.mktemp("demo")
    material.write_material(folder)
    data, common = folder / "data", ["steps=2", "trainer.schedule.warmup_updates=1", f"output_dir={folder}"]
    warm_up = [f"model.path={folder / 'model'}", f"dataset.path={data / 'homework.jsonl'}", "dataset.limit=64"]
    sft = run_job(DEMO / "warm_up.yaml", common + warm_up)
    sizes = ["rollout.prompts_per_step=4", "trainer.samples_per_update=16"]
    held_out = "evaluation.environments.0.dataset"
    grpo = [
        f"model.path={sft / 'export'}",
        f"environments.0.dataset.path={data / 'train.jsonl'}",
        f"{held_out}.path={data / 'test.jsonl'}",
        f"{held_out}.limit=20",
    ]
    return sft, run_job(DEMO / "grpo.yaml", common + sizes + grpo)


def run_job(job_file, overrides):
    job, _ = load_job(job_file, overrides)
    return importlib.import_module(f"rollick.pipelines.{job.pipeline}").run(job)


def rows(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_no_sum_is_both_trained_and_evaluated(demo, tmp_path):
    material, _ = demo
    material.write_data(tmp_path, random.Random(0))
    asked = {
        name: {row["prompt"] for row in rows(tmp_path / f"{name}.jsonl")} for name in ("homework", "train", "test")
    }
    assert len(asked["test"]) == material.HELD_OUT
    assert not asked["test"] & (asked["train"] | asked["homework"])


def test_the_ground_truth_is_the_sum_and_most_homework_is_wrong(demo, tmp_path):
    material, _ = demo
    material.write_data(tmp_path, random.Random(0))
    for row in rows(tmp_path / "test.jsonl") + rows(tmp_path / "train.jsonl"):
        assert int(row["ground_truth"]) == sum(map(int, row["prompt"].rstrip("=").split("+")))
    homework = rows(tmp_path / "homework.jsonl")
    wrong = [int(row["completion"]) - sum(map(int, row["prompt"].rstrip("=").split("+"))) for row in homework]
    assert set(wrong) == {0, 10}
    assert 0.22 < wrong.count(0) / len(wrong) < 0.28


def test_both_jobs_run_and_the_report_reads_their_directories(demo, trained):
    _, script = demo
    sft, grpo = trained
    assert (sft / "export" / "model.safetensors").exists()
    metrics = rows(grpo / "metrics.jsonl")
    assert [row["step"] for row in metrics] == [0, 1, 2]
    script.draw_curve(grpo, grpo / "learning_curve.png", title="two steps")
    assert (grpo / "learning_curve.png").read_bytes().startswith(b"\x89PNG")
    report = script.summary(grpo)
    assert "held-out accuracy:" in report
    assert len(report.splitlines()) >= 3


def test_every_metric_of_the_runs_is_in_the_glossary(trained):
    names = re.findall(r"`([a-z_]+(?:[/@][\w<>/@]+)?)`", METRICS_PAGE)
    known = [re.compile(re.sub(r"<\w+>", r"[\\w./@]+", name)) for name in names]
    written = {name for run in trained for row in rows(run / "metrics.jsonl") for name in row} - {"step", "time"}
    assert sorted(name for name in written if not any(pattern.fullmatch(name) for pattern in known)) == []


@pytest.mark.slow
def test_the_demo_learns(demo, monkeypatch, capfd):
    _, script = demo
    monkeypatch.chdir(ROOT)
    script.main()
    before, after = map(float, re.search(r"accuracy: ([\d.]+) before, ([\d.]+) after", capfd.readouterr().out).groups())
    assert before < 0.4
    assert after > 0.9
