"""Trackers are a convenience: none of them stops a run, none of them fails unseen."""

import pytest

from rollick.config.base import load_plugin, plugin_kinds
from rollick.errors import RollickError
from rollick.state.jsonl import JsonlFile, read_jsonl
from rollick.state.metrics import MetricsLog
from rollick.trackers.fanout import TrackerFanout

FAILING = "tests.trackers.failing_tracker"


def options(kind, **fields):
    return load_plugin("trackers", kind).model_validate({"kind": kind, **fields})


def calls():
    from tests.trackers.failing_tracker import CALLS

    return CALLS


def train(tmp_path, *members, steps=5):
    trackers = TrackerFanout(members, tmp_path, "demo")
    with JsonlFile(tmp_path / "metrics.jsonl") as file:
        metrics = MetricsLog(file, [trackers])
        for step in range(1, steps + 1):
            metrics.add({"loss": 1.0 / step})
            metrics.end_step(step)
    trackers.close()
    return [row["step"] for row in read_jsonl(tmp_path / "metrics.jsonl")]


def test_tracker_that_fails_at_step_3_warns_once_and_training_goes_on(tmp_path, caplog):
    """Failure case 141, its second half."""
    assert train(tmp_path, options(FAILING), steps=5) == [1, 2, 3, 4, 5]
    warnings = [record.getMessage() for record in caplog.records]
    assert sum("failed at step" in warning for warning in warnings) == 1
    assert "failed at step 3 (ConnectionError: no route to host)" in warnings[0]
    assert any("missed 3 steps" in warning for warning in warnings)
    assert any("failed to close (OSError: cannot close)" in warning for warning in warnings)


def test_tracker_that_comes_back_gets_the_later_steps(tmp_path, caplog):
    calls().clear()
    train(tmp_path, options(FAILING, recover_at=5), steps=6)
    assert calls() == [("log", 1), ("log", 2), ("log", 5), ("log", 6)]
    assert "missed 2 steps" in caplog.text


def test_tracker_that_cannot_start_is_left_out_with_a_warning(tmp_path, caplog):
    """Failure case 141, its first half: no key, no network."""
    assert train(tmp_path, options(FAILING, fail_at_start=True)) == [1, 2, 3, 4, 5]
    assert "cannot start (ConnectionError: no key for demo)" in caplog.text


def test_required_tracker_stops_at_the_start(tmp_path):
    with pytest.raises(RollickError, match="it is required"):
        TrackerFanout([options(FAILING, fail_at_start=True, required=True)], tmp_path, "demo")


def test_one_failing_tracker_does_not_keep_metrics_from_the_others(tmp_path):
    calls().clear()
    train(tmp_path, options(FAILING, fail_from=1), options(FAILING, fail_from=99), steps=3)
    assert calls() == [("log", 1), ("log", 2), ("log", 3)]


def test_tensorboard_is_the_only_kind_so_far():
    assert plugin_kinds("trackers") == ["tensorboard"]


def read_curve(folder, name):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    accumulator = EventAccumulator(str(folder / "tensorboard"))
    accumulator.Reload()
    return [(event.step, pytest.approx(event.value)) for event in accumulator.Scalars(name)]


def test_tensorboard_gets_every_step_and_forgets_what_a_resume_redoes(tmp_path):
    train(tmp_path, options("tensorboard"), steps=4)
    with JsonlFile(tmp_path / "metrics.jsonl") as file:
        file.keep(lambda row: row["step"] <= 2)
        trackers = TrackerFanout([options("tensorboard")], tmp_path, "demo")
        trackers.log(3, {"loss": 9.0})
        trackers.close()
    assert read_curve(tmp_path, "loss") == [(1, 1.0), (2, 0.5), (3, 9.0)]
