import pytest
import torch

from rollick.algorithms.value_loss import explained_variance, value_clipped, value_loss
from tests.algorithms.toy import close, f64

OLD_VALUES, VALUES = f64(0.5, 0.6, 0.8), f64(0.9, 0.55, 0.75)
RETURNS = f64(0.9705, 0.99, 1.0)


def test_clipped_and_plain_value_loss():
    close(value_loss(VALUES, OLD_VALUES, RETURNS) * 2, [0.004970, 0.193600, 0.062500])
    close(value_loss(VALUES, OLD_VALUES, RETURNS).mean(), 0.043512)
    close(value_loss(VALUES, OLD_VALUES, RETURNS, clip=0.2) * 2, [0.073170, 0.193600, 0.062500])
    close(value_loss(VALUES, OLD_VALUES, RETURNS, clip=0.2).mean(), 0.054878)


def test_clipped_tokens_are_found_and_have_no_gradient():
    assert value_clipped(VALUES, OLD_VALUES, RETURNS, clip=0.2).tolist() == [True, False, False]
    leaf = VALUES.clone().requires_grad_()
    value_loss(leaf, OLD_VALUES, RETURNS, clip=0.2).sum().backward()
    close(leaf.grad, [0, 0.55 - 0.99, -0.25])


@pytest.mark.parametrize("clip", [None, 0.2])
def test_the_gradient_agrees_with_finite_differences(clip):
    leaf = VALUES.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda values: value_loss(values, OLD_VALUES, RETURNS, clip=clip), leaf)


def test_explained_variance():
    close(explained_variance(RETURNS, RETURNS), 1.0)
    close(explained_variance(torch.full((3,), 0.4), RETURNS), 0.0)
    assert torch.tensor(explained_variance(VALUES, f64(1, 1, 1))).isnan()
