import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollick.algorithms.advantages import grpo_advantages
from tests.algorithms.toy import close, f64

ONE_GROUP = torch.zeros(4, dtype=torch.long)
ALL = torch.ones(4, dtype=torch.bool)


@pytest.mark.parametrize(
    ("rewards", "eps", "expected"),
    [
        ([1, 0, 0, 0], 1e-6, [1.499997, -0.499999, -0.499999, -0.499999]),
        ([1, 0, 0, 0], 1e-4, [1.499700, -0.499900, -0.499900, -0.499900]),
        ([1, 1, 0, 0], 1e-6, [0.866024, 0.866024, -0.866024, -0.866024]),
    ],
)
def test_advantages_of_one_group(rewards, eps, expected):
    close(grpo_advantages(f64(*rewards), ONE_GROUP, ALL, advantage_eps=eps), expected)


def test_without_std_it_is_dr_grpo():
    """Failure case 3: the option must change the result in the predicted way."""
    close(grpo_advantages(f64(1, 0, 0, 0), ONE_GROUP, ALL, advantage_std="none"), [0.75, -0.25, -0.25, -0.25])


def test_nearly_equal_rewards_keep_their_spread():
    """Failure case 50: eps is added to the std, not under the root."""
    rewards = [2.0, 2.00002, 2.00004, 2.00006]
    expected = [-1.1186, -0.3729, 0.3729, 1.1186]
    close(grpo_advantages(f64(*rewards), ONE_GROUP, ALL), expected, atol=1e-4)
    close(grpo_advantages(torch.tensor(rewards), ONE_GROUP, ALL), expected, atol=0.012)


@pytest.mark.parametrize("std", ["group", "none"])
@pytest.mark.parametrize("rewards", [[1.0] * 4, [0.1] * 30, [0.9] * 30, [1e6 + 0.1] * 7, [-3.3] * 5, [0.7]])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_group_without_spread_gets_exactly_zero(rewards, std, dtype):
    """Failure case 51, and a float32 mean that is off by a rounding must not pass for a spread."""
    rewards = torch.tensor(rewards, dtype=dtype)
    groups, valid = torch.zeros(len(rewards), dtype=torch.long), torch.ones(len(rewards), dtype=torch.bool)
    assert torch.equal(grpo_advantages(rewards, groups, valid, advantage_std=std), torch.zeros_like(rewards))


def test_a_rounding_of_the_rewards_is_no_spread():
    reward = torch.tensor(0.1)
    rewards = torch.stack([reward, torch.nextafter(reward, torch.tensor(1.0)), reward])
    advantages = grpo_advantages(rewards, ONE_GROUP[:3], ALL[:3])
    assert torch.equal(advantages, torch.zeros(3))


def test_groups_are_keyed_by_id_whatever_the_order_of_arrival():
    """Failure case 53: two prompts whose answers arrive interleaved."""
    rewards, groups = f64(1, 5, 0, 7, 0, 5, 0, 7), torch.tensor([9, -2, 9, -2, 9, -2, 9, -2])
    advantages = grpo_advantages(rewards, groups, torch.ones(8, dtype=torch.bool), advantage_std="none")
    close(advantages, [0.75, -1, -0.25, 1, -0.25, -1, -0.25, 1])


def test_a_row_with_nothing_to_train_does_not_shift_its_group():
    """Failure case 54: rewards 8, 1, 3 with 0, 2, 2 trainable tokens."""
    valid = torch.tensor([False, True, True])
    close(grpo_advantages(f64(8, 1, 3), ONE_GROUP[:3], valid, advantage_std="none"), [0, -1, 1])


def test_a_row_that_was_not_scored_is_left_out():
    """Failure case 64: an abstaining or failed grader leaves NaN, which must not reach the group."""
    valid = torch.tensor([True, False, True, True])
    close(
        grpo_advantages(f64(1, float("nan"), 0, 0), ONE_GROUP, valid, advantage_std="none"), [2 / 3, 0, -1 / 3, -1 / 3]
    )


def test_a_group_whose_rows_all_failed_gets_zero():
    rewards, groups = f64(float("nan"), float("nan"), 1, 0), torch.tensor([0, 0, 1, 1])
    valid = torch.tensor([False, False, True, True])
    close(grpo_advantages(rewards, groups, valid, advantage_std="none"), [0, 0, 0.5, -0.5])


def test_a_valid_row_without_a_finite_reward_is_named():
    with pytest.raises(ValueError, match=r"rows \[1\] are not finite"):
        grpo_advantages(f64(1, float("nan"), 0, 0), ONE_GROUP, ALL)


def test_a_float_mask_is_refused():
    """Failure case 38."""
    with pytest.raises(TypeError, match="valid must be a bool tensor"):
        grpo_advantages(f64(1, 0, 0, 0), ONE_GROUP, ALL.float())


def test_rows_must_agree():
    with pytest.raises(ValueError, match="one entry per row"):
        grpo_advantages(f64(1, 0, 0), ONE_GROUP, ALL)


def test_an_unknown_std_is_refused():
    with pytest.raises(ValueError, match="'batch'"):
        grpo_advantages(f64(1, 0, 0, 0), ONE_GROUP, ALL, advantage_std="batch")


@settings(max_examples=60, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from([0.0, 0.1, 0.5, 1.0, -2.0]), st.booleans()),
        min_size=1,
        max_size=12,
    ),
    std=st.sampled_from(["group", "none"]),
    seed=st.integers(0, 99),
)
def test_row_order_never_matters_and_each_group_sums_to_zero(rows, std, seed):
    groups, rewards, valid = (torch.tensor(column) for column in zip(*rows))
    advantages = grpo_advantages(rewards.double(), groups, valid, advantage_std=std)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    shuffled = grpo_advantages(rewards.double()[order], groups[order], valid[order], advantage_std=std)
    close(shuffled, advantages[order], atol=1e-12)
    assert (advantages[~valid] == 0).all()
    for group in groups.unique():
        close(advantages[groups == group].sum(), 0.0, atol=1e-9)
