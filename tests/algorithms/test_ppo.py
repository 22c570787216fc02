import pytest
import torch

from rollick.algorithms.aggregation import aggregate
from rollick.algorithms.kl import kl_estimate
from rollick.algorithms.policy_losses import ppo_clipped, ppo_loss
from rollick.algorithms.ratios import guarded_exp, importance_ratio
from tests.algorithms.toy import ADVANTAGES, NEW, NUM_ROWS, OLD, REF, ROWS, TOTALS, close, f64

CLIP = {"clip_low": 0.2, "clip_high": 0.2}


def token_mean(loss):
    return aggregate(loss, ROWS, NUM_ROWS, "token_mean", **TOTALS)


def test_ratios_of_the_toy_batch():
    close(importance_ratio(NEW, OLD), [1.323130, 0.904837, 1.105171, 0.740818, 0.951229, 3.669297])


def test_clipped_loss_of_the_toy_batch():
    loss = ppo_loss(importance_ratio(NEW, OLD), ADVANTAGES, **CLIP)
    close(loss, [-1.2, -0.904837, 1.105171, 0.8, 0.951229, 3.669297])
    close(token_mean(loss) + 0.001 * token_mean(kl_estimate(NEW, REF, "k3")), 0.736927)


def test_clip_higher_of_the_toy_batch():
    """DAPO."""
    loss = ppo_loss(importance_ratio(NEW, OLD), ADVANTAGES, clip_low=0.2, clip_high=0.28)
    close(loss, [-1.28, -0.904837, 1.105171, 0.8, 0.951229, 3.669297])
    close(token_mean(loss), 0.723477)


def test_dual_clip_of_the_toy_batch():
    close(token_mean(ppo_loss(importance_ratio(NEW, OLD), ADVANTAGES, **CLIP, dual_clip=3.0)), 0.625260)


@pytest.mark.parametrize(
    ("dual_clip", "expected"), [(None, [0.8, 1, 2, 5]), (3.0, [0.8, 1, 2, 3]), (1.4, [0.8, 1, 1.4, 1.4])]
)
def test_dual_clip_bounds_the_loss_of_a_bad_token(dual_clip, expected):
    close(ppo_loss(f64(0.5, 1, 2, 5), -torch.ones(4).double(), **CLIP, dual_clip=dual_clip), expected)


def test_dual_clip_leaves_good_tokens_alone():
    ratio, good = f64(0.5, 1, 2, 50), torch.ones(4).double()
    assert torch.equal(ppo_loss(ratio, good, **CLIP, dual_clip=1.4), ppo_loss(ratio, good, **CLIP))


def test_clip_fraction_of_the_toy_batch():
    clipped = ppo_clipped(importance_ratio(NEW, OLD), ADVANTAGES, **CLIP)
    assert clipped.high.tolist() == [True, False, False, False, False, False]
    assert clipped.low.tolist() == [False, False, False, True, False, False]


def test_a_huge_ratio_without_advantage_contributes_nothing():
    """Failure case 37."""
    logprobs = torch.tensor([120.0], requires_grad=True)
    loss = ppo_loss(importance_ratio(logprobs, torch.zeros(1)), torch.zeros(1), **CLIP)
    loss.sum().backward()
    assert loss == 0 and logprobs.grad == 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("log_ratio", [120.0, -120.0])
@pytest.mark.parametrize("advantage", [-1.0, 1.0])
def test_extreme_ratios_are_finite_forward_and_backward(dtype, log_ratio, advantage):
    """Failure case 37."""
    logprobs = torch.tensor([log_ratio], dtype=dtype, requires_grad=True)
    ratio = importance_ratio(logprobs, torch.zeros(1, dtype=dtype))
    loss = ppo_loss(ratio, torch.tensor([advantage]), **CLIP)
    loss.sum().backward()
    assert loss.isfinite().all() and logprobs.grad.isfinite().all()


@pytest.mark.parametrize("advantage", [-1.0, 0.0, 1.0])
def test_a_nan_ratio_is_surfaced(advantage):
    """Failure case 37."""
    ratio = importance_ratio(torch.tensor([float("nan")]), torch.zeros(1))
    assert ppo_loss(ratio, torch.tensor([advantage]), **CLIP).isnan().all()


def test_the_guard_changes_no_bit_below_ten():
    """Failure case 37."""
    log_ratio = torch.linspace(-10, 10, 2001)
    assert torch.equal(guarded_exp(log_ratio), log_ratio.exp())


@pytest.mark.parametrize("dual_clip", [None, 3.0])
def test_gradients_agree_with_finite_differences(dual_clip):
    def loss(logprobs):
        return ppo_loss(importance_ratio(logprobs, OLD), ADVANTAGES, **CLIP, dual_clip=dual_clip)

    assert torch.autograd.gradcheck(loss, NEW.clone().requires_grad_())


def test_on_policy_gradient_is_minus_advantage_over_the_denominator():
    logprobs = OLD.clone().requires_grad_()
    loss = ppo_loss(importance_ratio(logprobs, OLD), ADVANTAGES, **CLIP)
    aggregate(loss, ROWS, NUM_ROWS, "sequence_mean_token_mean", **TOTALS).backward()
    close(logprobs.grad, [-0.25, -0.25, 0.125, 0.125, 0.125, 0.125])
