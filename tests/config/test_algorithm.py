"""`algorithm:` of a job: what is composed, what is refused, and what a mistake is told."""

import pytest

from rollick.config.algorithm import AlgorithmSettings
from rollick.config.algorithm_parts import find_part
from rollick.config.load import dump_job, load_job
from tests.config.jobs import RL_JOB, changed, problems_of, write_job


def problems(tmp_path, **algorithm):
    return problems_of(write_job(tmp_path, changed(RL_JOB, algorithm=algorithm)))


def test_a_loss_brings_its_own_defaults_and_what_is_written_wins():
    assert AlgorithmSettings(policy_loss="cispo").weight_high == 1.28
    assert AlgorithmSettings(policy_loss="gspo").clip_low == AlgorithmSettings(preset="gspo").clip_low == 3e-4
    assert AlgorithmSettings(preset="gspo", clip_low=0.1).clip_low == 0.1
    assert AlgorithmSettings(policy_loss="gmpo", log_clip_low=None).log_clip_low == 0.4, "null is left out"


def test_an_option_that_the_composition_does_not_read_is_refused_with_those_it_reads(tmp_path):
    [problem] = problems(tmp_path, preset="cispo", clip_high=0.3)
    assert "algorithm.clip_high: 0.3" in problem and "policy_loss cispo do not read it" in problem
    assert "weight_high" in problem


@pytest.mark.parametrize(
    ("algorithm", "message"),
    [
        ({"policy_loss": "cipso"}, "did you mean 'cispo'?"),
        ({"advantage": "rlo"}, "did you mean 'rloo'?"),
        ({"sample_filter": "sprad"}, "did you mean 'spread'?"),
        ({"advantage": "none"}, "unknown advantage 'none'"),
        ({"policy_loss": "no_such_package:loss"}, "no module 'no_such_package'"),
        ({"policy_loss": "tests.config.own_parts:nothing"}, "no function 'nothing'"),
        ({"policy_loss": "tests.config.own_parts:wants_the_moon"}, "asks for moon"),
        ({"policy_loss": "dro"}, "algorithm.dro_beta is missing"),
        ({"policy_loss": "topr", "negative_range": [1.0, 0.5]}, "the first must not exceed the second"),
        ({"policy_loss": "tis", "weight_low": 2.0}, "the first must not exceed the second"),
        ({"kl_rejection": "k1"}, "kl_rejection_range is missing"),
        ({"options": {"sharpness": 2.0}}, "is read by no composed part"),
        ({"options": {"clip_low": 0.1}}, "stands beside it"),
        ({"correction_weight_cap": 3.0}, "has no effect"),
        ({"kl_coef": 0.1, "kl_placement": "reward", "kl_off_policy": True}, "has no effect"),
        ({"advantage": "rloo", "group_size": 1}, "every advantage is 0"),
    ],
)
def test_mistakes_are_told_with_their_remedy(tmp_path, algorithm, message):
    found = problems(tmp_path, **algorithm)
    assert any(message in problem for problem in found), found


def test_one_answer_per_prompt_is_enough_where_answers_are_not_compared(tmp_path):
    assert problems(tmp_path, preset="reinforce", group_size=1) == []


def test_parts_of_your_own_come_by_import_path_with_their_options(tmp_path):
    own = {
        "policy_loss": "tests.config.own_parts:sharp_loss",
        "advantage": "tests.config.own_parts:sign_advantages",
        "sample_filter": "tests.config.own_parts:short_keep",
        "options": {"sharpness": 3.0},
    }
    job, _ = load_job(write_job(tmp_path, changed(RL_JOB, algorithm=own)))
    assert job.algorithm.options_of(job.algorithm.part("policy_loss")) == {"clip_low": 0.4, "sharpness": 3.0}
    assert load_job(write_job(tmp_path, dump_job(job), "config.yaml"))[0] == job


def test_what_a_job_writes_down_is_what_it_reads(tmp_path):
    job, _ = load_job(write_job(tmp_path, changed(RL_JOB, algorithm={"preset": "sapo"})))
    text = dump_job(job)
    assert "tau_positive: 1.0" in text and "clip_low" not in text and "dro_beta" not in text


def test_parts_are_found_without_torch():
    assert find_part("policy_loss", "gspo").inputs == ("logprobs", "old_logprobs", "advantages", "rows", "num_rows")
