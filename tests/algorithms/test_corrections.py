import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollick.algorithms.aggregation import aggregate
from rollick.algorithms.corrections import (
    corrected,
    divergence_keep,
    icepop_weights,
    kpop_keep,
    m2po_keep,
    mismatch_weights,
    normalized,
    opsm_keep,
    probability_gap,
    truncated,
    within,
)
from rollick.algorithms.policy_losses import ppo_loss
from rollick.algorithms.ratios import importance_ratio
from tests.algorithms.toy import ADVANTAGES, INF, NEW, NUM_ROWS, OLD, ROWS, TOTALS, close, f64

LOSS = ppo_loss(importance_ratio(NEW, OLD), ADVANTAGES, clip_low=0.2, clip_high=0.2)
TOY = (OLD, INF, ROWS, NUM_ROWS)
TOKEN = mismatch_weights(*TOY, level="token")


def token_mean(loss):
    return aggregate(loss, ROWS, NUM_ROWS, "token_mean", **TOTALS)


def test_weights_of_every_level():
    close(TOKEN, [1.051271, 0.951229, 1.051271, 1.491825, 1.000000, 0.951229])
    close(mismatch_weights(*TOY, level="sequence"), f64(1.0, 1.491825)[ROWS])
    close(mismatch_weights(*TOY, level="geometric"), f64(1.0, 1.105171)[ROWS])
    segments = (torch.tensor([0, 0, 1, 1, 2, 2]), 3)
    by_segment = mismatch_weights(*TOY, level="segment", segments=segments)
    close(by_segment, torch.exp(f64(0, 0, 0.225, 0.225, -0.025, -0.025)))


def test_levels_of_a_short_answer():
    """Failure case 42."""
    gap, rows = f64(0.2, 0.0, -0.05), torch.zeros(3, dtype=torch.long)
    close(mismatch_weights(gap, gap * 0, rows, 1, level="geometric"), [1.05127] * 3, atol=1e-5)
    close(mismatch_weights(gap, gap * 0, rows, 1, level="sequence"), [1.16183] * 3, atol=1e-5)


def test_truncated_importance_sampling():
    close(truncated(TOKEN, 1.2)[2:], [1.051271, 1.200000, 1.000000, 0.951229])
    close(token_mean(corrected(LOSS, weights=truncated(TOKEN, 1.2))), 0.740196)
    close(truncated(f64(0.3, 0.9, 1.4, 6), 2.0), [0.3, 0.9, 1.4, 2.0])
    close(truncated(mismatch_weights(*TOY, level="sequence"), 2.0), f64(1.0, 1.491825)[ROWS])


def test_masked_importance_sampling_keeps_the_original_denominator():
    keep = within(TOKEN, 0.8, 1.2)
    assert keep[2:].tolist() == [True, False, True, True]
    masked = corrected(LOSS, keep=keep)
    close(token_mean(masked), 0.603477)
    close(masked.sum() / keep.sum(), 0.724172)
    close(token_mean(corrected(LOSS, weights=TOKEN, keep=keep)), 0.580196)
    by_row = within(mismatch_weights(*TOY, level="sequence"), 0.0, 1.2)
    assert by_row.tolist() == [True, True, False, False, False, False]


def test_bounds_belong_to_what_is_kept():
    assert within(f64(0.8, 1.2, 0.79, 1.21), 0.8, 1.2).tolist() == [True, True, False, False]


def test_icepop():
    close(icepop_weights(f64(0.3, 0.9, 1.4, 6)), [0, 0.9, 1.4, 0])
    close(icepop_weights(TOKEN, 0.5, 5.0), TOKEN)


def test_kpop_takes_the_worse_direction():
    old, behaviour = f64(0.9, 0.1, 0.5).log(), f64(0.1, 0.9, 0.4).log()
    assert kpop_keep(old, behaviour, limit=1.757).tolist() == [False, False, True]
    assert kpop_keep(old, behaviour, limit=1.758).tolist() == [True, True, True]
    assert kpop_keep(old, behaviour).all()


@pytest.mark.parametrize(
    ("estimator", "level", "bounds", "expected"),
    [
        ("k1", "token", (-0.2231, 0.1823), [1, 1, 1, 0, 1, 1]),  # verl's "0.8_1.2": w in [0.8333, 1.25]
        ("k1", "sequence_sum", (-0.3, 0.3), [1, 1, 0, 0, 0, 0]),
        ("k1", "sequence_mean", (-0.3, 0.3), [1, 1, 1, 1, 1, 1]),
        ("k2", "token", (0, 0.05), [1, 1, 1, 0, 1, 1]),
        ("k2", "sequence_max", (0, 0.05), [1, 1, 0, 0, 0, 0]),
        ("k3", "sequence_sum", (0, 0.05), [1, 1, 0, 0, 0, 0]),
        ("k3", "sequence_mean", (0, 0.05), [1, 1, 1, 1, 1, 1]),
    ],
)
def test_rejection_by_an_estimate_of_the_divergence(estimator, level, bounds, expected):
    keep = divergence_keep(*TOY, estimator=estimator, level=level, low=bounds[0], high=bounds[1])
    assert keep.int().tolist() == expected


