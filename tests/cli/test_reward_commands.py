"""`rollick reward test | score | compare`, as a user types them."""

import json
import re

import pytest
import yaml

from rollick.cli import main
from rollick.errors import ConfigError
from rollick.rewards.offline import load_rewards
from tests.models.tiny import tiny_model_folder, write_jsonl

MATCH = "[{kind: match}]"
ROWS = [
    {"prompt": "1+1=", "answer": "2", "ground_truth": "2", "expected": 1},
    {"prompt": "1+2=", "answer": "4", "ground_truth": "3", "expected": 0.0},
    {"prompt": "1+3=", "answer": "[b]4[/b]", "ground_truth": "4", "expected": True},
]


def run(capsys, *arguments, code=0):
    """Standard output and error of a command that must exit with `code`."""
    with pytest.raises(SystemExit) as caught:
        main([str(argument) for argument in arguments])
    out, err = capsys.readouterr()
    assert (caught.value.code or 0) == code, out + err
    return out, err


@pytest.fixture
def file(tmp_path):
    return write_jsonl(tmp_path / "answers.jsonl", ROWS)


def test_rows_that_differ_are_shown_and_fail(capsys, file):
    out, _ = run(capsys, "reward", "test", file, "--reward", MATCH, code=1)
    assert "2 of 3 rows as expected, 1 not" in out
    assert "answers.jsonl:3" in out and "[b]4[/b]" in out and "answers.jsonl:1" not in out


def test_rows_that_all_agree_succeed(capsys, tmp_path):
    out, _ = run(capsys, "reward", "test", write_jsonl(tmp_path / "a.jsonl", ROWS[:2]), "--reward", MATCH)
    assert "2 of 2 rows as expected, 0 not" in out


def test_expected_may_name_parts_failures_and_abstentions(capsys, tmp_path):
    rows = [
        {"answer": "7", "ground_truth": "7", "expected": {"match": 1, "length": 1}},
        {"answer": "7", "ground_truth": "7", "expected": {"match": 1, "length": 2}},
        {"answer": "7", "ground_truth": None, "expected": "abstain"},
        {"answer": "7", "ground_truth": "7", "expected": "failed"},
    ]
    rewards = "[{kind: match}, {kind: function, path: 'tests.rewards.graders:length', isolated: false}]"
    out, _ = run(capsys, "reward", "test", write_jsonl(tmp_path / "a.jsonl", rows[:2]), "--reward", rewards, code=1)
    assert "1 of 2 rows" in out and "match 1, length 2" in out
    failing = "[{kind: function, path: 'tests.rewards.graders:raises', isolated: false}]"
    run(capsys, "reward", "test", write_jsonl(tmp_path / "b.jsonl", rows[3:]), "--reward", failing)
    run(capsys, "reward", "test", write_jsonl(tmp_path / "c.jsonl", rows[2:3]), "--reward", MATCH)


def test_graders_with_processes_are_used_as_in_a_run(capsys, tmp_path):
    rows = [
        {"prompt": "½?", "answer": rf"\boxed{{\frac{{{i}}}{{2}}}}", "ground_truth": f"{i}/2", "expected": 1}
        for i in range(5)
    ]
    out, _ = run(capsys, "reward", "test", write_jsonl(tmp_path / "a.jsonl", rows), "--reward", "math")
    assert "5 of 5 rows as expected" in out


def test_every_row_is_written_with_its_reward(capsys, file, tmp_path):
    out, _ = run(capsys, "reward", "score", file, "--reward", MATCH, "--out", tmp_path / "out.jsonl")
    assert "3 rows with a reward, mean reward 0.3333, 0 failed" in out
    written = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in written] == [1.0, 0.0, 0.0]
    assert [{key: row[key] for key in ROWS[0]} for row in written] == ROWS
    assert written[0]["reward_parts"] == {"match": 1.0} and not list(tmp_path.glob("*.partial"))


def test_a_failure_is_null_with_its_reason_and_exit_code_1(capsys, tmp_path):
    file = write_jsonl(tmp_path / "a.jsonl", [{"answer": "score"}, {"answer": "failed"}, {"answer": "abstain"}])
    reward = "[{kind: function, path: 'tests.rewards.graders:verdicts', isolated: false}]"
    out, err = run(capsys, "reward", "score", file, "--reward", reward, "--out", tmp_path / "out.jsonl", code=1)
    assert "1 rows with a reward" in out and "a.jsonl:2: failed: because" in err
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [row["reward"] for row in rows] == [0.25, None, None]
    assert [row["reward_reason"] for row in rows] == ["", "failed: because", "abstain: because"]


