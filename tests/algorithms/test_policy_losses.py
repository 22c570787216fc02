"""Numbers of the papers for every policy loss but PPO's (which has its own file)."""

import pytest
import torch

from rollick.algorithms.advantages import chunk_returns
from rollick.algorithms.aggregation import aggregate
from rollick.algorithms.policy_losses import (
    cispo_loss,
    clip_cov_loss,
    clip_cov_selection,
    decoupled_ppo_loss,
    dppo_keep,
    dppo_loss,
    dro_loss,
    gmpo_loss,
    gspo_token_loss,
    interpolated_proximal,
    ipa_loss,
    kimi_sequence_loss,
    kimi_token_loss,
    kl_cov_loss,
    kl_cov_selection,
    opmd_loss,
    policy_gradient_loss,
    ppo_loss,
    sao_loss,
    sapo_loss,
    segment_ppo_loss,
    tis_loss,
    token_covariance,
    topr_loss,
)
from rollick.algorithms.ratios import geometric_ratio, importance_ratio, product_ratio
from tests.algorithms.toy import ADVANTAGES, INF, NEW, NUM_ROWS, OLD, ROWS, TOTALS, close, f64

HALF = ADVANTAGES / 2
LONG = ROWS[2:] - 1
CLIP = {"clip_low": 0.2, "clip_high": 0.2}


def token_mean(loss):
    return aggregate(loss, ROWS, NUM_ROWS, "token_mean", **TOTALS)


def sequence_mean(loss):
    return aggregate(loss, ROWS, NUM_ROWS, "sequence_mean_token_mean", **TOTALS)


def gradient(loss_of, start=NEW, reduce=sequence_mean):
    leaf = start.clone().requires_grad_()
    reduce(loss_of(leaf)).backward()
    return leaf.grad


def test_sequence_ratios_of_a_long_answer_do_not_explode():
    """Failure case 42."""
    one_row = torch.zeros(2000, dtype=torch.long)
    log_ratio = torch.full((2000,), 0.002, dtype=torch.float64)
    close(geometric_ratio(log_ratio, log_ratio * 0, one_row, 1), [1.002002], atol=1e-6)
    close(product_ratio(log_ratio, log_ratio * 0, one_row, 1), [54.598150], atol=1e-5)


def test_raft_and_raft_pp_on_the_selected_answer():
    """The second answer was wrong and is not in the batch, or has A = 0 and stays in the denominator."""
    close(policy_gradient_loss(NEW[:2], torch.ones(2).double()).mean(), 0.660000)
    ratio, good = importance_ratio(NEW, OLD), f64(1, 1, 0, 0, 0, 0)
    close(ppo_loss(ratio[:2], good[:2], **CLIP).mean(), -1.052419)
    close(token_mean(ppo_loss(ratio, good, **CLIP)), -0.350806)


TOPR = {
    "logprobs": f64(-0.72, -0.60, -0.9, -0.8),
    "behaviour_logprobs": f64(-9.0, -9.0, -0.7, -0.5),  # a positive answer's own ratio is not read
    "advantages": f64(1, 1, -1, -1),
    "rows": torch.tensor([0, 0, 1, 1]),
    "num_rows": 2,
}


@pytest.mark.parametrize(
    ("ratio_level", "mode", "expected"),
    [
        ("trajectory", "sequence_mean_token_mean", 0.072224),
        ("trajectory", "sequence_mean_token_sum", 0.144449),
        ("token", "sequence_mean_token_mean", -0.002378),
    ],
)
def test_topr(ratio_level, mode, expected):
    loss = topr_loss(**TOPR, ratio_level=ratio_level)
    close(aggregate(loss, TOPR["rows"], 2, mode, tokens=4, sequences=2), expected)


def test_topr_weights_and_ranges():
    weight = topr_loss(**TOPR, ratio_level="token") / -(TOPR["advantages"] * TOPR["logprobs"])
    close(weight, [1, 1, 0.818731, 0.740818])
    wide = topr_loss(
        **TOPR, ratio_level="token", positive_range=(0.0, 2.0), negative_range=(0.8, 1.0), positive_weight=0.5
    )
    close(wide / -(TOPR["advantages"] * TOPR["logprobs"]), [1, 1, 0.818731, 0.8])
    with pytest.raises(ValueError, match="'sequence'"):
        topr_loss(**TOPR, ratio_level="sequence")


