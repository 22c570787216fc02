"""A bad call or file ends with exit code 2 and one clear sentence; a traceback means a bug of ours."""

import sys
import types

import pytest

from rollick.cli import main
from rollick.errors import ConfigError, DataError, InterruptedRun, NumericsError, RewardError
from tests.config.jobs import RL_JOB, SFT_JOB, changed, write_job


def outcome(capsys, *arguments):
    """Exit code and standard error of a command."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    return caught.value.code, capsys.readouterr().err


@pytest.fixture
def pipeline(monkeypatch):
    """Puts a function in the place of the RL pipeline."""

    def replace(run):
        module = types.ModuleType("rollick.pipelines.rl")
        module.run = run
        monkeypatch.setitem(sys.modules, "rollick.pipelines.rl", module)

    return replace


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (None, "there is no such file"),
        (b"", "the file is empty"),
        (b"a: [1,\nb: 2\n", "job.yaml:3: not valid YAML"),
        (b"- a list\n", "found a list"),
        (b"just text\n", "found the bare value 'just text'"),
        (b"name: \xff\n", "not UTF-8 text"),
        (b"name: x\n", "pipeline is missing"),
        (b"pipeline: rlx\n", "pipeline: 'rlx'"),
        (b"pipeline: sft\nname: x\nsteps: many\nmodel: {path: m}\ndataset: {path: d}\n", "steps: 'many'"),
    ],
)
def test_bad_job_file(tmp_path, capsys, content, part):
    path = tmp_path / "job.yaml"
    if content is not None:
        path.write_bytes(content)
    code, errors = outcome(capsys, "run", path)
    assert code == 2
    [line] = errors.strip().splitlines()
    assert line.startswith("error: ") and part in line


def test_folder_as_job_file(tmp_path, capsys):
    code, errors = outcome(capsys, "run", tmp_path)
    assert code == 2 and "this is a folder" in errors


def test_all_problems_are_listed(tmp_path, capsys):
    path = write_job(tmp_path, changed(SFT_JOB, steps=0, max_lenght=3, model={"dtype": "bf16"}))
    code, errors = outcome(capsys, "run", path)
    assert code == 2
    assert errors.splitlines()[0] == "error: 3 problems"
    assert all(line.startswith("  - ") for line in errors.splitlines()[1:]) and len(errors.splitlines()) == 4


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["--learning-rate", "1e-5"], "settings are written without dashes, as learning_rate=value"),
        (["--resmue"], "unknown option '--resmue'"),
        (["steps"], "write it as key.sub=value"),
        (["stpes=3"], "did you mean 'steps'?"),
    ],
)
def test_mistakes_on_the_command_line(tmp_path, capsys, arguments, part):
    """Failure case 2: a misspelt option is never ignored."""
    code, errors = outcome(capsys, "run", write_job(tmp_path, SFT_JOB), *arguments)
    assert code == 2 and part in errors


def test_misspelt_option_before_the_file(tmp_path, capsys):
    code, errors = outcome(capsys, "run", "--resmue", write_job(tmp_path, SFT_JOB))
    assert code == 2 and "unknown option '--resmue'" in errors


def test_unknown_command_suggests_one(capsys):
    code, errors = outcome(capsys, "rnu")
    assert code == 2 and "Did you mean 'run'?" in errors


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (ConfigError("steps is odd"), 2, "error: steps is odd"),
        (DataError("rows are missing"), 2, "error: rows are missing"),
        (RewardError("graders failed"), 1, "error: graders failed"),
        (NumericsError("loss is NaN in rows a, b", ["a", "b"]), 1, "error: loss is NaN in rows a, b"),
        (InterruptedRun("stopped after step 3 of 9"), 130, "stopped after step 3 of 9"),
        (KeyboardInterrupt(), 130, "stopped at once; --resume continues from the last checkpoint"),
    ],
)
def test_known_error_is_its_message_and_its_exit_code(tmp_path, capsys, pipeline, error, code, text):
    def run(job, resume):
        raise error

    pipeline(run)
    assert outcome(capsys, "run", write_job(tmp_path, RL_JOB)) == (code, text + "\n")


def test_unexpected_error_keeps_its_traceback(tmp_path, pipeline):
    def run(job, resume):
        raise ZeroDivisionError("a bug")

    pipeline(run)
    with pytest.raises(ZeroDivisionError):
        main(["run", str(write_job(tmp_path, RL_JOB))])


@pytest.mark.parametrize(
    ("arguments", "resume"),
    [([], None), (["--resume"], True), (["--resume-from", "runs/a/checkpoints/step_000002"], "PATH")],
)
def test_run_hands_job_and_resume_to_the_pipeline(tmp_path, pipeline, arguments, resume):
    seen = []
    pipeline(lambda job, resume: seen.append((job, resume)))
    with pytest.raises(SystemExit) as caught:
        main(["run", str(write_job(tmp_path, RL_JOB)), "seed=9", *arguments])
    assert caught.value.code == 0
    [(job, handed)] = seen
    assert job.seed == 9 and job.pipeline == "rl"
    assert handed == resume if resume != "PATH" else str(handed) == arguments[1]


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["init", "rll"], "did you mean 'rl'?"),
        (["init", "rl", "TMP/there.yaml"], "exists and is left as it is"),
        (["fetch", "gpt4"], "there is no model 'gpt4' to fetch"),
        (["export", "TMP/nothing", "TMP/out"], "there is no such folder"),
        (["export", "TMP", "TMP/out"], "there is no whole checkpoint"),
        (["export", "TMP", "TMP/out", "--dtype", "bf16"], "did you mean bfloat16?"),
        (["export", "TMP", "TMP"], "exists and is left as it is"),
        (["checkpoint", "list", "TMP"], "there are no checkpoints here"),
        (["checkpoint", "verify", "TMP"], "there are no checkpoints here"),
        (["chat", "TMP/nothing"], "there is no such folder"),
        (["chat", "TMP", "--prompt", "hi"], "there is no whole checkpoint"),
    ],
)
def test_other_commands_refuse_in_one_sentence(tmp_path, capsys, arguments, part):
    (tmp_path / "there.yaml").write_text("mine")
    code, errors = outcome(capsys, *[argument.replace("TMP", str(tmp_path)) for argument in arguments])
    [line] = errors.strip().splitlines()
    assert code == 2 and line.startswith("error: ") and part in line
    assert (tmp_path / "there.yaml").read_text() == "mine"
