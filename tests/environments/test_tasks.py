import pytest
from pydantic import ValidationError

from rollick.data.records import Task
from rollick.environments.one_turn import OneTurn
from rollick.environments.tasks import Options
from rollick.errors import DataError
from tests.environments.contract import check_environment
from tests.models.tiny import write_jsonl


def options(path, **more):
    return Options(kind="tasks", dataset={"path": str(path)}, **more)


def load(tmp_path, *rows, **more):
    return options(write_jsonl(tmp_path / "train.jsonl", list(rows)), **more).tasks()


def test_the_one_turn_environment_keeps_the_contract(tmp_path):
    """Case 11."""
    path = write_jsonl(tmp_path / "train.jsonl", [{"prompt": f"{i}+1=", "ground_truth": str(i + 1)} for i in range(7)])
    check_environment(options(path))


def test_a_text_prompt_becomes_a_user_message_and_other_columns_stay_with_the_task(tmp_path):
    source = load(tmp_path, {"prompt": "3+4=", "ground_truth": "7", "level": 2, "id": "a"}, {"prompt": "1+1="})
    assert source[0] == Task(
        "train/a", "tasks", [{"role": "user", "content": "3+4="}], ground_truth="7", extra={"level": 2}
    )
    assert (source[1].id, source[1].ground_truth, source[1].extra) == ("train/1", None, {})


def test_raw_text_prompts_stay_text(tmp_path):
    assert load(tmp_path, {"prompt": "3+4="}, prompt_is="text")[0].prompt == "3+4="


@pytest.mark.parametrize("column", ["messages", "prompt"])
def test_messages_are_taken_as_they_are(tmp_path, column):
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3+4="}]
    assert load(tmp_path, {column: messages}, system_prompt="unused")[0].prompt == messages


def test_a_system_prompt_goes_before_rows_without_one(tmp_path):
    prompt = load(tmp_path, {"prompt": "3+4="}, system_prompt="Be brief.")[0].prompt
    assert prompt == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "3+4="}]


def test_the_domain_is_the_name_when_there_is_one(tmp_path):
    source = load(tmp_path, {"prompt": "x"}, name="sums")
    assert (source.name, source[0].domain) == ("sums", "sums")


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "3+4="}, r"train.jsonl:1: no column 'prompt' or 'messages' \(columns of this row: question\)"),
        ({"prompt": "a", "messages": [{"role": "user", "content": "a"}]}, "both 'prompt' and 'messages'"),
        ({"prompt": ""}, "train.jsonl:1: 'prompt' is empty"),
        ({"prompt": []}, "must be text or a list of chat messages"),
        ({"prompt": 3}, "must be text or a list of chat messages, not 3"),
        ({"messages": [{"content": "a"}]}, "a message looks like"),
        (
            {"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]},
            "ends with the assistant's answer",
        ),
    ],
)
def test_a_row_without_a_usable_prompt_is_named(tmp_path, row, message):
    with pytest.raises(DataError, match=message):
        load(tmp_path, row)[0]


def test_a_system_prompt_for_raw_text_is_refused(tmp_path):
    with pytest.raises(ValidationError, match="system_prompt needs chat messages"):
        options(tmp_path / "x.jsonl", prompt_is="text", system_prompt="Be brief.")


def test_a_step_without_an_episode_is_an_error():
    environment = OneTurn()
    with pytest.raises(RuntimeError, match="before reset"):
        environment.step("7")
    environment.reset(Task("a", "a", "1+1="), seed=0)
    assert environment.step("2").terminated
    with pytest.raises(RuntimeError, match="after the end"):
        environment.step("2")