@pytest.mark.parametrize(("low", "high", "expected"), [(0.2, 0.2, 0.103001), (3e-4, 4e-4, 0.149888)])
def test_gspo(low, high, expected):
    close(geometric_ratio(NEW, OLD, ROWS, NUM_ROWS), [1.094174, 1.300176])
    loss = segment_ppo_loss(NEW, OLD, ADVANTAGES, ROWS, NUM_ROWS, clip_low=low, clip_high=high)
    close(sequence_mean(loss), expected)


def test_gspo_defaults_are_the_papers_and_clip_the_good_answer():
    loss = segment_ppo_loss(NEW, OLD, ADVANTAGES, ROWS, NUM_ROWS)
    close(loss, [-1.000400, -1.000400] + [1.300176] * 4)
    grad = gradient(lambda lp: segment_ppo_loss(lp, OLD, ADVANTAGES, ROWS, NUM_ROWS))
    close(grad, [0, 0, 0.162522, 0.162522, 0.162522, 0.162522])


def test_gspo_gradients_and_its_token_form_agree_for_a_constant_advantage():
    expected = [-0.273544, -0.273544, 0.162522, 0.162522, 0.162522, 0.162522]
    for loss in (segment_ppo_loss, gspo_token_loss):
        close(gradient(lambda lp, loss=loss: loss(lp, OLD, ADVANTAGES, ROWS, NUM_ROWS, **CLIP)), expected)
    close(token_mean(segment_ppo_loss(NEW, OLD, ADVANTAGES, ROWS, NUM_ROWS, **CLIP)), 0.502060)  # as AReaL


def test_gspo_token_takes_an_advantage_per_token():
    advantages = f64(-1, -2, -1, -0.5)
    leaf = NEW[2:].clone().requires_grad_()
    loss = gspo_token_loss(leaf, OLD[2:], advantages, LONG, 1, **CLIP).mean()
    loss.backward()
    close(loss, 1.462699)
    close(leaf.grad, [0.325044, 0.650088, 0.325044, 0.162522])


def test_a_ratio_per_segment():
    segments = torch.tensor([0, 0, 1, 1, 2, 2])
    loss = segment_ppo_loss(NEW, OLD, torch.ones(6).double(), segments, 3, clip_low=0.9, clip_high=9.0)
    close(loss, -torch.exp(f64(0.09, 0.09, -0.1, -0.1, 0.625, 0.625)))


@pytest.mark.parametrize(
    ("low", "high", "expected"), [(0, 1.28, -0.149793), (0.9, 1.1, -0.204671), (0, 5.0, -0.224261)]
)
def test_cispo(low, high, expected):
    close(token_mean(cispo_loss(NEW, OLD, ADVANTAGES, weight_low=low, weight_high=high)), expected)


def test_cispo_weights_and_unified_mask():
    close(cispo_loss(NEW, OLD, ADVANTAGES) / -(ADVANTAGES * NEW), [1.28, 0.904837, 1.105171, 0.740818, 0.951229, 1.28])
    masked = cispo_loss(NEW, OLD, ADVANTAGES, mask_clip=(0.2, 0.28))
    assert (masked != 0).tolist() == [False, True, True, False, True, True]


def test_cispo_keeps_the_gradient_of_tokens_that_ppo_stops():
    grad = gradient(lambda lp: cispo_loss(lp, OLD, ADVANTAGES), reduce=token_mean)
    close(grad[0], -1.28 / 6)


@pytest.mark.parametrize(("log_clip", "expected"), [(0.4, 0.103001), (0.2, 0.140910)])
def test_gmpo(log_clip, expected):
    loss = gmpo_loss(NEW, OLD, ADVANTAGES, ROWS, NUM_ROWS, log_clip_low=log_clip, log_clip_high=log_clip)
    close(sequence_mean(loss), expected)


def test_gmpo_clips_tokens_in_log_space():
    loss = gmpo_loss(NEW, OLD, ADVANTAGES, ROWS, NUM_ROWS, log_clip_low=0.2, log_clip_high=0.2)
    close(loss[[0, 2]], [-torch.exp(f64(0.2, -0.1).mean()), torch.exp(f64(0.1, -0.2, -0.05, 1.3).mean())])


def test_sapo():
    loss = sapo_loss(NEW, OLD, ADVANTAGES)
    close(loss * -ADVANTAGES, [2.320347, 1.904909, 2.009826, 1.647168, 1.856002, 3.591714])
    close(sequence_mean(loss), 0.081775)
    close(token_mean(loss), 0.813242)


