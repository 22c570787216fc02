"""Datasets come in as they are, and say file, row and column when they cannot."""

import csv
import json
import random

import pytest

from rollick.config.job import DatasetSettings
from rollick.data.datasets import load_rows
from rollick.errors import DataError
from rollick.models.chat import prompt_ids
from tests.models.tiny import tiny_tokenizer, write_jsonl

TOOL_TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}\n{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.function.name }}({{ call.function.arguments | tojson }}){% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def load(path, **settings):
    return load_rows(DatasetSettings(path=str(path), **settings))


def fails(path, **settings):
    with pytest.raises(DataError) as caught:
        rows = load(path, **settings)
        [rows[i] for i in range(len(rows))]
    message = str(caught.value)
    assert "\n" not in message
    return message


def tool(name, parameter):
    schema = {"type": "object", "properties": {parameter: {"type": "string"}}}
    return {"type": "function", "function": {"name": name, "parameters": schema}}


TOOL_ROWS = [
    {"tools": [tool("f", "city")], "messages": [{"role": "user", "content": "weather?"}]},
    {"tools": [tool("g", "count")], "messages": [{"role": "user", "content": "how many?"}]},
]


def assert_tools_stay_apart(rows):
    tokenizer = tiny_tokenizer(chat_template=TOOL_TEMPLATE)
    order = list(range(len(TOOL_ROWS)))
    random.Random(0).shuffle(order)
    for index in order:
        raw = json.loads(json.dumps(TOOL_ROWS[index]))
        ids = prompt_ids(tokenizer, rows[index]["messages"], rows[index]["tools"])
        text = tokenizer.decode(ids)
        assert ids == prompt_ids(tokenizer, raw["messages"], raw["tools"])
        assert ("city" in text) == (index == 0)
        assert ("count" in text) == (index == 1)
        assert "null" not in text
        assert "None" not in text


def test_jsonl_rows_keep_their_own_tool_schemas(tmp_path):
    """Case 12."""
    assert_tools_stay_apart(load(write_jsonl(tmp_path / "tools.jsonl", TOOL_ROWS)))


@pytest.mark.parametrize("kind", ["parquet", "folder"])
def test_columnar_rows_lose_the_nulls_that_storage_filled_in(tmp_path, kind):
    """Case 12, through a struct type that all rows share."""
    from datasets import Dataset

    path = tmp_path / ("tools.parquet" if kind == "parquet" else "saved")
    dataset = Dataset.from_list(TOOL_ROWS)
    if kind == "parquet":
        dataset.to_parquet(path)
    else:
        dataset.save_to_disk(path)
    assert_tools_stay_apart(load(path))


def test_the_same_argument_may_be_text_in_one_row_and_a_number_in_another(tmp_path):
    """Case 13."""
    values = ["2024-05-01", 1714521600]
    calls = [[{"type": "function", "function": {"name": "at", "arguments": {"time": v}}}] for v in values]
    rows = load(write_jsonl(tmp_path / "calls.jsonl", [{"messages": [_user(), _calling(call)]} for call in calls]))
    tokenizer = tiny_tokenizer(chat_template=TOOL_TEMPLATE)
    texts = [tokenizer.decode(prompt_ids(tokenizer, row["messages"])) for row in rows]
    assert 'at({"time": "2024-05-01"})' in texts[0]
    assert 'at({"time": 1714521600})' in texts[1]


def _user():
    return {"role": "user", "content": "go"}


def _calling(calls):
    return {"role": "assistant", "content": "", "tool_calls": calls}


def test_every_kind_of_file_gives_the_same_rows(tmp_path):
    from datasets import Dataset, DatasetDict

    rows = [{"prompt": f"{i}+1=", "answer": str(i + 1)} for i in range(5)]
    write_jsonl(tmp_path / "a.jsonl", rows)
    (tmp_path / "a.json").write_text(json.dumps(rows))
    Dataset.from_list(rows).to_parquet(tmp_path / "a.parquet")
    Dataset.from_list(rows).save_to_disk(tmp_path / "saved")
    DatasetDict({"train": Dataset.from_list(rows), "test": Dataset.from_list(rows[:1])}).save_to_disk(tmp_path / "two")
    with (tmp_path / "a.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, ["prompt", "answer"])
        writer.writeheader()
        writer.writerows(rows)
    for name in ("a.jsonl", "a.json", "a.parquet", "a.csv", "saved"):
        assert list(load(tmp_path / name)) == rows, name
    assert list(load(tmp_path / "two", split="train")) == rows
    assert len(load(tmp_path / "two", split="test")) == 1
    assert "train, test" in fails(tmp_path / "two")
    assert "no split 'dev'" in fails(tmp_path / "two", split="dev")


def test_limit_columns_slices_and_negative_indices(tmp_path):
    path = write_jsonl(tmp_path / "train.jsonl", [{"q": str(i), "answer": i, "id": i} for i in range(4)])
    rows = load(path, limit=3, columns={"prompt": "q", "ground_truth": "answer"})
    assert len(rows) == 3
    assert rows[-1] == rows[2] == {"id": 2, "prompt": "2", "ground_truth": 2}
    assert [row["id"] for row in rows[:2]] == [0, 1]
    assert rows.name == "train"
    with pytest.raises(IndexError):
        rows[3]


def test_lines_are_counted_as_an_editor_counts_them(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_bytes(b'\xef\xbb\xbf{"a": 1}\n\n  \r\n{"a": "\xc3\xbc"}\r\n{"a": 3}')
    rows = load(path)
    assert [row["a"] for row in rows] == [1, "ü", 3]
    assert [rows.where(i) for i in range(3)] == [f"{path}:1", f"{path}:4", f"{path}:5"]


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b'{"a": 1}\n{"a": }\n', ":2: not valid JSON"),
        (b'{"a": 1}\n[1]\n', ":2: a row must be a JSON object"),
        (b'{"a": "\xff"}\n', ":1: not UTF-8 (byte 0xff at position 7)"),
        (b"\n", "has no rows"),
        (b"", "has no rows"),
    ],
)
def test_a_bad_jsonl_file_is_refused_with_its_line(tmp_path, content, part):
    path = tmp_path / "bad.jsonl"
    path.write_bytes(content)
    message = fails(path)
    assert part in message
    assert str(path) in message


