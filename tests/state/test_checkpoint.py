"""A checkpoint counts when it is whole, and the last whole one is never lost."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollick.errors import DataError, RollickError
from rollick.state.checkpoint import CheckpointStore, full_problem, quick_problem

SCRIPTS = Path(__file__).parent


def write_step(step):
    def write(folder):
        (folder / "trainer").mkdir()
        (folder / "trainer" / "weights.bin").write_bytes(bytes([step % 251]) * 5000)
        (folder / "cursor.json").write_text(json.dumps({"step": step}))

    return write


def save(store, *steps):
    return [store.save(step, write_step(step), {"step": step}) for step in steps]


def flip_bit(path, offset=1234):
    content = bytearray(path.read_bytes())
    content[offset % len(content)] ^= 4
    path.write_bytes(content)


def test_save_and_load(tmp_path):
    store = CheckpointStore(tmp_path)
    [folder] = save(store, 20)
    assert folder == tmp_path / "step_000020"
    loaded, meta = CheckpointStore(tmp_path).load()
    assert (loaded, meta) == (folder, {"step": 20})
    assert (loaded / "trainer" / "weights.bin").read_bytes() == bytes([20]) * 5000
    manifest = json.loads((folder / "manifest.json").read_text())
    assert sorted(manifest["files"]) == ["cursor.json", "trainer/weights.bin"]


def test_only_the_last_ones_stay(tmp_path):
    store = CheckpointStore(tmp_path, keep_last=2)
    save(store, 1, 2, 3, 999_999, 1_000_000)
    assert store.steps() == [999_999, 1_000_000]
    assert store.latest() == tmp_path / "step_1000000"


def test_empty_store(tmp_path):
    store = CheckpointStore(tmp_path / "new")
    assert store.is_empty() and store.latest() is None
    with pytest.raises(DataError, match="there is none"):
        store.load()


def damage(folder, kind):
    weights = folder / "trainer" / "weights.bin"
    if kind == "truncated":
        weights.write_bytes(weights.read_bytes()[:-1])
    elif kind == "missing":
        weights.unlink()
    elif kind == "bit flip":
        flip_bit(weights)
    elif kind == "no manifest":
        (folder / "manifest.json").unlink()
    elif kind == "half a manifest":
        text = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(text[: len(text) // 2])
    else:
        text = (folder / "manifest.json").read_text()
        (folder / "manifest.json").write_text(text.replace('"step": 2', '"step": 7', 1))


DAMAGES = {
    "truncated": "trainer/weights.bin has 4999 bytes instead of 5000",
    "missing": "trainer/weights.bin is missing",
    "bit flip": "trainer/weights.bin does not have the content",
    "no manifest": "manifest.json is missing",
    "half a manifest": "manifest.json cannot be read",
    "altered manifest": "manifest.json was altered",
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_damaged_checkpoint_falls_back_to_the_last_whole_one_and_says_why(tmp_path, caplog, kind):
    store = CheckpointStore(tmp_path)
    older, newer = save(store, 1, 2)
    damage(newer, kind)
    folder, meta = store.load()
    assert (folder, meta) == (older, {"step": 1})
    assert DAMAGES[kind] in caplog.text and "step_000002" in caplog.text
    with pytest.raises(DataError, match="whole checkpoints here: 1") as caught:
        store.load(newer)
    assert DAMAGES[kind] in str(caught.value)


def test_nothing_whole_left_is_an_error_not_a_fresh_start(tmp_path):
    store = CheckpointStore(tmp_path)
    for folder in save(store, 1, 2):
        flip_bit(folder / "cursor.json")
    assert not store.is_empty()
    with pytest.raises(DataError, match=r"step_000002: cursor.json.*; step_000001: cursor.json"):
        store.load()


@given(name=st.sampled_from(["trainer/weights.bin", "cursor.json", "manifest.json"]), offset=st.integers(0, 10_000))
@settings(max_examples=60, deadline=None)
def test_every_single_flipped_bit_is_found(tmp_path_factory, name, offset):
    store = CheckpointStore(tmp_path_factory.mktemp("store"))
    [folder] = save(store, 3)
    assert full_problem(folder) is None
    flip_bit(folder / name, offset)
    assert full_problem(folder) is not None


def test_damaged_ones_do_not_push_good_ones_out(tmp_path):
    store = CheckpointStore(tmp_path, keep_last=2)
    folders = save(store, 1, 2)
    (folders[1] / "cursor.json").unlink()
    save(store, 3)
    assert store.steps() == [1, 3]


def test_step_that_is_saved_again_replaces_the_damaged_one(tmp_path):
    store = CheckpointStore(tmp_path)
    [folder] = save(store, 5)
    flip_bit(folder / "cursor.json")
    save(store, 5)
    assert full_problem(folder) is None
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000005"]


def test_kill_while_replacing_keeps_the_old_one(tmp_path):
    """The moment between the two renames: the old folder has stepped aside, the new one is not there yet."""
    store = CheckpointStore(tmp_path)
    [folder] = save(store, 5)
    folder.rename(tmp_path / ".replaced-step_000005")
    (tmp_path / ".saving-step_000005").mkdir()
    assert CheckpointStore(tmp_path).load()[0] == folder
    assert sorted(path.name for path in tmp_path.iterdir()) == ["step_000005"]


def test_resuming_from_an_older_one_sets_the_newer_aside(tmp_path):
    """Otherwise the newest of the abandoned branch would be `latest` after the next crash."""
    store = CheckpointStore(tmp_path, keep_last=5)
    first, *_ = save(store, 10, 20, 30)
    store.load(first)
    save(store, 12)
    assert store.steps() == [10, 12]
    assert quick_problem(tmp_path / "superseded" / "step_000030") is None


def test_checkpoint_of_another_run_can_be_loaded(tmp_path):
    [folder] = save(CheckpointStore(tmp_path / "a"), 10)
    store = CheckpointStore(tmp_path / "b")
    save(store, 20)
    assert store.load(folder) == (folder, {"step": 10})
    assert store.steps() == [20]


def test_failing_write_leaves_the_old_one_and_no_rubbish(tmp_path):
    store = CheckpointStore(tmp_path, keep_last=1)
    save(store, 1)

    def fail(folder):
        (folder / "half.bin").write_bytes(b"x")
        raise ValueError("no such tensor")

    with pytest.raises(ValueError, match="no such tensor"):
        store.save(2, fail, {})
    assert [path.name for path in tmp_path.iterdir()] == ["step_000001"]


def test_meta_must_be_json(tmp_path):
    store = CheckpointStore(tmp_path)
    with pytest.raises(TypeError):
        store.save(1, write_step(1), {"tensor": object()})
    assert store.is_empty()


def start(script, *arguments):
    command = [sys.executable, str(SCRIPTS / script), *[str(argument) for argument in arguments]]
    root = SCRIPTS.parents[1]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(root)})


@pytest.mark.parametrize("parts_before_kill", [1, 13, 20])
def test_kill_in_mid_save_leaves_the_last_whole_checkpoint(tmp_path, parts_before_kill):
    save(CheckpointStore(tmp_path), 7)
    process = start("kill_in_save.py", tmp_path, 8)
    try:
        seen = 0
        while seen < parts_before_kill:
            seen += process.stdout.readline().startswith("part")
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=30)
    left = [path.name for path in tmp_path.iterdir()]
    assert any(name.startswith(".saving-") for name in left) or "step_000008" in left
    store = CheckpointStore(tmp_path)
    folder, meta = store.load()
    assert meta["step"] in (7, 8) and full_problem(folder) is None
    assert not list(tmp_path.glob(".saving-*"))


def test_file_limit_is_reported_as_a_full_disk_and_the_old_one_stays(tmp_path):
    process = start("full_disk.py", tmp_path)
    output, _ = process.communicate(timeout=60)
    assert "the disk is full, the checkpoint of step 2 could not be written" in output
    assert "step_000001 is untouched" in output
    assert CheckpointStore(tmp_path).steps() == [1]


@pytest.fixture
def tiny_disk(tmp_path):
    folder = tmp_path / "disk"
    folder.mkdir()
    mounted = os.geteuid() == 0 and shutil.which("mount")
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if not mounted or subprocess.run(command, check=False, capture_output=True, timeout=10).returncode:
        pytest.skip("a small file system can only be mounted as root")
    yield folder
    subprocess.run(["umount", str(folder)], check=True, timeout=10)


def test_full_disk_leaves_the_old_checkpoint(tiny_disk):
    store = CheckpointStore(tiny_disk, keep_last=1)
    save(store, 1)
    with pytest.raises(RollickError, match="the disk is full") as caught:
        store.save(2, lambda folder: (folder / "w.bin").write_bytes(bytes(2**21)) and None, {})
    assert "step_000001 is untouched" in str(caught.value) and "--resume" in str(caught.value)
    assert store.load()[1] == {"step": 1}


def test_library_that_reports_a_full_disk_in_its_own_words(tiny_disk):
    """torch and safetensors raise RuntimeError and their own errors, without an error number."""
    store = CheckpointStore(tiny_disk)

    def write(folder):
        raise RuntimeError("PytorchStreamWriter failed writing file data/0")

    with pytest.raises(RollickError, match="PytorchStreamWriter"):
        store.save(1, write, {})


def test_saving_is_quick_enough_to_do_often(tmp_path):
    store = CheckpointStore(tmp_path)
    started = time.monotonic()
    save(store, *range(1, 11))
    assert time.monotonic() - started < 10
