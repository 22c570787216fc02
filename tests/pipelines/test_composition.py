"""Every option of `algorithm:` reaches the numbers, every part keeps its promises, however it is composed."""

import inspect

import pytest
import torch

from rollick.config.algorithm import ALWAYS, AlgorithmSettings, preset_names
from rollick.config.algorithm_parts import FAMILIES, REQUIRED, find_part, part_names
from rollick.pipelines.algorithm_state import AlgorithmState
from rollick.pipelines.policy_batch import PolicyBatches, scored_rows
from rollick.training.part_contract import broken_promises
from tests.algorithms.toy import close
from tests.pipelines.steps import composed_loss, groups, learn, loss_and_gradient, step_rows

PARTS = [(family, name) for family in FAMILIES for name in part_names(family)]


@pytest.mark.parametrize(("family", "name"), PARTS)
def test_what_is_read_from_the_source_is_the_signature(family, name):
    part = find_part(family, name)
    parameters = inspect.signature(part.load()).parameters.values()
    assert part.inputs == tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
    assert part.options == {p.name: p.default for p in parameters if p.kind is p.KEYWORD_ONLY}
    assert part.options.keys() <= AlgorithmSettings.model_fields.keys(), "every option may be set in a job"
    assert part.formula


@pytest.mark.parametrize(("family", "name"), [case for case in PARTS if case[0] != "selection"])
def test_every_part_keeps_the_promises_of_its_family(family, name):
    assert broken_promises(find_part(family, name)) == []


KL = {"kl_coef": 0.1}
CHANGES = {
    "advantage": ({}, "rloo"),
    "policy_loss": ({}, "sapo"),
    "sample_filter": ({}, "spread"),
    "loss_aggregation": ({}, "sequence_mean_token_mean"),
    "truncated_answers": ({}, "mask"),
    "entropy_coef": ({}, 0.01),
    "overlong_buffer": ({}, 0.5),
    "overlong_factor": ({"overlong_buffer": 0.5}, 2.0),
    "length_reward": ({}, 0.5),
    "repetition_penalty": ({}, 0.5),
    "repetition_ngram": ({"repetition_penalty": 0.5}, 1),
    "reward_mean": ({"advantage": "reinforce"}, "running"),
    "reward_std": ({"advantage": "reinforce"}, "batch"),
    "reward_clip": ({}, 1.0),
    "advantage_std": ({}, "none"),
    "advantage_eps": ({}, 0.1),
    "gamma": ({"advantage": "reinforce"}, 0.9),
    "unbiased_variance": ({"advantage": "reinforce_pp"}, False),
    "opmd_baseline": ({"advantage": "opmd"}, "log_mean_exp"),
    "tau": ({"policy_loss": "kimi_token"}, 0.5),
    "raft_select": ({"advantage": "raft", "success_reward": 1.5}, "best"),
    "success_reward": ({"advantage": "raft"}, 2.0),
    "whiten_advantages": ({}, True),
    "advantage_clip": ({}, 0.5),
    "difficulty_low": ({"sample_filter": "difficulty"}, 0.4),
    "difficulty_high": ({"sample_filter": "difficulty"}, 0.7),
    "uncertainty_fraction": ({"sample_filter": "uncertainty"}, 0.5),
    "uncertainty_keep_groups": ({"sample_filter": "uncertainty", "uncertainty_fraction": 0.75}, "lowest"),
    "clip_low": ({}, 0.05),
    "clip_high": ({}, 0.05),
    "dual_clip": ({}, 1.2),
    "weight_low": ({"policy_loss": "cispo"}, 0.9),
    "weight_high": ({"policy_loss": "cispo"}, 1.05),
    "mask_clip": ({"policy_loss": "cispo"}, (0.1, 0.1)),
    "weight_cap": ({"policy_loss": "decoupled_ppo"}, 1.1),
    "log_clip_low": ({"policy_loss": "gmpo"}, 0.05),
    "log_clip_high": ({"policy_loss": "gmpo"}, 0.05),
    "tau_positive": ({"policy_loss": "sapo"}, 2.0),
    "tau_negative": ({"policy_loss": "sapo"}, 2.0),
    "ratio_level": ({"policy_loss": "topr"}, "token"),
    "negative_range": ({"policy_loss": "topr"}, (0.9, 0.95)),
    "positive_range": ({"policy_loss": "topr"}, (0.0, 1.0)),
    "positive_weight": ({"policy_loss": "topr"}, 2.0),
    "negative_weight": ({"policy_loss": "topr"}, 2.0),
    "dro_beta": ({"policy_loss": "dro", "dro_beta": 0.1}, 0.2),
    "divergence": ({"policy_loss": "dppo", "divergence_low": 0.01, "divergence_high": 0.01}, "kl"),
    "divergence_low": ({"policy_loss": "dppo"}, 0.01),
    "divergence_high": ({"policy_loss": "dppo"}, 0.01),
    "cov_fraction": ({"policy_loss": "kl_cov"}, 0.5),
    "cov_low": ({"policy_loss": "clip_cov", "cov_low": -5.0, "cov_fraction": 0.5}, 0.2),
    "cov_high": ({"policy_loss": "clip_cov", "cov_low": -5.0, "cov_fraction": 0.5}, -0.1),
    "cov_penalty": ({"policy_loss": "kl_cov", "cov_fraction": 0.5}, 2.0),
    "mask_low": ({"policy_loss": "sao"}, 0.05),
    "mask_high": ({"policy_loss": "sao"}, 0.05),
    "kl_coef": ({}, 0.1),
    "kl_estimator": (KL, "k2"),
    "kl_placement": (KL, "reward"),
    "kl_off_policy": (KL, True),
    "correction_weight": ({}, "token"),
    "correction_weight_cap": ({"correction_weight": "token"}, 1.05),
    "correction_weight_normalized": ({"correction_weight": "sequence"}, True),
    "correction_mask": ({"correction_range": [0.9, 1.1]}, "geometric"),
    "correction_range": ({"correction_mask": "token"}, (0.9, 1.1)),
    "kl_rejection": ({"kl_rejection": "k1", "kl_rejection_range": [-0.1, 0.1]}, "k3"),
    "kl_rejection_level": ({"kl_rejection": "k1", "kl_rejection_range": [-0.1, 0.1]}, "sequence_sum"),
    "kl_rejection_range": ({"kl_rejection": "k1", "kl_rejection_range": [-0.1, 0.1]}, (-0.5, 0.1)),
    "kpop_limit": ({}, 0.01),
    "opsm_limit": ({}, 0.001),
    "m2po_limit": ({}, 0.01),
}
ELSEWHERE = {"preset", "group_size", "epochs_per_batch", "options", "kl_straight_through", "kl_target", "kl_horizon"}
"""Tested by what they do: more answers, passes, the user's own options, gradients, and steps to come."""