@pytest.mark.parametrize(
    ("ratio", "tau", "slope"), [(1.0, 1.0, 1.0), (1.2, 1.0, 0.990066), (2, 1, 0.786448), (2, 1.05, 0.768110)]
)
def test_the_slope_of_sapos_gate(ratio, tau, slope):
    leaf = f64(ratio).log().requires_grad_()
    loss = sapo_loss(leaf, f64(0.0), f64(1.0), tau_positive=tau)
    loss.sum().backward()
    close(-leaf.grad / ratio, [slope])


def test_mirror_descent_losses():
    close(sequence_mean(kimi_sequence_loss(NEW, OLD, HALF, ROWS, NUM_ROWS)), -0.304128)
    close(token_mean(kimi_token_loss(NEW, OLD, HALF)), -0.095159)
    close(token_mean(opmd_loss(NEW, HALF)), -0.055417)


def test_kimis_sequence_loss_gives_every_token_the_value_of_its_own_row():
    likelihood = f64(0.5 * -1.32, -0.5 * -2.65)
    close(kimi_sequence_loss(NEW, OLD, HALF, ROWS, NUM_ROWS), (0.05 * f64(0.18, 1.05).square() - likelihood)[ROWS])


def test_tis_weights_are_truncated_and_carry_no_gradient():
    weight = importance_ratio(NEW, OLD).clamp(0, 1)
    close(tis_loss(NEW, OLD, ADVANTAGES), -weight * ADVANTAGES * NEW)
    close(gradient(lambda lp: tis_loss(lp, OLD, ADVANTAGES), reduce=token_mean), -weight * ADVANTAGES / 6)
    close(tis_loss(NEW, OLD, ADVANTAGES, weight_low=0.9, weight_high=2.0)[[3, 5]], f64(0.9 * -1.5, 2 * -0.2))


def test_decoupled_ppo():
    close(token_mean(decoupled_ppo_loss(NEW, OLD, INF, ADVANTAGES)), 0.779106)
    naive = ppo_loss(importance_ratio(NEW, INF), ADVANTAGES, **CLIP)
    close(token_mean(naive), 0.774645)
    capped = decoupled_ppo_loss(NEW, OLD, INF, ADVANTAGES, weight_cap=1.2)
    close(token_mean(capped), 0.740196)


def test_decoupled_ppo_is_ppo_where_the_engine_is_the_trainer():
    plain = ppo_loss(importance_ratio(NEW, OLD), ADVANTAGES, **CLIP)
    assert torch.equal(decoupled_ppo_loss(NEW, OLD, OLD, ADVANTAGES), plain)


def test_the_proximal_policy_can_be_interpolated_by_version():
    """α = (v_prox − v_μ)/(v_θ − v_μ): 0 for a token of the current or the last version, 1/2 two versions ago."""
    proximal = interpolated_proximal(f64(-1, -1, -1, -1), f64(-2, -2, -2, -2), torch.tensor([7, 6, 5, 4]), version=7)
    close(proximal, [-2, -2, -1.5, -2 + 2 / 3])


def test_dro():
    close(dro_loss(NEW, OLD, ADVANTAGES, dro_beta=0.5), -(ADVANTAGES * NEW - 0.25 * (NEW - OLD) ** 2))
    with pytest.raises(ValueError, match="beta > 0, got 0"):
        dro_loss(NEW, OLD, ADVANTAGES, dro_beta=0.0)


PROBS = f64(0.9, 0.001, 0.5, 0.9, 0.5)
OLD_PROBS = f64(0.5, 0.0001, 0.9, 0.5, 0.4)


@pytest.mark.parametrize(
    ("advantage", "divergence", "limit", "expected"),
    [
        (1.0, "tv", 0.2, [False, True, True, False, True]),  # a rare token may grow tenfold
        (-1.0, "tv", 0.2, [True, True, False, True, True]),
        (1.0, "kl", 0.03, [False, True, True, False, True]),
        (1.0, "kl", 0.01, [False, True, True, False, False]),
    ],
)
def test_dppo_stops_only_tokens_that_leave_the_trust_region(advantage, divergence, limit, expected):
    advantages = torch.full((5,), advantage, dtype=torch.float64)
    bounds = {"divergence": divergence, "divergence_low": limit, "divergence_high": limit}
    assert dppo_keep(PROBS.log(), OLD_PROBS.log(), advantages, **bounds).tolist() == expected
    loss = dppo_loss(PROBS.log(), OLD_PROBS.log(), advantages, **bounds, weight_cap=5.0)
    weight = (PROBS / OLD_PROBS).clamp(max=5.0)
    close(loss, torch.where(torch.tensor(expected), -weight * advantages * PROBS.log(), 0.0))


