"""The commands, as a user types them."""

import io
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from rollick.cli import main
from rollick.config.load import load_job
from rollick.state.jsonl import read_jsonl
from tests.models.tiny import tiny_model_folder, write_jsonl

ROLLICK = [sys.executable, "-c", "from rollick.cli import main; main()"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(__file__).parents[1])}


def command(*arguments, code=0):
    """Standard output of a command that must exit with `code`."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    assert (caught.value.code or 0) == code


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of a tiny model with two checkpoints, made by the command line."""
    folder = tmp_path_factory.mktemp("cli")
    model = tiny_model_folder(folder / "model")
    conversation = [{"role": "user", "content": "1+2="}, {"role": "assistant", "content": "3"}]
    data = write_jsonl(folder / "train.jsonl", [{"messages": conversation}] * 8)
    job = {
        "pipeline": "sft",
        "name": "tiny",
        "output_dir": str(folder / "runs"),
        "steps": 40,
        "samples_per_update": 4,
        "max_length": 64,
        "model": {"path": str(model)},
        "dataset": {"path": str(data)},
        "trainer": {"learning_rate": 1e-2},
        "checkpoint": {"every": 20},
    }
    (folder / "job.yaml").write_text(yaml.safe_dump(job))
    command("run", folder / "job.yaml")
    return folder