def test_sample_files_of_a_run_can_be_graded_again(capsys, tmp_path):
    sample = {"id": "s0/p0/m0", "prompt": "user: 1+1=", "response": "2", "ground_truth": "2", "status": "truncated"}
    file = write_jsonl(tmp_path / "step_000001.jsonl", [sample])
    out, _ = run(capsys, "reward", "score", file, "--reward", MATCH, "--out", tmp_path / "o.jsonl")
    assert "mean reward 1" in out


def test_two_graders_are_compared_row_by_row(capsys, file, tmp_path):
    lenient = tmp_path / "lenient.yaml"
    lenient.write_text("rewards:\n  - {kind: match, pattern: '([0-9]+)'}\n")
    out, _ = run(capsys, "reward", "compare", MATCH, lenient, file)
    assert "2 equal, 0 A pays more, 1 B pays more, 0 only one gives a score" in out
    assert "answers.jsonl:3" in out and "answers.jsonl:2" not in out


def test_the_rewards_of_a_job_are_chosen_by_the_rows_domain(capsys, tmp_path):
    environments = [
        {"kind": "tasks", "name": name, "dataset": {"path": "x.jsonl"}, "rewards": rewards}
        for name, rewards in {"exact": [{"kind": "match"}], "loose": [{"kind": "match", "ignore_case": True}]}.items()
    ]
    job = {"pipeline": "rl", "name": "j", "steps": 1, "model": {"path": "m"}, "rollout": {"prompts_per_step": 1}}
    (tmp_path / "job.yaml").write_text(yaml.safe_dump(job | {"environments": environments}))
    rows = [{"answer": "X", "ground_truth": "x", "domain": d, "expected": e} for d, e in (("exact", 0), ("loose", 1))]
    run(capsys, "reward", "test", write_jsonl(tmp_path / "a.jsonl", rows), "--reward", tmp_path / "job.yaml")
    nowhere = write_jsonl(tmp_path / "b.jsonl", [rows[0] | {"domain": "none"}])
    _, err = run(capsys, "reward", "test", nowhere, "--reward", tmp_path / "job.yaml", code=2)
    assert "b.jsonl:1: the column domain is 'none'; it must name one of exact, loose" in err


def test_rewards_that_count_tokens_ask_whose(capsys, tmp_path):
    file = write_jsonl(tmp_path / "a.jsonl", [{"answer": "one two three", "expected": -1}])
    reward = "[{kind: overlong, max_length: 3, buffer: 1}]"
    _, err = run(capsys, "reward", "test", file, "--reward", reward, code=2)
    assert "reward 'overlong' counts tokens; say whose with --tokenizer FOLDER" in err
    run(capsys, "reward", "test", file, "--reward", reward, "--tokenizer", tiny_model_folder(tmp_path / "model"))


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([{"prompt": "x", "expected": 1}], "no column 'answer' or 'response'"),
        ([{"answer": 7, "expected": 1}], "the answer is 7, which is no text"),
        ([{"answer": "x", "ground_truth": "x"}], "the column expected is None"),
        (
            [{"answer": "x", "ground_truth": "x", "expected": {"math": 1}}],
            "expected names 'math'; these rewards give match",
        ),
    ],
)
def test_rows_that_cannot_be_read_are_named(capsys, tmp_path, rows, words):
    _, err = run(capsys, "reward", "test", write_jsonl(tmp_path / "a.jsonl", rows), "--reward", MATCH, code=2)
    assert words in err


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("[{kind: mth}]", "did you mean 'match'|did you mean 'math'"),
        ("[{kind: match, ignore_cse: true}]", "did you mean 'rewards.0.ignore_case'"),
        ("[{kind: match", "not valid YAML"),
        ("[]", "rewards"),
        ("nowhere.yaml", "there is no such file"),
        ("[{kind: match, gate: format}]", "no reward beside it is called 'format'"),
    ],
)
def test_rewards_that_make_no_sense_are_refused(written, words):
    with pytest.raises(ConfigError) as refused:
        load_rewards(written)
    assert re.search(words, str(refused.value))


def test_one_reward_may_be_written_short():
    assert [r.kind for r in load_rewards("match")["answers"]] == ["match"]
    assert [r.kind for r in load_rewards("{kind: match, weight: 2}")["answers"]] == ["match"]


def test_a_file_that_is_missing_is_one_sentence(capsys):
    _, err = run(capsys, "reward", "test", "nowhere.jsonl", "--reward", MATCH, code=2)
    assert err.startswith("error: dataset file 'nowhere.jsonl' does not exist")