def test_every_option_is_among_those_tried():
    assert set(AlgorithmSettings.model_fields) == set(CHANGES) | ELSEWHERE


@pytest.mark.parametrize("option", CHANGES)
def test_every_option_changes_the_loss(option):
    """Failure case 3: no call site drops an option on the way."""
    base, value = CHANGES[option]
    plain, changed = AlgorithmSettings(**base), AlgorithmSettings(**{**base, option: value})
    assert option in changed.reads() and not changed.problems()
    assert composed_loss(plain).loss != composed_loss(changed).loss


def test_the_straight_through_form_has_the_same_value_and_another_gradient():
    plain, through = (AlgorithmSettings(kl_coef=0.1, kl_straight_through=through) for through in (False, True))
    (value, gradient), (same, other) = loss_and_gradient(plain), loss_and_gradient(through)
    close(value, same, atol=1e-12)
    assert not torch.allclose(gradient, other)


@pytest.mark.parametrize("preset", preset_names())
def test_a_preset_gives_a_finite_loss_on_any_step(preset):
    output = composed_loss(AlgorithmSettings(preset=preset))
    assert output.loss.isfinite() and output.loss != 0


@pytest.mark.parametrize("preset", preset_names())
def test_the_order_of_groups_changes_nothing(preset):
    """Groups arrive in the order in which they are finished."""
    algorithm = AlgorithmSettings(preset=preset, whiten_advantages=True, reward_std="batch")
    rows = step_rows()
    names = [episode.id for episode in rows.episodes]
    moved = scored_rows(groups()[::-1])
    order = [names.index(episode.id) for episode in moved.episodes]
    moved.batch = rows.batch.select(order)
    close(composed_loss(algorithm, moved).loss, composed_loss(algorithm).loss, atol=1e-5)


def test_options_that_the_parts_do_not_read_are_named_with_those_they_read():
    unused = AlgorithmSettings(preset="gspo").unused()
    assert "algorithm.dual_clip" in unused and "algorithm.clip_low" not in unused
    assert "policy_loss gspo" in unused["algorithm.dual_clip"] and "clip_high" in unused["algorithm.dual_clip"]
    assert not {f"algorithm.{name}" for name in ALWAYS} & unused.keys()


def test_the_kl_in_the_reward_is_a_constant_on_each_token():
    """Spec 1.5: r_t = reward on the last token − β·k1, with the reward's own advantage estimator."""
    rows = step_rows()
    algorithm = AlgorithmSettings(advantage="reinforce", kl_coef=0.5, kl_placement="reward", kl_estimator="k1")
    learning = learn(algorithm, rows)
    mask = learning.batch.tokens["loss_mask"]
    first = int(rows.batch.tokens["loss_mask"][: int(rows.batch.offsets[1])].sum())
    kl = (rows.batch.tokens["old_logprobs"] - rows.batch.tokens["ref_logprobs"])[mask][:first]
    expected = 1.0 - 0.5 * kl.flip(0).cumsum(0).flip(0)
    close(learning.batch.tokens["advantages"][mask][:first], expected)
    assert learning.metrics["kl/coef"] == 0.5


