import pytest
import torch

from rollick.algorithms.aggregation import aggregate
from rollick.algorithms.kl import bernoulli_kl, full_kl, kl_estimate, off_policy_kl, penalised_rewards
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


def test_off_policy_kl_is_weighted_by_the_ratio():
    old = f64(-1.0) - torch.log(f64(1.3))
    close(off_policy_kl(f64(-1.0), f64(-1.5), old, "k3"), [0.138490])


def test_off_policy_kl_has_the_value_and_gradient_of_fresh_samples():
    """Tokens sampled from q, weighted to the policy: expectation KL(p‖ref), gradient that of KL(p‖ref)."""
    behaviour = f64(0.2, 0.2, 0.6)
    logits = P.log().requires_grad_()
    sampled = off_policy_kl(logits.log_softmax(0), Q.log(), behaviour.log(), "k3")
    expected = (behaviour * sampled).sum()
    expected.backward()
    close(expected, 0.116783)
    close(logits.grad, [0.197021, -0.035035, -0.161986])


def test_full_vocabulary_kl():
    close(full_kl(P.log(), Q.log()), 0.116783)
    close(full_kl(Q.log(), P.log()), 0.124011)
    close(full_kl(P.log(), P.log()), 0.0)
    close(full_kl(f64(0, 0.5, 0.5).log(), f64(0.5, 0.25, 0.25).log()), torch.log(f64(2.0))[0])
    logits = P.log().requires_grad_()
    full_kl(logits.log_softmax(0), Q.log()).backward()
    close(logits.grad, [0.197021, -0.035035, -0.161986])


def test_bernoulli_kl():
    close(bernoulli_kl(f64(0.9, 0.1, 0.5).log(), f64(0.1, 0.9, 0.4).log()), [1.757780, 1.757780, 0.020411])
    extreme = bernoulli_kl(torch.tensor([0.0, -0.1, -200.0]), torch.tensor([-200.0, 0.0, 0.0]))
    assert extreme.isfinite().all()


def test_the_kl_can_be_paid_from_the_reward():
    """Failure case 43: once, as a constant."""
    logprobs = f64(-1.0, -1.0, -1.0).requires_grad_()
    rewards = penalised_rewards(f64(0, 0, 1), logprobs, f64(-1.1, -0.8, -1.3), coef=0.1)
    close(rewards, [-0.01, 0.02, 0.97])
    close(rewards.sum(), 0.98)
    assert not rewards.requires_grad
