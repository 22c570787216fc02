"""A run directory holds everything a run leaves behind, and loses nothing to a second start."""

import json
import subprocess
import sys

import pytest

from rollick.errors import ConfigError
from rollick.state.jsonl import last_row, read_jsonl
from rollick.state.metrics import MetricsLog
from rollick.state.run_directory import RunDirectory
from rollick.state.samples import SampleRecord

CONFIG = "name: demo\ntrainer: {learning_rate: 1.0e-06}\nitems: [1, 2]\n"


def create(tmp_path, config=CONFIG, resume=False):
    return RunDirectory.create(tmp_path, "demo", config, resume)


def run_steps(tmp_path, first, last, resume):
    with create(tmp_path, resume=resume) as run:
        if resume:
            run.rewind(first - 1)
        metrics = MetricsLog(run.metrics)
        for step in range(first, last + 1):
            run.events.write({"step": step - 1, "episode": f"s{step - 1}"})
            run.write_samples(step, [record("g0", "0")], max_groups=1)
            metrics.add({"loss": float(step)})
            metrics.end_step(step)


def record(group, member, **fields):
    row = {
        "task_id": "train/17",
        "domain": "arithmetic",
        "prompt": "3+4=",
        "response": "7",
        "token_ids": [5, 6, 7, 9, 2],
        "loss_mask": [False, False, False, True, True],
        "behaviour_logprobs": [0, 0, 0, -0.7, -0.1],
        "versions": [-1, -1, -1, 4, 4],
    }
    return SampleRecord(id=f"{group}/{member}", group_id=group, **{**row, **fields})


def test_new_run_writes_config_and_versions(tmp_path):
    with create(tmp_path) as run:
        assert (run.path / "config.yaml").read_text() == CONFIG
        versions = json.loads((run.path / "versions.json").read_text())
        assert versions["python"] == sys.version.split()[0]
        assert versions["torch"] and versions["transformers"] and versions["cpus"] >= 1
        assert run.samples.is_dir() and run.checkpoints.is_dir()


def test_second_start_does_not_touch_a_run(tmp_path):
    run_steps(tmp_path, 1, 3, resume=False)
    with pytest.raises(ConfigError, match=r"a run of 3 steps already; continue it with --resume, choose another"):
        create(tmp_path)
    assert last_row(tmp_path / "demo" / "metrics.jsonl")["step"] == 3


def test_run_that_never_finished_a_step_may_start_again(tmp_path):
    with create(tmp_path) as run:
        run.metrics.write({"step": 0, "eval": 0.1})
        run.events.write({"step": 0})
    with create(tmp_path) as run:
        assert list(read_jsonl(run.metrics.path)) == [] == list(read_jsonl(run.events.path))


def test_folder_of_something_else_is_refused(tmp_path):
    (tmp_path / "demo").mkdir()
    (tmp_path / "demo" / "thesis.txt").write_text("years of work")
    with pytest.raises(ConfigError, match="not empty and holds no run"):
        create(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="this is a file"):
        RunDirectory.create(tmp_path, "file", CONFIG, resume=False)
    with pytest.raises(ConfigError, match=r"cannot be made \(Not a directory\); change output_dir"):
        RunDirectory.create(tmp_path / "file", "demo", CONFIG, resume=False)


def test_two_processes_cannot_write_one_run(tmp_path):
    code = (
        "import sys; from pathlib import Path; from rollick.state.run_directory import RunDirectory\n"
        "RunDirectory.create(Path(sys.argv[1]), 'demo', 'a: 1', resume=True)"
    )
    with create(tmp_path):
        second = subprocess.run(
            [sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
        )
    assert second.returncode == 1 and "another process is writing this run" in second.stderr
    create(tmp_path, resume=True).close()


def test_resume_doubles_and_misses_no_label(tmp_path):
    """Failure case 107: saved after step 50, killed after 53; the first new label is 51."""
    run_steps(tmp_path, 1, 53, resume=False)
    with (tmp_path / "demo" / "metrics.jsonl").open("a") as file:
        file.write('{"step": 54, "lo')
    run_steps(tmp_path, 51, 60, resume=True)
    run = tmp_path / "demo"
    assert [row["step"] for row in read_jsonl(run / "metrics.jsonl")] == list(range(1, 61))
    assert [row["step"] for row in read_jsonl(run / "events.jsonl")] == list(range(60))
    assert len(list((run / "samples").iterdir())) == 60


def test_resume_without_a_checkpoint_says_that_it_starts_over(tmp_path, caplog):
    run_steps(tmp_path, 1, 3, resume=False)
    with create(tmp_path, resume=True) as run:
        assert "no checkpoint here; starting at step 0" in caplog.text
        run.rewind(-1)
        assert "3 lines of metrics after step 0 were dropped" in caplog.text


def test_rewind_removes_samples_of_lost_steps(tmp_path):
    run_steps(tmp_path, 1, 5, resume=False)
    with create(tmp_path, resume=True) as run:
        run.rewind(3)
        assert sorted(path.name for path in run.samples.iterdir()) == [f"step_00000{n}.jsonl" for n in (1, 2, 3)]


def test_resume_reports_changed_settings(tmp_path, caplog):
    run_steps(tmp_path, 1, 2, resume=False)
    create(tmp_path, CONFIG.replace("1.0e-06", "2.0e-06").replace(", 2]", "]"), resume=True).close()
    assert "trainer.learning_rate = 2e-06 (was 1e-06)" in caplog.text
    starts = list(read_jsonl(tmp_path / "demo" / "starts.jsonl"))
    assert [start["step"] for start in starts] == [0, 2]
    assert starts[1]["changes"] == {"items.1": [2, None], "trainer.learning_rate": [1e-06, 2e-06]}


def test_samples_are_whole_groups_with_exact_numbers(tmp_path):
    logprob = 0.1 + 2**-20
    with create(tmp_path) as run:
        records = [
            record("g0", "0", behaviour_logprobs=[0, 0, 0, -logprob, float("nan")], reward=1.0),
            record("g1", "0"),
            record("g0", "1", advantages=[0, 0, 0, 1.5, 1.5], reward_parts={"math": 0.0}),
            record("g2", "0"),
        ]
        path = run.write_samples(10, records, max_groups=2)
    assert path.name == "step_000010.jsonl"
    rows = list(read_jsonl(path))
    assert [row["id"] for row in rows] == ["g0/0", "g1/0", "g0/1"]
    assert rows[0]["behaviour_logprobs"] == [0, 0, 0, pytest.approx(-logprob, rel=1e-8), None]
    assert rows[0]["loss_mask"] == [0, 0, 0, 1, 1] and rows[0]["step"] == 10
    assert rows[2]["advantages"] == [0, 0, 0, 1.5, 1.5] and rows[2]["reward_parts"] == {"math": 0.0}


def test_any_ground_truth_can_be_written(tmp_path):
    with create(tmp_path) as run:
        path = run.write_samples(1, [record("g0", "0", ground_truth={"set": {1}})], max_groups=1)
    assert next(read_jsonl(path))["ground_truth"] == {"set": "{1}"}