def test_an_adaptive_controller_moves_per_domain_and_goes_on_after_a_restart():
    algorithm = AlgorithmSettings(kl_coef=0.2, kl_target=1e-6, kl_horizon=40, kl_estimator="k3")
    batches = PolicyBatches(algorithm, 8)
    assert batches.needs_old_logprobs
    learning = batches.make(step_rows())
    coef = learning.batch.tokens["kl_coef"][learning.batch.tokens["loss_mask"]]
    close(coef, torch.full_like(coef, 0.2).double(), atol=1e-6)
    assert learning.metrics["kl/coef"] == pytest.approx(0.2)
    close(batches.state.kl_coef("sums"), 0.2 * (1 + 0.2 * 8 / 40))
    restored = AlgorithmState(algorithm)
    restored.restore(batches.state.state())
    assert restored.kl_coef("sums") == batches.state.kl_coef("sums") != restored.kl_coef("never seen") == 0.2


def test_running_moments_go_on_after_a_restart():
    algorithm = AlgorithmSettings(advantage="reinforce", reward_std="running")
    whole, first = PolicyBatches(algorithm, 8), PolicyBatches(algorithm, 8)
    for batches in (whole, first):
        batches.make(step_rows())
    second = PolicyBatches(algorithm, 8)
    second.state.restore(first.state.state())
    assert whole.make(step_rows()).advantages == second.make(step_rows()).advantages
    assert PolicyBatches(algorithm, 8).make(step_rows()).advantages != whole.make(step_rows()).advantages


def test_filtered_answers_leave_the_batch_and_stay_in_the_statistics():
    everything = learn(AlgorithmSettings(advantage_std="none"))
    filtered = learn(AlgorithmSettings(advantage_std="none", sample_filter="raft"))
    assert filtered.advantages == everything.advantages
    assert filtered.metrics["rows/left_out"] == pytest.approx(7 / 16)
    assert filtered.batch.num_rows == 9 and (filtered.batch.rows["reward"] >= 1).all()


def test_a_step_whose_answers_are_all_filtered_is_no_update():
    """Failure case 51."""
    learning = learn(AlgorithmSettings(sample_filter="raft", success_reward=9.0))
    assert learning.batch is None and len(learning.advantages) == 16


def test_masks_and_weights_are_made_for_the_whole_step():
    rows = step_rows()
    batch = learn(AlgorithmSettings(correction_weight="token", correction_weight_normalized=True), rows).batch
    weights = batch.tokens["correction_weights"][batch.tokens["loss_mask"]]
    close(weights.mean(), 1.0, atol=1e-6)
    assert "correction_keep" not in batch.tokens
    kept = learn(AlgorithmSettings(m2po_limit=0.01), rows).batch
    mask, keep = kept.tokens["loss_mask"], kept.tokens["correction_keep"]
    gap = (kept.tokens["old_logprobs"] - kept.tokens["behaviour_logprobs"])[mask & keep]
    assert gap.square().mean() < 0.01 and 0 < int(keep.sum()) < int(mask.sum())


@pytest.mark.parametrize("preset", preset_names())
def test_rejected_tokens_keep_their_reward(preset):
    """Failure case 46: the outcome belongs to the answer, so a mask on tokens moves no advantage of any estimator."""
    rejecting = {"correction_mask": "token", "correction_range": (0.999, 1.001)}
    whole, masked = (learn(AlgorithmSettings(preset=preset, **options)) for options in ({}, rejecting))
    assert not masked.batch.tokens["correction_keep"][masked.batch.tokens["loss_mask"]].all()
    assert masked.advantages == whole.advantages
    close(masked.batch.tokens["advantages"], whole.batch.tokens["advantages"])


def test_gdpo_reads_each_reward_alone_with_its_weight():
    one = learn(AlgorithmSettings(advantage="gdpo"))
    assert one.advantages != learn(AlgorithmSettings()).advantages
    close(sum(one.advantages.values()), 0.0, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, False),
        ({"kl_coef": 0.1}, False),
        ({"kl_coef": 0.1, "kl_placement": "reward"}, True),
        ({"kl_coef": 0.1, "kl_target": 0.1}, True),
        ({"preset": "tis"}, True),
        ({"policy_loss": "kl_cov"}, True),
        ({"kpop_limit": 2.0}, True),
        ({"preset": "decoupled_ppo"}, False),
    ],
)
def test_old_log_probs_are_computed_only_where_something_needs_them(settings, expected):
    assert PolicyBatches(AlgorithmSettings(**settings)).needs_old_logprobs is expected


def test_a_required_option_has_no_default():
    assert find_part("policy_loss", "dro").options["dro_beta"] is REQUIRED
    assert AlgorithmSettings(policy_loss="dro").problems() == [
        "algorithm.dro_beta is missing: policy_loss dro has no default for it"
    ]
