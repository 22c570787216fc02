"""The settings reference is written from the settings, so that it cannot be out of date."""

import pytest

from rollick.config.job import JobSettings
from rollick.config.load import PIPELINES
from rollick.config.reference import settings_reference
from rollick.config.violations import field_paths, nested_model


@pytest.fixture(scope="module")
def reference():
    return settings_reference()


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_setting_has_one_row_per_pipeline(reference, pipeline):
    for path in field_paths(PIPELINES[pipeline]):
        assert f"\n| `{path}` | " in reference


def test_shared_settings_are_listed_once(reference):
    pipelines = reference.partition("\n## environments")[0]
    shared = [path for path in field_paths(JobSettings) if path != "pipeline"]
    assert [path for path in shared if pipelines.count(f"\n| `{path}` | ") != 1] == []


def test_rows_show_type_limits_default_and_meaning(reference):
    rows = reference.splitlines()
    assert "| `trainer.learning_rate` | number > 0 | `1e-06` | Peak of the schedule. |" in rows
    assert (
        "| `model.path` | text | *required* | A Hugging Face folder, or a hub name where there is a network. |" in rows
    )
    assert any(row.startswith("| `algorithm.kl_estimator` | `k1` or `abs` or `k2` or `k3` | `k3` |") for row in rows)
    assert any(row.startswith("| `environments` | list of [environments](#environments) |") for row in rows)
    assert any(row.startswith("| `evaluation.sampling.temperature` | number ≥ 0 | `0.0` |") for row in rows)


def test_every_plugin_kind_has_a_table(reference):
    for kind in ("tasks", "math", "torch", "tensorboard"):
        assert f"### kind: {kind}\n" in reference


def undocumented(model, prefix=""):
    for name, field in model.model_fields.items():
        section = nested_model(field)
        if section:
            yield from undocumented(section, f"{prefix}{name}.")
        elif not field.description:
            yield prefix + name


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_every_setting_says_what_it_means(pipeline):
    assert list(undocumented(PIPELINES[pipeline])) == []
