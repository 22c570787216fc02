import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollick.algorithms.aggregation import aggregate, live_sequences
from rollick.algorithms.policy_losses import ppo_loss
from rollick.algorithms.ratios import importance_ratio
from tests.algorithms.toy import ADVANTAGES, NEW, NUM_ROWS, OLD, ROWS, TOTALS, close

MODES = ["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "sequence_mean_token_sum_norm"]


@pytest.mark.parametrize(("mode", "expected"), zip(MODES, [0.736810, 0.289503, 2.210430, 0.552607]))
def test_the_modes_give_the_numbers_of_the_toy_batch(mode, expected):
    loss = ppo_loss(importance_ratio(NEW, OLD), ADVANTAGES, clip_low=0.2, clip_high=0.2)
    close(aggregate(loss, ROWS, NUM_ROWS, mode, **TOTALS, max_length=4), expected)


def test_the_norm_mode_of_roll_leaves_out_the_mean_over_answers():
    """ROLL's variant is the sum over the constant: ours with one sequence."""
    loss = ppo_loss(importance_ratio(NEW, OLD), ADVANTAGES, clip_low=0.2, clip_high=0.2)
    share = aggregate(loss, ROWS, NUM_ROWS, "sequence_mean_token_sum_norm", tokens=6, sequences=1, max_length=4)
    close(share, 1.105215)


@pytest.mark.parametrize(("mode", "expected"), zip(MODES, [0.375, 0.5, 1.5, 0.25]))
def test_the_mode_decides_what_a_short_answer_weighs(mode, expected):
    """Failure case 28: 3 tokens of loss 1 and 5 of loss 0."""
    values, rows = torch.tensor([1.0] * 3 + [0.0] * 5), torch.tensor([0] * 3 + [1] * 5)
    assert float(aggregate(values, rows, 2, mode, tokens=8, sequences=2, max_length=6)) == expected


@pytest.mark.parametrize("mode", MODES)
@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(0, 6), min_size=2, max_size=8), cut=st.integers(1, 7), seed=st.integers(0, 999))
def test_shares_of_parts_add_up_to_the_whole(mode, lengths, cut, seed):
    """Empty rows included: they weigh nothing and count nowhere."""
    rows = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    values = torch.randn(len(rows), dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    totals = {"tokens": len(rows), "sequences": live_sequences(rows, len(lengths)), "max_length": 6}
    whole = aggregate(values, rows, len(lengths), mode, **totals)
    cut = min(cut, len(lengths) - 1)
    first, second = rows < cut, rows >= cut
    parts = aggregate(values[first], rows[first], cut, mode, **totals)
    parts += aggregate(values[second], rows[second] - cut, len(lengths) - cut, mode, **totals)
    close(parts, whole, atol=1e-12)


@pytest.mark.parametrize("mode", MODES)
def test_nothing_to_train_gives_zero_and_keeps_the_graph(mode):
    values = torch.zeros(0, requires_grad=True)
    loss = aggregate(values, torch.zeros(0, dtype=torch.long), 3, mode, tokens=0, sequences=0, max_length=4)
    loss.backward()
    assert loss == 0


def test_the_norm_mode_needs_its_constant():
    with pytest.raises(ValueError, match="max_length, which is 0"):
        aggregate(NEW, ROWS, NUM_ROWS, "sequence_mean_token_sum_norm", **TOTALS)


def test_an_unknown_mode_is_refused():
    with pytest.raises(ValueError, match="'mean'"):
        aggregate(NEW, ROWS, NUM_ROWS, "mean", **TOTALS)
