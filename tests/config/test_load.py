"""Loading a job: every violation is listed, each one sentence with its key, value and remedy."""

import json
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rollick.config.algorithm import apply_preset, preset_names, read_preset
from rollick.config.load import PIPELINES, build_job, dump_job, load_job
from rollick.config.rl import RlJob
from rollick.config.source import read_tree
from rollick.errors import ConfigError
from tests.config.jobs import RL_JOB, SFT_JOB, changed, problems_of, write_job


def test_good_jobs_load(tmp_path):
    job, origins = load_job(write_job(tmp_path, RL_JOB), ["trainer.learning_rate=1e-5"])
    assert isinstance(job, RlJob)
    assert job.trainer.learning_rate == 1e-5
    assert job.environments[0].dataset.path == "train.jsonl"
    assert origins["trainer.learning_rate"] == "command line"
    assert origins["steps"].endswith("job.yaml:3")
    assert problems_of(write_job(tmp_path, SFT_JOB)) == []


def test_exponent_reaches_the_float_field(tmp_path):
    """Failure case 1: 1e-6 arrives as a number, text is refused with its key."""
    text = write_job(tmp_path, RL_JOB).read_text() + "trainer: {learning_rate: 1e-6, eps: 1E-8}\n"
    job, _ = load_job(write_job(tmp_path, text), ["algorithm.kl_coef=1e-3"])
    assert (job.trainer.learning_rate, job.trainer.eps, job.algorithm.kl_coef) == (1e-6, 1e-8, 1e-3)
    [problem] = problems_of(write_job(tmp_path, RL_JOB), "trainer.learning_rate=fast")
    assert problem.startswith("trainer.learning_rate: 'fast' (command line)") and "valid number" in problem


@pytest.mark.parametrize(
    ("override", "meant"),
    [
        ("algorithm.grup_size=8", "algorithm.group_size"),
        ("trainer.schedule.warmup_update=1", "trainer.schedule.warmup_updates"),
        ("environments.0.wieght=1", "environments.0.weight"),
        ("environments.0.dataset.pth=x", "environments.0.dataset.path"),
        ("environments.0.rewards.0.patern=x", "environments.0.rewards.0.pattern"),
        ("engine.slot=2", "engine.slots"),
        ("engine.cache.block=2", "engine.cache.blocks"),
        ("stepps=4", "steps"),
        ("learning_rate=1e-5", "trainer.learning_rate"),
        ("trainer.group_size=4", "algorithm.group_size"),
        ("evaluation.sampling.temprature=0", "evaluation.sampling.temperature"),
    ],
)
def test_unknown_key_names_its_full_path_and_the_nearest_valid_one(tmp_path, override, meant):
    """Failure case 2, at every depth and inside plug-ins."""
    job = changed(RL_JOB, evaluation={"environments": RL_JOB["environments"]})
    [problem] = problems_of(write_job(tmp_path, job), override)
    key = override.partition("=")[0]
    assert problem.startswith(f"unknown key '{key}'") and "command line" in problem
    assert problem.endswith(f"did you mean '{meant}'?")


def test_unknown_key_without_a_near_name_lists_the_names_there_are(tmp_path):
    [problem] = problems_of(write_job(tmp_path, RL_JOB), "checkpoint.zzz=1")
    assert problem.endswith("known here: every, keep_last")


def test_free_form_section_takes_any_key(tmp_path):
    job, _ = load_job(write_job(tmp_path, RL_JOB), ["environments.0.dataset.columns={anything: goes}"])
    assert job.environments[0].dataset.columns == {"anything": "goes"}


def test_every_violation_is_listed_with_file_and_line(tmp_path):
    job = changed(RL_JOB, steps=0, rollout={"prompts_per_step": 2.5}, model={"dtype": "bf16"}, extra=1)
    path = write_job(tmp_path, job)
    problems = problems_of(path)
    assert [p.partition(":")[0].partition(" (")[0] for p in problems] == [
        "model.dtype",
        "steps",
        "rollout.prompts_per_step",
        "unknown key 'extra'",
    ]
    assert "did you mean 'bfloat16'?" in problems[0]
    assert f"{path}:3" in problems[1]