def test_dppo_keeps_a_token_without_advantage_wherever_it_went():
    assert dppo_keep(
        PROBS.log(), OLD_PROBS.log(), torch.zeros(5).double(), divergence_low=0.0, divergence_high=0.0
    ).all()


def test_dppo_refuses_an_unknown_divergence():
    with pytest.raises(ValueError, match="'js'"):
        dppo_keep(NEW, OLD, ADVANTAGES, divergence="js")


def test_covariance_selections():
    logprobs, advantages = f64(-3, -1, -1, -3), f64(-2, 2, -2, 2)
    covariance = token_covariance(logprobs, advantages)
    close(covariance, [2, 2, -2, -2])
    assert not token_covariance(logprobs.requires_grad_(), advantages).requires_grad
    assert kl_cov_selection(covariance, cov_fraction=0.25).tolist() == [True, False, False, False]
    draw = lambda seed, **bounds: clip_cov_selection(
        covariance, cov_fraction=0.25, generator=torch.Generator().manual_seed(seed), **bounds
    )
    picked = torch.stack([draw(seed) for seed in range(20)])
    assert (picked.sum(1) == 1).all() and picked[:, :2].any(0).all() and not picked[:, 2:].any()
    assert torch.equal(draw(3), draw(3))
    assert not draw(0, cov_low=2.5, cov_high=5.0).any()


def test_covariance_losses_touch_only_the_selected_tokens():
    selected = torch.tensor([True, False, False, False, False, True])
    plain = ppo_loss(importance_ratio(NEW, OLD), ADVANTAGES, **CLIP)
    close(clip_cov_loss(NEW, OLD, ADVANTAGES, selected), torch.where(selected, 0.0, plain))
    surrogate = -importance_ratio(NEW, OLD) * ADVANTAGES
    held = kl_cov_loss(NEW, OLD, ADVANTAGES, selected, cov_penalty=0.5)
    close(held - surrogate, [0.14, 0, 0, 0, 0, 0.65])
    for loss in (clip_cov_loss, kl_cov_loss):
        with pytest.raises(TypeError, match="selected must be a bool"):
            loss(NEW, OLD, ADVANTAGES, ADVANTAGES)


def test_sao_masks_on_both_sides_whatever_the_sign():
    ratio = f64(0.5, 0.8, 5.9, 6.1)
    for sign in (1.0, -1.0):
        close(sao_loss(ratio.log(), f64(0, 0, 0, 0), torch.full((4,), sign).double()), -sign * f64(0, 0.8, 5.9, 0))


CHUNKS = torch.tensor([0, 0, 1, 1, 1, 2])
DRIFT, GAP = f64(0.1, -0.3, 0.2, 0.1, 0, -0.5), f64(0.05, 0.02, 0.4, 0.3, 0.2, 0)


@pytest.mark.parametrize(("reward", "expected"), [(1.0, [0.81, 0, 1.0]), (-1.0, [-0.732918, 0, -0.606531])])
def test_ipa(reward, expected):
    behaviour = f64(-1, -1, -1, -1, -1, -1)
    old, logprobs = behaviour + GAP, behaviour + GAP + DRIFT
    close(geometric_ratio(logprobs, old, CHUNKS, 3), [0.904837, 1.105171, 0.606531])
    close(geometric_ratio(old, behaviour, CHUNKS, 3), [1.035620, 1.349859, 1.0])
    returns = chunk_returns(f64(reward), torch.zeros(6, dtype=torch.long), CHUNKS, gamma=0.9)
    weight = -gradient(
        lambda lp: ipa_loss(lp, old, behaviour, returns, CHUNKS, 3, mismatch_limit=1.2), logprobs, torch.sum
    )
    close(weight, f64(*expected)[CHUNKS])


def test_the_mismatch_of_ipa_is_between_engine_and_old_policy():
    """However far the update has moved the policy since, a chunk that the engine sampled faithfully stays."""
    behaviour = f64(-1, -1, -1, -1, -1, -1)
    moved = ipa_loss(behaviour + 0.9, behaviour, behaviour, torch.ones(6).double(), CHUNKS, 3, mismatch_limit=1.2)
    close(moved, -(behaviour + 0.9))