def test_opsm_drops_bad_answers_that_the_policy_has_left():
    """mean(old − lp) per row is −0.09, −0.2625, with μ −0.09, −0.3625; only rows with A < 0 may go."""
    drop_below = lambda source, limit: opsm_keep(NEW, source, ADVANTAGES, ROWS, NUM_ROWS, limit=limit)
    assert drop_below(OLD, -0.2626).tolist() == [True, True, False, False, False, False]
    assert drop_below(OLD, -0.2624).all()
    assert drop_below(INF, -0.3624).all() and not drop_below(INF, -0.3626)[2:].any()


def test_m2po_drops_the_farthest_tokens_until_the_rest_is_close():
    gap = f64(0.1, -1.0, 0.2, 0.5)
    squared = gap.square()
    assert m2po_keep(gap, gap * 0, limit=0.02 + squared[0] + 1).all()
    assert m2po_keep(gap, gap * 0, limit=0.11).tolist() == [True, False, True, True]
    assert m2po_keep(gap, gap * 0, limit=0.03).tolist() == [True, False, True, False]
    assert m2po_keep(gap, gap * 0, limit=1e-9).tolist() == [True, False, False, False]
    assert len(m2po_keep(f64(), f64(), limit=1.0)) == 0


@settings(max_examples=60, deadline=None)
@given(gaps=st.lists(st.floats(-3, 3), min_size=1, max_size=12), limit=st.floats(1e-3, 4))
def test_m2po_keeps_as_many_as_it_may(gaps, limit):
    gap = f64(*gaps)
    keep = m2po_keep(gap, gap * 0, limit=limit)
    kept = gap[keep].square()
    assert keep.any() and (len(kept) == 1 or kept.mean() < limit)
    if not keep.all():
        next_smallest = gap[~keep].square().min()
        assert kept.max() <= next_smallest and (kept.sum() + next_smallest) / (len(kept) + 1) >= limit


def test_the_difference_of_probabilities_per_level():
    close(probability_gap(*TOY, level="token"), OLD.exp() - INF.exp())
    close(probability_gap(*TOY, level="sequence")[2], torch.exp(OLD[2:].sum()) - torch.exp(INF[2:].sum()))
    close(probability_gap(*TOY, level="geometric")[2], torch.exp(OLD[2:].mean()) - torch.exp(INF[2:].mean()))
    segments = (ROWS, NUM_ROWS)
    by_segment = probability_gap(*TOY, level="segment", segments=segments)
    close(by_segment, probability_gap(*TOY, level="geometric"))
    assert within(probability_gap(*TOY, level="token"), -0.2, 0.2).all()


def test_weights_can_be_scaled_to_a_mean_of_one():
    close(normalized(TOKEN), TOKEN / 1.082804, atol=1e-5)
    close(normalized(TOKEN).mean(), 1.0)


def test_weights_carry_no_gradient():
    old = OLD.clone().requires_grad_()
    for level in ("token", "sequence", "geometric"):
        assert not mismatch_weights(old, INF, ROWS, NUM_ROWS, level=level).requires_grad


def test_where_the_engine_is_the_trainer_nothing_is_corrected():
    for level in ("token", "sequence", "geometric"):
        close(mismatch_weights(OLD, OLD, ROWS, NUM_ROWS, level=level), [1.0] * 6)
    assert kpop_keep(OLD, OLD, limit=1e-9).all() and m2po_keep(OLD, OLD, limit=1e-9).all()


def test_nan_is_kept_so_that_it_surfaces():
    behaviour = INF.clone()
    behaviour[0] = torch.nan
    weights = mismatch_weights(OLD, behaviour, ROWS, NUM_ROWS, level="token")
    assert corrected(LOSS, weights=weights, keep=within(weights, 0.8, 1.2)).sum().isnan()
    assert icepop_weights(weights).sum().isnan()


def test_nan_at_a_masked_position_does_not_leak():
    loss = LOSS.clone()
    loss[3] = torch.nan
    close(token_mean(corrected(loss, keep=within(TOKEN, 0.8, 1.2))), 0.603477)


def test_a_float_mask_is_refused():
    """Failure case 38: the mask changes the loss by the hand value, and advantages are no mask."""
    loss = f64(-0.5, 0.5)
    close(corrected(loss, keep=torch.tensor([True, True])).sum(), 0.0)
    close(corrected(loss, keep=torch.tensor([True, False])).sum(), -0.5)
    with pytest.raises(TypeError, match="keep must be a bool tensor"):
        corrected(loss, keep=f64(0.5, -0.5))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mismatch_weights(*TOY, level="turn"), "unknown level 'turn'"),
        (lambda: mismatch_weights(*TOY, level="segment"), "needs the segments"),
        (lambda: divergence_keep(*TOY, estimator="k1", level="row", high=1.0), "unknown level 'row'"),
    ],
)
def test_unknown_levels_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
