import pytest
import torch

from rollick.algorithms.aggregation import aggregate
from rollick.algorithms.kl import kl_estimate
from tests.algorithms.toy import NEW, NUM_ROWS, REF, ROWS, TOTALS, close, f64

ESTIMATORS = ["k1", "abs", "k2", "k3"]


@pytest.mark.parametrize(("estimator", "expected"), zip(ESTIMATORS, [0.5, 0.5, 0.125, 0.106531]))
def test_estimates_of_one_token(estimator, expected):
    close(kl_estimate(f64(-1.0), f64(-1.5), estimator), [expected])


def test_k3_is_not_symmetric():
    close(kl_estimate(f64(-1.5), f64(-1.0), "k3"), [0.148721])


def test_k3_on_the_toy_batch():
    k3 = kl_estimate(NEW, REF, "k3")
    close(k3, [0.063861, 0.0, 0.040818, 0.091825, 0.005171, 0.501194])
    close(aggregate(k3, ROWS, NUM_ROWS, "token_mean", **TOTALS), 0.117145)


P, Q = f64(0.5, 0.3, 0.2), f64(0.3, 0.3, 0.4)


@pytest.mark.parametrize(("estimator", "expected"), [("k1", 0.116783), ("k2", 0.113281), ("k3", 0.116783)])
def test_expected_values_under_the_policy(estimator, expected):
    close((P * kl_estimate(P.log(), Q.log(), estimator)).sum(), expected)


@pytest.mark.parametrize(
    ("estimator", "straight_through", "expected"),
    [
        ("k1", False, [0, 0, 0]),
        ("k2", False, [0.197021, -0.035035, -0.161986]),  # the gradient of KL(p‖q)
        ("k3", False, [0.2, 0, -0.2]),  # the gradient of KL(q‖p)
        ("k1", True, [0.197021, -0.035035, -0.161986]),
        ("k3", True, [0.197021, -0.035035, -0.161986]),
    ],
)
def test_expected_gradients_on_the_logits(estimator, straight_through, expected):
    logits = P.log().requires_grad_()
    sampled = kl_estimate(logits.log_softmax(0), Q.log(), estimator, straight_through=straight_through)
    (P * sampled).sum().backward()
    close(logits.grad, expected)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_straight_through_keeps_the_value(estimator):
    assert torch.equal(kl_estimate(NEW, REF, estimator, straight_through=True), kl_estimate(NEW, REF, estimator))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16, torch.float64])
@pytest.mark.parametrize("estimator", ESTIMATORS)
@pytest.mark.parametrize("straight_through", [False, True])
def test_drifted_tokens_have_finite_values_and_gradients(dtype, estimator, straight_through):
    """Failure case 36."""
    logprobs = torch.tensor([-200.0, -0.1], dtype=dtype, requires_grad=True)
    ref = torch.tensor([-0.1, -200.0], dtype=dtype)
    value = kl_estimate(logprobs, ref, estimator, straight_through=straight_through)
    value.sum().backward()
    assert value.isfinite().all() and logprobs.grad.isfinite().all()


def test_the_guard_changes_no_bit_of_ordinary_values():
    """Failure case 36."""
    x = torch.linspace(-10, 10, 1001)
    assert torch.equal(kl_estimate(x, torch.zeros_like(x), "k3"), torch.exp(-x) - 1 - (-x))


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_non_finite_log_prob_is_not_hidden(estimator):
    """Failure case 36."""
    assert kl_estimate(f64(float("nan")), f64(-1.0), estimator).isnan().all()


def test_an_unknown_estimator_is_refused():
    with pytest.raises(ValueError, match="'k4'"):
        kl_estimate(NEW, REF, "k4")