def test_missing_key_says_what_it_is_for(tmp_path):
    [problem] = problems_of(write_job(tmp_path, changed(RL_JOB, model={"dtype": "float32"}), "a.yaml"), "model={}")
    assert problem == "model.path is missing: A Hugging Face folder, or a hub name where there is a network."


@pytest.mark.parametrize("value", ["true", "on", "no"])
def test_yes_and_no_are_not_numbers(tmp_path, value):
    [problem] = problems_of(write_job(tmp_path, RL_JOB), f"rollout.prompts_per_step={value}")
    assert "needs a number, not yes/no" in problem


@pytest.mark.parametrize("value", [".inf", ".nan", "-1", "0"])
def test_learning_rate_must_be_a_finite_positive_number(tmp_path, value):
    [problem] = problems_of(write_job(tmp_path, RL_JOB), f"trainer.learning_rate={value}")
    assert problem.startswith("trainer.learning_rate: ")


def test_unknown_plugin_kind_names_those_there_are(tmp_path):
    [problem] = problems_of(write_job(tmp_path, RL_JOB), "engine.kind=torhc")
    assert problem.startswith("engine: ") and "unknown kind 'torhc'" in problem
    [problem] = problems_of(write_job(tmp_path, RL_JOB), "engine.kind=no_such_package.engine")
    assert "no module 'no_such_package.engine'" in problem


@pytest.mark.parametrize(
    ("pipeline", "part"),
    [("rll", "did you mean 'rl'?"), ("3", "there are rl, sft"), ("null", "there are rl, sft")],
)
def test_unknown_pipeline(tmp_path, pipeline, part):
    [problem] = problems_of(write_job(tmp_path, RL_JOB), f"pipeline={pipeline}")
    assert part in problem and "command line" in problem


def test_missing_pipeline_points_at_what_looks_like_it(tmp_path):
    [problem] = problems_of(write_job(tmp_path, changed(RL_JOB, pipeline=None, pipelin="rl")))
    assert "pipeline is missing" in problem and "'pipelin'" in problem


def test_preset_values_lie_under_the_users(tmp_path):
    path = write_job(tmp_path, changed(RL_JOB, algorithm={"preset": "dr_grpo", "clip_high": 0.31}))
    job, origins = load_job(path)
    assert job.algorithm.advantage_std == "none" == read_preset("dr_grpo")["advantage_std"]
    assert job.algorithm.clip_high == 0.31
    assert origins["algorithm.advantage_std"] == "preset dr_grpo"
    assert origins["algorithm.clip_high"] == f"{path}:18"


def test_unknown_preset_lists_those_there_are(tmp_path):
    [problem] = problems_of(write_job(tmp_path, RL_JOB), "algorithm.preset=dr_grop")
    assert "unknown preset 'dr_grop'" in problem and "did you mean 'dr_grpo'?" in problem


@pytest.mark.parametrize("name", preset_names())
def test_every_preset_is_a_valid_job(name):
    """Failure case 3, its first half: a preset sets nothing that the settings do not know or that has no effect."""
    job = build_job(changed(RL_JOB, algorithm={"preset": name}), {}, "test")
    values = job.algorithm.model_dump(mode="json")
    assert values == {**values, **apply_preset({"preset": name})}


def test_batch_that_does_not_divide_is_refused_with_numbers_and_a_suggestion(tmp_path):
    """Failure case 7."""
    job = changed(RL_JOB, rollout={"prompts_per_step": 10}, algorithm={"group_size": 3})
    [problem] = problems_of(write_job(tmp_path, job), "trainer.samples_per_update=4")
    assert "samples_per_update = 4 does not divide the 30 samples" in problem
    assert problem.endswith("the nearest that does is 5")
    assert problems_of(write_job(tmp_path, job), "trainer.samples_per_update=5") == []


