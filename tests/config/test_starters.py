"""`rollick init` hands out files that load, that show real defaults and that forget no option."""

import re
from pathlib import Path

import pytest
import yaml

import rollick.config
from rollick.config.algorithm import AlgorithmSettings
from rollick.config.load import PIPELINES, load_job
from rollick.config.source import read_tree
from rollick.config.violations import nested_model

STARTERS = Path(rollick.config.__file__).parent / "starters"
ALGORITHM = {"preset", "group_size", "advantage_std", "clip_low", "clip_high", "dual_clip", "kl_coef", "kl_estimator"}
ALGORITHM |= {"entropy_coef", "loss_aggregation", "epochs_per_batch", "truncated_answers"}
EXPERT = {
    "rl": {"split", "at_start", "min_ratio", "path", "min_p", "top_k", "top_p", "staleness"}
    | {"reward_timeout", "episode_timeout", "stall_warning", "max_attempts"}
    | set(AlgorithmSettings.model_fields) - ALGORITHM,
    "sft": {"split"},
}
"""Options that a first job file need not show."""


def leaf_names(model):
    for name, field in model.model_fields.items():
        section = nested_model(field)
        if section:
            yield from leaf_names(section)
        else:
            yield name


def uncommented(text):
    """The starter with every `# key: value` line switched on (comments in sentences stay)."""
    return re.sub(r"^( *)# (?=[a-z_]+: )", r"\1", text, flags=re.MULTILINE)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_starter_loads_as_it_is(pipeline):
    job, _ = load_job(STARTERS / f"{pipeline}.yaml")
    assert job.pipeline == pipeline


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_starter_shows_every_option(pipeline):
    text = (STARTERS / f"{pipeline}.yaml").read_text()
    missing = [n for n in leaf_names(PIPELINES[pipeline]) if not re.search(rf"\b{n}\b", text)]
    assert set(missing) <= EXPERT[pipeline]


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_commented_keys_are_real_and_show_their_defaults(pipeline, tmp_path):
    """Switching all comments on must give the same job, except where a comment is an example and not a default."""
    starter = STARTERS / f"{pipeline}.yaml"
    plain, _ = load_job(starter)
    text = uncommented(starter.read_text())
    (tmp_path / "all.yaml").write_text(text)
    full, _ = read_tree(tmp_path / "all.yaml")
    assert set(full) > set(yaml.safe_load(starter.read_text()))
    if pipeline == "rl":  # these are examples, or only allowed beside other values
        full["algorithm"].pop("kl_estimator")
        full.pop("reference")
        full["environments"][0]["dataset"] = {"path": "data/train.jsonl"}
    else:
        full["dataset"] = {"path": "data/train.jsonl"}
        full.pop("evaluation")
    full.pop("trackers")
    (tmp_path / "checked.yaml").write_text(yaml.safe_dump(full))
    assert load_job(tmp_path / "checked.yaml")[0] == plain
