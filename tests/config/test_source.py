"""Files, includes, interpolation and overrides become one tree, and every value knows where it was written."""

import pytest

from rollick.config.source import read_tree, where
from rollick.errors import ConfigError


def write(folder, **files):
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")
    return folder / "job.yaml"


def refusal(path, *overrides):
    with pytest.raises(ConfigError) as caught:
        read_tree(path, overrides)
    assert caught.value.exit_code == 2
    [sentence] = caught.value.problems
    return sentence


def test_exponents_without_a_point_are_floats_in_file_and_override(tmp_path):
    """Failure case 1."""
    path = write(tmp_path, job="a: 1e-6\nb: 1E-8\nc: 1e-3\n")
    tree, _ = read_tree(path, ["d=1e-6", "e.f=2E5"])
    assert tree == {"a": 1e-6, "b": 1e-8, "c": 1e-3, "d": 1e-6, "e": {"f": 2e5}}
    assert all(isinstance(tree[key], float) for key in "abcd")


def test_later_include_and_own_file_win(tmp_path):
    path = write(
        tmp_path,
        base="a: {x: 1, y: 1, z: 1}\nitems: [1, 2, 3]\n",
        more="a: {y: 2, z: 2}\n",
        job="include: [base.yaml, more.yaml]\na: {z: 3}\nitems: [9]\n",
    )
    tree, origins = read_tree(path)
    assert tree == {"a": {"x": 1, "y": 2, "z": 3}, "items": [9]}
    assert origins == {
        "a.x": f"{tmp_path}/base.yaml:1",
        "a.y": f"{tmp_path}/more.yaml:1",
        "a.z": f"{path}:2",
        "items.0": f"{path}:3",
    }


def test_include_is_relative_to_the_including_file(tmp_path, monkeypatch):
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared" / "base.yaml").write_text("include: deeper.yaml\na: 1\n")
    (tmp_path / "shared" / "deeper.yaml").write_text("b: 2\n")
    path = write(tmp_path, job="include: shared/base.yaml\n")
    monkeypatch.chdir("/")
    assert read_tree(path)[0] == {"a": 1, "b": 2}


def test_circle_of_includes_is_refused(tmp_path):
    path = write(tmp_path, job="include: other.yaml\n", other="include: job.yaml\n")
    assert "job.yaml → other.yaml → job.yaml" in refusal(path)


def test_same_file_included_twice_without_a_circle_is_fine(tmp_path):
    path = write(tmp_path, job="include: [a.yaml, b.yaml]\n", a="include: c.yaml\n", b="include: c.yaml\n", c="x: 1\n")
    assert read_tree(path)[0] == {"x": 1}


def test_missing_include_names_both_files(tmp_path):
    sentence = refusal(write(tmp_path, job="include: nowhere.yaml\n"))
    assert "nowhere.yaml" in sentence and "included by" in sentence and "job.yaml" in sentence


def test_include_of_the_wrong_type(tmp_path):
    assert "include: needs a file name or a list" in refusal(write(tmp_path, job="include: {a: 1}\n"))


def test_interpolation_sees_overrides_and_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("ROLLICK_TEST_ROOT", "/data")
    path = write(
        tmp_path, job="seed: 1\nname: run-${seed}\nroot: ${oc.env:ROLLICK_TEST_ROOT}\nrank: ${oc.env:NOPE,0}\n"
    )
    tree, _ = read_tree(path, ["seed=5", "copy=${name}"])
    assert tree == {"seed": 5, "name": "run-5", "root": "/data", "rank": "0", "copy": "run-5"}


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("a: 1\nb: ${nope}\n", "b (JOB:2): Interpolation key 'nope' not found"),
        ("a: ${oc.env:ROLLICK_NOT_SET}\n", "'ROLLICK_NOT_SET' not found"),
        ("a: ${b}\nb: ${a}\n", "Recursive"),
        ("a: 1\nb: ???\n", "b (JOB:2): Missing mandatory value"),
    ],
)
def test_bad_interpolation_names_the_key_and_line(tmp_path, text, part):
    path = write(tmp_path, job=text)
    assert part.replace("JOB", str(path)) in refusal(path)


def test_overrides_reach_into_lists_and_null_removes(tmp_path):
    path = write(tmp_path, job="environments:\n  - {kind: a, weight: 1}\n  - {kind: b}\nevaluation: {every: 2}\n")
    tree, origins = read_tree(path, ["environments.1.weight=3", "evaluation=null", "new.section.key=[1, two]"])
    assert tree["environments"] == [{"kind": "a", "weight": 1}, {"kind": "b", "weight": 3}]
    assert tree["evaluation"] is None
    assert tree["new"] == {"section": {"key": [1, "two"]}}
    assert origins["environments.1.weight"] == origins["evaluation"] == "command line"
    assert origins["environments.1.kind"] == f"{path}:3"
    assert "evaluation.every" not in origins


def test_later_override_wins(tmp_path):
    assert read_tree(write(tmp_path, job="a: 1\n"), ["a=2", "a=3"])[0] == {"a": 3}


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("steps", "key.sub=value"),
        ("=3", "key.sub=value"),
        ("a..b=3", "key.sub=value"),
        ("--learning-rate=1e-5", "without dashes, as learning_rate=1e-5"),
        ("--seed", "without dashes, as seed=value"),
        ("items.7=1", "items is a list of 2 and is addressed by index from 0"),
        ("items.first=1", "'first' is not in it"),
        ("name.first=1", "name is 'x', which has no keys"),
        ("name=[1", "not valid YAML"),
    ],
)
def test_impossible_override_is_one_sentence(tmp_path, override, part):
    sentence = refusal(write(tmp_path, job="name: x\nitems: [1, 2]\n"), override)
    assert override in sentence and part in sentence and "\n" not in sentence


def test_where_falls_back_to_children_and_parents():
    origins = {"a.b": "job.yaml:2", "c": "job.yaml:5"}
    assert where(origins, "a.b") == where(origins, "a") == "job.yaml:2"
    assert where(origins, "c.d.e") == "job.yaml:5"
    assert where(origins, "other") is None


def test_byte_order_mark_is_no_part_of_the_first_key(tmp_path):
    path = tmp_path / "job.yaml"
    path.write_bytes(b"\xef\xbb\xbfa: 1\n")
    assert read_tree(path)[0] == {"a": 1}


def test_missing_file(tmp_path):
    assert "there is no such file" in refusal(tmp_path / "nope.yaml")


def test_folder_instead_of_file(tmp_path):
    assert "this is a folder" in refusal(tmp_path)


@pytest.mark.parametrize(
    ("content", "part"),
    [
        (b"", "the file is empty"),
        (b"# only a comment\n", "the file is empty"),
        (b"a: 1\nb: [1, 2\nc: 3\n", "job.yaml:3: not valid YAML"),
        (b"a: 1\na: 2\n", "job.yaml:2: not valid YAML: found duplicate key a"),
        (b"a:\t- x\n", "job.yaml:1: not valid YAML"),
        (b"a: 1\n---\nb: 2\n", "not valid YAML"),
        (b"a: !!python/object:os.x {}\n", "not valid YAML"),
        (b"- a\n- b\n", "found a list"),
        (b"hello\n", "found the bare value 'hello'"),
        (b"name: caf\xe9\n", "not UTF-8 text (byte 9)"),
        (b"a: ${\n", "job.yaml"),
    ],
)
def test_bad_file_is_one_sentence_with_its_line(tmp_path, content, part):
    path = tmp_path / "job.yaml"
    path.write_bytes(content)
    sentence = refusal(path)
    assert part in sentence and str(path) in sentence and "\n" not in sentence