@pytest.mark.parametrize(("warmup", "problems"), [(4, 0), (5, 1)])
@pytest.mark.parametrize("job", [RL_JOB, SFT_JOB], ids=["rl", "sft"])
def test_warmup_may_fill_the_run_but_not_exceed_it(tmp_path, job, warmup, problems):
    """Failure case 5: 4 of 4 is fine, 5 of 4 is refused with both numbers."""
    found = problems_of(write_job(tmp_path, job), f"trainer.schedule.warmup_updates={warmup}")
    assert len(found) == problems
    assert all("= 5 is more than the 4 updates" in problem for problem in found)


def test_planned_updates_count_minibatches_and_epochs():
    job = build_job(
        changed(RL_JOB, trainer={"samples_per_update": 8}, algorithm={"group_size": 4, "epochs_per_batch": 3}), {}, ""
    )
    assert (job.samples_per_step, job.planned_updates) == (16, 4 * 3 * 2)


@pytest.mark.parametrize(
    ("override", "part"),
    [
        ("algorithm.group_size=1", "every advantage is 0"),
        ("rollout.temperature=0", "train with a temperature above 0"),
        ("rollout.top_p=0.9", "full softmax"),
        ("rollout.top_k=20", "full softmax"),
        ("rollout.min_p=0.1", "full softmax"),
        ("algorithm.kl_estimator=k3", "has no effect: algorithm.kl_coef is 0"),
        ("reference.path=other", "has no effect: algorithm.kl_coef is 0"),
        ("environments.0.rewards=[]", "environments.0 (tests.config.fake_environment) has no reward source"),
        ("name=a/b", "name: 'a/b'"),
        ("model.dtype=float16", "gradients underflow"),
    ],
)
def test_combination_that_cannot_work_is_refused(tmp_path, override, part):
    """Failure cases 8 (no reward source), 40 (greedy training), 41 (cuts in training), 3 (options without effect)."""
    [problem] = problems_of(write_job(tmp_path, RL_JOB), override)
    assert part in problem


def test_reference_options_are_accepted_with_a_kl_term(tmp_path):
    overrides = ["algorithm.kl_coef=0.01", "algorithm.kl_estimator=k1", "reference.path=other"]
    assert problems_of(write_job(tmp_path, RL_JOB), *overrides) == []


def test_kl_is_counted_once():
    """Failure case 43: there is one switch for the KL term, so it cannot be in reward and loss at once."""
    from rollick.config.violations import field_paths

    assert [path for path in field_paths(RlJob) if "kl_coef" in path] == ["algorithm.kl_coef"]


def test_environment_that_pays_itself_needs_no_rewards(tmp_path):
    job = changed(RL_JOB, environments=[{"kind": "tests.config.playing_environment"}])
    assert problems_of(write_job(tmp_path, job)) == []


def test_user_reward_function_alone_is_a_reward_source(tmp_path):
    """Failure case 8, its first half."""
    assert problems_of(write_job(tmp_path, RL_JOB), "environments.0.rewards=[tests.config.fake_reward]") == []


@pytest.mark.parametrize(
    ("overrides", "part"),
    [
        (["evaluation.pass_at=[1, 8]"], "pass_at has 8, but only evaluation.samples_per_prompt = 4"),
        (["evaluation.sampling.temperature=0"], "greedy answers are all equal"),
        (["evaluation.environments.0.rewards=[]"], "evaluation.environments.0"),
        (["evaluation.environments=[]"], "evaluation.environments"),
    ],
)
def test_evaluation_relations(tmp_path, overrides, part):
    evaluation = {
        "environments": RL_JOB["environments"],
        "samples_per_prompt": 4,
        "pass_at": [1, 4],
        "sampling": {"temperature": 0.7, "top_p": 0.9},
    }
    path = write_job(tmp_path, changed(RL_JOB, evaluation=evaluation))
    assert problems_of(path) == []
    [problem] = problems_of(path, *overrides)
    assert part in problem


