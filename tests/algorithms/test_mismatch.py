import pytest
import torch

from rollick.algorithms.mismatch import mismatch_metrics, mismatch_terms
from tests.algorithms.toy import INF, NUM_ROWS, OLD, ROWS, close

EXPECTED = {
    "kl": -0.066667,
    "k3": 0.016138,
    "chi2_token": 0.207593,
    "chi2_sequence": 0.612770,
    "effective_sample_size": 0.970911,
    "prob_diff": 0.030666,
    "prob_diff_max": 0.099298,
    "ppl_rollout": 2.452048,
    "ppl_trainer": 2.319434,
    "ppl_ratio": 0.952419,
}


@pytest.mark.parametrize("name", EXPECTED)
def test_metrics_of_the_toy_batch(name):
    close(mismatch_metrics(INF, OLD, ROWS, NUM_ROWS)[name], EXPECTED[name])


def test_log_ppl_diff_and_correlation_of_the_toy_batch():
    metrics = mismatch_metrics(INF, OLD, ROWS, NUM_ROWS)
    close(metrics["log_ppl_diff"], (0.0 + (-1.025 + 0.925)) / 2)
    close(metrics["prob_correlation"], torch.corrcoef(torch.stack([INF.exp(), OLD.exp()]))[0, 1])


def test_equal_log_probs_show_no_mismatch():
    metrics = mismatch_metrics(OLD, OLD, ROWS, NUM_ROWS)
    for name in ("kl", "k3", "chi2_token", "chi2_sequence", "prob_diff", "prob_diff_max", "log_ppl_diff"):
        assert metrics[name] == 0, name
    for name in ("effective_sample_size", "prob_correlation", "ppl_ratio"):
        close(metrics[name], 1.0)


def test_terms_of_parts_add_up_to_the_whole():
    whole = mismatch_terms(INF, OLD, ROWS, NUM_ROWS)
    first, second = mismatch_terms(INF[:2], OLD[:2], ROWS[:2], 1), mismatch_terms(INF[2:], OLD[2:], ROWS[2:] - 1, 1)
    for name, (total, weight) in whole.items():
        close(first[name][0] + second[name][0], total)
        close(first[name][1] + second[name][1], weight)


def test_a_row_without_live_tokens_does_not_count():
    with_empty = mismatch_terms(INF, OLD, ROWS * 2, 3)
    for name, (total, weight) in mismatch_terms(INF, OLD, ROWS, NUM_ROWS).items():
        close(with_empty[name][0], total)
        close(with_empty[name][1], weight)


def test_a_far_off_engine_gives_finite_numbers():
    metrics = mismatch_metrics(torch.full((300,), -0.1), torch.full((300,), -200.0), torch.zeros(300).long(), 1)
    assert all(torch.tensor(value).isfinite() for value in metrics.values()), metrics
