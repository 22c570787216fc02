"""One line of metrics per step, in which nothing missing is read as 0."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.state.jsonl import JsonlFile, read_jsonl
from rollick.state.metrics import MetricsLog, window_means

NAN = float("nan")


class Recorder:
    def __init__(self):
        self.steps = []

    def log(self, step, metrics):
        self.steps.append((step, metrics))


def test_nan_does_not_wipe_out_a_window():
    """Failure case 142."""
    assert window_means({"reward": [0.5, NAN, 0.6, NAN]}) == {"reward": pytest.approx(0.55), "reward/missing": 2.0}


def test_metric_without_any_value_is_left_out_and_counted():
    """Failure case 142: all NaN is left out, not 0."""
    assert window_means({"reward": [NAN, NAN], "inf": [float("inf"), 1.0]}) == {
        "inf": 1.0,
        "inf/missing": 1.0,
        "reward/missing": 2.0,
    }


@given(st.lists(st.floats(-1e6, 1e6), min_size=1), st.integers(0, 5))
def test_missing_values_never_move_the_mean(values, missing):
    means = window_means({"x": [*values, *[NAN] * missing]})
    assert means["x"] == pytest.approx(math.fsum(values) / len(values))
    assert means.get("x/missing", 0) == missing


def test_step_is_one_sorted_line_and_reaches_every_sink(tmp_path):
    sinks = [Recorder(), Recorder()]
    with JsonlFile(tmp_path / "metrics.jsonl") as file:
        metrics = MetricsLog(file, sinks)
        metrics.add({"b": 1, "a": 0.5})
        metrics.add({"b": 3})
        assert metrics.end_step(1) == {"a": 0.5, "b": 2.0}
        metrics.add({"b": 7})
        metrics.end_step(2)
        rows = list(read_jsonl(file.path))
    assert list(rows[0]) == ["step", "time", "a", "b"]
    assert [(row["step"], row["b"]) for row in rows] == [(1, 2.0), (2, 7.0)]
    assert all(sink.steps == [(1, {"a": 0.5, "b": 2.0}), (2, {"b": 7.0})] for sink in sinks)


@pytest.mark.parametrize("label", [3, 2])
def test_label_is_never_written_twice_even_across_processes(tmp_path, label):
    with JsonlFile(tmp_path / "metrics.jsonl") as file:
        MetricsLog(file).end_step(3)
        with pytest.raises(ValueError, match="labels only go up"):
            MetricsLog(file).end_step(label)


def test_column_names_of_the_file_are_reserved(tmp_path):
    with JsonlFile(tmp_path / "metrics.jsonl") as file, pytest.raises(ValueError, match="step"):
        MetricsLog(file).add({"step": 1.0})