def test_help_and_version_answer_within_a_second():
    """In CPU time, which other tests on the same machine do not stretch."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = subprocess.run([*ROLLICK, "--help"], capture_output=True, text=True, timeout=60, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 1.0
    assert all(name in result.stdout for name in ("run", "init", "export", "chat", "fetch", "checkpoint"))
    result = subprocess.run([*ROLLICK, "--version"], capture_output=True, text=True, timeout=60, check=True)
    assert result.stdout == "rollick 0.1.0\n"


@pytest.mark.parametrize("pipeline", ["rl", "sft"])
def test_init_writes_a_file_that_loads(tmp_path, capsys, monkeypatch, pipeline):
    monkeypatch.chdir(tmp_path)
    command("init", pipeline)
    assert f"rollick run {pipeline}.yaml" in capsys.readouterr().out
    assert load_job(tmp_path / f"{pipeline}.yaml")[0].pipeline == pipeline
    command("init", pipeline, "deep/er.yaml")
    assert (tmp_path / "deep" / "er.yaml").is_file()


def test_run_leaves_a_run_directory(trained):
    run = trained / "runs" / "tiny"
    assert [row["step"] for row in read_jsonl(run / "metrics.jsonl")] == list(range(1, 41))
    assert load_job(run / "config.yaml")[0] == load_job(trained / "job.yaml")[0]


def test_second_run_is_refused_and_resume_after_the_end_adds_nothing(trained, capsys):
    command("run", trained / "job.yaml", code=2)
    assert "continue it with --resume" in capsys.readouterr().err
    command("run", trained / "job.yaml", "--resume")
    assert [row["step"] for row in read_jsonl(trained / "runs" / "tiny" / "metrics.jsonl")] == list(range(1, 41))


def test_checkpoint_list_and_verify(trained, capsys):
    run = trained / "runs" / "tiny"
    command("checkpoint", "list", run)
    listed = capsys.readouterr().out
    assert "20" in listed and "40" in listed and listed.count("whole") == 2
    command("checkpoint", "verify", run)
    assert capsys.readouterr().out.count("verified") == 2


def test_verify_finds_a_flipped_bit(trained, tmp_path, capsys):
    import shutil

    shutil.copytree(trained / "runs" / "tiny" / "checkpoints", tmp_path / "checkpoints")
    victim = max((tmp_path / "checkpoints" / "step_000020").iterdir(), key=lambda path: path.stat().st_size)
    content = bytearray(victim.read_bytes())
    content[len(content) // 2] ^= 1
    victim.write_bytes(content)
    command("checkpoint", "list", tmp_path)
    command("checkpoint", "verify", tmp_path, code=2)
    assert "1 of 2 checkpoints are damaged (step 20: " in capsys.readouterr().err


def test_export_equals_the_models_weights(trained, tmp_path, capsys):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    run = trained / "runs" / "tiny"
    command("export", run, tmp_path / "hf")
    exported = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").state_dict()
    final = AutoModelForCausalLM.from_pretrained(run / "export").state_dict()
    assert exported.keys() == final.keys()
    assert all(torch.equal(exported[name], final[name]) for name in final)
    assert AutoTokenizer.from_pretrained(tmp_path / "hf").chat_template

    command("export", run / "checkpoints" / "step_000020", tmp_path / "half", "--dtype", "bfloat16")
    half = AutoModelForCausalLM.from_pretrained(tmp_path / "half")
    assert half.dtype == torch.bfloat16
    assert any(not torch.equal(half.state_dict()[name].float(), final[name]) for name in final)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["half", "hf"]


def test_export_refuses_a_damaged_checkpoint_that_was_named(trained, tmp_path, capsys):
    import shutil

    run = tmp_path / "run"
    shutil.copytree(trained / "runs" / "tiny", run)
    victim = run / "checkpoints" / "step_000040"
    next(victim.glob("*.distcp")).write_bytes(b"")
    command("export", victim, tmp_path / "out", code=2)
    assert "is damaged" in capsys.readouterr().err and not (tmp_path / "out").exists()
    command("export", run, tmp_path / "out")
    assert (tmp_path / "out" / "config.json").is_file()


def test_chat_answers_from_a_run_and_from_a_folder_alike(trained, capsys):
    run = trained / "runs" / "tiny"
    command("chat", run, "--prompt", "1+2=", "--temperature", "0", "--max-new-tokens", "8")
    from_run = capsys.readouterr().out
    command("chat", run / "export", "--prompt", "1+2=", "--temperature", "0", "--max-new-tokens", "8")
    assert capsys.readouterr().out == from_run
    assert from_run.strip() == "3"


@pytest.mark.parametrize("end", ["\n", ""], ids=["empty line", "Ctrl-D"])
def test_chat_converses_until_the_user_ends_it(trained, monkeypatch, capsys, end):
    monkeypatch.setattr(sys, "stdin", io.StringIO("1+2=\n/reset\n1+2=\n" + end))
    command("chat", trained / "runs" / "tiny" / "export", "--max-new-tokens", "8", "--temperature", "0")
    assert capsys.readouterr().out.count("model 3") == 2


def test_chat_continues_raw_text_without_a_chat_template(tmp_path, capsys):
    folder = tiny_model_folder(tmp_path / "raw", chat_template=None)
    command("chat", folder, "--prompt", "one two", "--max-new-tokens", "3")
    first = capsys.readouterr().out
    command("chat", folder, "--prompt", "one two", "--max-new-tokens", "3")
    assert capsys.readouterr().out == first != ""


def test_ctrl_c_ends_a_run_with_a_checkpoint_and_resume_goes_on(trained, tmp_path):
    overrides = [f"output_dir={tmp_path}", "steps=100000", "checkpoint.every=null"]
    process = subprocess.Popen(
        [*ROLLICK, "run", str(trained / "job.yaml"), *overrides],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=ENVIRONMENT,
    )
    try:
        while not process.stdout.readline().startswith("step 3/"):
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 130 and "stopped after step" in errors and "Traceback" not in errors
    steps = [row["step"] for row in read_jsonl(tmp_path / "tiny" / "metrics.jsonl")]
    assert steps == list(range(1, len(steps) + 1)) and len(steps) >= 3
    command("run", trained / "job.yaml", *overrides[:1], f"steps={steps[-1] + 2}", "--resume")
    resumed = [row["step"] for row in read_jsonl(tmp_path / "tiny" / "metrics.jsonl")]
    assert resumed == list(range(1, steps[-1] + 3))