@pytest.mark.parametrize(
    ("name", "content", "part"),
    [
        ("a.json", b'{"a": 1}', "needs a JSON list"),
        ("a.json", b"[1]", "row 1: a row must be a JSON object"),
        ("a.json", b"[", "not valid JSON"),
        ("a.csv", b"a,b\n1,2\n3\n", ":3: the line does not have the 2 values"),
        ("a.csv", b"a,b\n1,2,3\n", ":2: the line does not have the 2 values"),
        ("a.csv", b"a,b\n", "has no rows"),
        ("a.parquet", b"not parquet", "not a readable Parquet file"),
        ("a.txt", b"hello", "of no known kind; use .jsonl"),
    ],
)
def test_other_bad_files_are_refused_in_one_sentence(tmp_path, name, content, part):
    (tmp_path / name).write_bytes(content)
    assert part in fails(tmp_path / name)


def test_a_path_that_is_no_dataset_is_named(tmp_path):
    assert "does not exist" in fails(tmp_path / "missing.jsonl")
    assert "does not exist" in fails("missing.jsonl")
    write_jsonl(tmp_path / "train.jsonl", [{"a": 1}])
    assert "name a file in it: train.jsonl" in fails(tmp_path)
    assert "has no splits; remove dataset.split ('test')" in fails(tmp_path / "train.jsonl", split="test")


def test_a_hub_name_without_a_network_says_so(monkeypatch):
    monkeypatch.setattr("datasets.config.HF_HUB_OFFLINE", True)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    message = fails("someone/something")
    assert "dataset 'someone/something' is no file or folder here" in message
    assert "HF_HUB_OFFLINE is set" in message


def test_a_missing_column_names_row_columns_and_the_setting_that_helps(tmp_path):
    path = write_jsonl(
        tmp_path / "train.jsonl", [{"prompt": "a", "answer": "b"}, {"prompt": "a", "ground_truth": None}]
    )
    rows = load(path)
    with pytest.raises(DataError) as caught:
        rows.require(0, "ground_truth")
    assert str(caught.value) == (
        f"{path}:1: no column 'ground_truth' (columns of this row: prompt, answer); "
        "if it has another name, set dataset.columns, for example {ground_truth: answer}"
    )
    with pytest.raises(DataError, match=":2: column 'ground_truth' is null"):
        rows.require(1, "ground_truth")
    assert rows.require(0, "answer") == "b"
    message = fails(path, columns={"ground_truth": "solution"})
    assert "dataset.columns reads 'ground_truth' from the column 'solution'" in message
    assert "prompt, answer" in message
