"""JSONL files stay readable whatever moment the process dies at."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.errors import DataError, RollickError
from rollick.state.jsonl import JsonlFile, last_row, read_jsonl


def test_rows_are_on_disk_before_closing(tmp_path):
    file = JsonlFile(tmp_path / "deep" / "a.jsonl")
    file.write({"b": "ü", "a": 1})
    assert list(read_jsonl(file.path)) == [{"b": "ü", "a": 1}]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_values_that_are_no_json_are_refused(tmp_path, value):
    with JsonlFile(tmp_path / "a.jsonl") as file, pytest.raises(ValueError):
        file.write({"a": value})


@given(cut=st.integers(0, 60))
def test_half_written_last_line_is_cut_off_on_opening(tmp_path_factory, cut):
    """A kill in mid-write: whatever part of the file is there, whole rows stay and the next row is readable."""
    path = tmp_path_factory.mktemp("jsonl") / "a.jsonl"
    whole = "".join(json.dumps({"step": step, "text": "é"}) + "\n" for step in range(3)).encode()
    path.write_bytes(whole[:cut])
    with JsonlFile(path) as file:
        file.write({"step": 99})
    rows = whole[:cut].count(b"\n")
    assert [row["step"] for row in read_jsonl(path)] == [*range(rows), 99]


def test_reading_leaves_out_a_line_that_is_being_written(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text('{"step": 1}\n{"step": 2')
    assert list(read_jsonl(path)) == [{"step": 1}]
    assert last_row(path) == {"step": 1}
    assert last_row(tmp_path / "nothing.jsonl") is None


def test_keep_drops_rows_and_goes_on_appending(tmp_path):
    with JsonlFile(tmp_path / "a.jsonl") as file:
        for step in range(5):
            file.write({"step": step})
        assert file.keep(lambda row: row["step"] <= 2) == 2
        assert file.keep(lambda row: row["step"] <= 2) == 0
        file.write({"step": 3})
        assert [row["step"] for row in read_jsonl(file.path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("damage", [b'{"step": 2,\n', b"\xff\xfe\n", b"[1]\n"])
def test_damaged_line_in_the_middle_is_named(tmp_path, damage):
    path = tmp_path / "a.jsonl"
    path.write_bytes(b'{"step": 1}\n' + damage + b'{"step": 3}\n')
    with pytest.raises(DataError, match=r"a\.jsonl:2: the line"):
        list(read_jsonl(path))


def test_full_disk_is_one_sentence(tmp_path):
    file = JsonlFile(tmp_path / "metrics.jsonl")
    file.write({"step": 1})
    file._file = open("/dev/full", "a", encoding="utf-8")  # noqa: SIM115 - the device that is always full
    with pytest.raises(RollickError, match=r"metrics\.jsonl: cannot be written \(No space left on device\)"):
        file.write({"step": 2})
    assert list(read_jsonl(file.path)) == [{"step": 1}]