@pytest.mark.parametrize("nested", [False, True], ids=["plain", "text_config"])
def test_lengths_must_fit_the_models_context(tmp_path, nested):
    config = {"max_position_embeddings": 128}
    (tmp_path / "config.json").write_text(json.dumps({"text_config": config} if nested else config))
    lengths = {"max_prompt_tokens": 100, "max_new_tokens": 28}
    rl = changed(RL_JOB, model={"path": str(tmp_path)}, rollout=lengths)
    assert problems_of(write_job(tmp_path, rl)) == []
    [problem] = problems_of(write_job(tmp_path, rl), "rollout.max_new_tokens=29")
    assert "100 + rollout.max_new_tokens 29 = 129 tokens do not fit the 128" in problem
    evaluation = {"environments": RL_JOB["environments"], "max_new_tokens": 64}
    [problem] = problems_of(write_job(tmp_path, changed(rl, evaluation=evaluation)))
    assert "evaluation.max_new_tokens 64 = 164" in problem
    sft = changed(SFT_JOB, model={"path": str(tmp_path)}, max_length=129)
    [problem] = problems_of(write_job(tmp_path, sft))
    assert "max_length = 129 tokens do not fit the 128" in problem


@pytest.mark.parametrize("override", ["steps=null", "epochs=2"])
def test_sft_needs_steps_or_epochs_but_not_both(tmp_path, override):
    [problem] = problems_of(write_job(tmp_path, SFT_JOB), override)
    assert "give exactly one of them" in problem


def test_sft_has_one_place_for_the_update_size(tmp_path):
    [problem] = problems_of(write_job(tmp_path, SFT_JOB), "trainer.samples_per_update=8")
    assert "has no effect" in problem and "top level" in problem


@pytest.mark.parametrize("preset", preset_names())
def test_resolved_job_loads_back_equal(tmp_path, preset):
    job, _ = load_job(write_job(tmp_path, changed(RL_JOB, algorithm={"preset": preset, "advantage_clip": 3.0})))
    assert load_job(write_job(tmp_path, dump_job(job), "config.yaml"))[0] == job


@given(
    stop=st.lists(
        st.one_of(
            st.sampled_from(["${x}", "\\${", "1e-6", "on", "null", "~", "\n\n", "- a", "#", "a: b", "\x85\u2028"]),
            st.text(),
        )
    ),
    rate=st.floats(min_value=0, exclude_min=True, max_value=1e9),
    kl_coef=st.sampled_from([0.0, 0.1]),
    limit=st.one_of(st.none(), st.integers(1, 10)),
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_value_survives_the_resolved_file(tmp_path, stop, rate, kl_coef, limit):
    tree = changed(
        RL_JOB,
        rollout={"stop": stop},
        trainer={"learning_rate": rate, "max_grad_norm": None},
        algorithm={"kl_coef": kl_coef},
        checkpoint={"every": limit},
    )
    job = build_job(tree, {}, "test")
    path = write_job(tmp_path, dump_job(job), "config.yaml")
    assert load_job(path)[0] == job


def test_resolved_file_names_every_setting_in_effect(tmp_path):
    job, _ = load_job(write_job(tmp_path, RL_JOB))
    tree, _ = read_tree(write_job(tmp_path, dump_job(job), "config.yaml"))
    assert tree["trainer"]["betas"] == [0.9, 0.999]
    assert tree["algorithm"]["clip_low"] == 0.2
    assert "kl_estimator" not in tree["algorithm"]
    assert math.isclose(tree["rollout"]["temperature"], 1.0)


@pytest.mark.parametrize("pipeline", PIPELINES)
def test_empty_job_lists_what_it_needs(pipeline):
    with pytest.raises(ConfigError) as caught:
        build_job({"pipeline": pipeline}, {}, "job.yaml")
    missing = [problem.partition(" is missing")[0] for problem in caught.value.problems]
    assert missing[:2] == ["name", "model"] and len(missing) >= 3
