"""Numbers of the papers for every estimator but GRPO (which has its own file), and what they have in common."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollick.algorithms.advantages import (
    bilevel_gae,
    chunk_returns,
    discounted_returns,
    gae,
    gdpo_advantages,
    gigpo_advantages,
    grpo_advantages,
    lite_ppo_advantages,
    opmd_advantages,
    opo_advantages,
    pass_at_k_advantages,
    raft_advantages,
    reinforce_pp_advantages,
    reinforce_pp_baseline_advantages,
    remax_advantages,
    rewards_on_last_token,
    rloo_advantages,
    step_returns,
    turn_returns,
)
from rollick.algorithms.normalization import whiten
from rollick.algorithms.sample_filters import raft_keep, reinforce_rej_keep
from tests.algorithms.toy import close, f64

ONE = torch.zeros(4, dtype=torch.long)
ALL = torch.ones(4, dtype=torch.bool)
ROW = torch.zeros(3, dtype=torch.long)


def test_rloo_is_the_explicit_leave_one_out():
    rewards = f64(1, 0, 0, 0)
    close(rloo_advantages(rewards, ONE, ALL), [1, -0.333333, -0.333333, -0.333333])
    loo = [rewards[i] - torch.cat([rewards[:i], rewards[i + 1 :]]).mean() for i in range(4)]
    close(rloo_advantages(rewards, ONE, ALL), torch.stack(loo))


def test_opo_weighs_the_baseline_by_length():
    close(opo_advantages(f64(1, 0, 0, 0), torch.tensor([10, 20, 30, 40]), ONE, ALL), [0.9, -0.1, -0.1, -0.1])


def test_remax_subtracts_the_greedy_reward():
    rewards = f64(-0.02, 0.01, 1)
    close(discounted_returns(rewards, ROW), [0.99, 1.01, 1.0])
    close(remax_advantages(rewards, f64(0.25), ROW), [0.74, 0.76, 0.75])


def test_opmd_baselines():
    rewards = f64(1, 0, 0, 1)
    close(rewards - opmd_advantages(rewards, ONE, ALL), [0.5] * 4)
    close(rewards - opmd_advantages(rewards, ONE, ALL, opmd_baseline="log_mean_exp", tau=0.1), [0.930690] * 4)
    close(rewards - opmd_advantages(rewards, ONE, ALL, opmd_baseline="log_mean_exp", tau=1.0), [0.620115] * 4)
    huge = opmd_advantages(f64(1000, 0, 0, 0), ONE, ALL, opmd_baseline="log_mean_exp", tau=0.001)
    assert huge.isfinite().all()


ROWS5 = torch.tensor([0, 0, 1, 1, 1])
REWARDS5 = f64(-0.01, 1, 0.02, -0.03, 0)


def test_reinforce_pp_whitens_returns_over_the_batch():
    close(discounted_returns(REWARDS5, ROWS5), [0.99, 1.0, -0.01, -0.03, 0.0])
    close(reinforce_pp_advantages(REWARDS5, ROWS5), [1.086162, 1.104265, -0.724108, -0.760313, -0.706005])
    population = reinforce_pp_advantages(REWARDS5, ROWS5, unbiased_variance=False)
    close(population, [1.214366, 1.234605, -0.809577, -0.850056, -0.789338])


def test_reinforce_pp_leaves_out_failed_rows():
    rewards, rows = torch.cat([REWARDS5, f64(torch.nan)]), torch.tensor([0, 0, 1, 1, 1, 2])
    advantages = reinforce_pp_advantages(rewards, rows, valid=torch.tensor([True, True, False]))
    close(advantages, [1.086162, 1.104265, -0.724108, -0.760313, -0.706005, 0])


@pytest.mark.parametrize(("gamma", "expected"), [(1.0, [1, 1, 1]), (0.9, [0.81, 0.9, 1])])
def test_returns_pass_over_a_hole_of_tool_tokens(gamma, expected):
    """mask [1, 1, 0, 1], rewards [0, 0, 0, 1]: the tool token is no live token and costs no discount."""
    close(discounted_returns(f64(0, 0, 1), ROW, gamma), expected)


def test_reinforce_pp_baseline():
    groups, rows = torch.tensor([0, 0, 1, 1]), torch.tensor([0, 1, 1, 2, 3, 3])
    advantages = reinforce_pp_baseline_advantages(f64(1, 0, 1, 1), groups, ALL, rows)
    close(advantages, [1.549826, -1.107019, -1.107019, 0.221404, 0.221404, 0.221404])


@pytest.mark.parametrize(
    ("gamma", "expected"), [(1.0, [0.470500, 0.390000, 0.200000]), (0.99, [0.451484, 0.380100, 0.2])]
)
def test_gae_of_one_row(gamma, expected):
    result = gae(f64(0, 0, 1), f64(0.5, 0.6, 0.8), ROW, gamma=gamma, lam=0.95)
    close(result.advantages, expected)
    close(result.returns, f64(*expected) + f64(0.5, 0.6, 0.8))


def test_gae_is_whitened_over_live_tokens():
    result = gae(f64(0, 0, 1), f64(0.5, 0.6, 0.8), ROW, lam=0.95)
    close(result.returns, [0.970500, 0.990000, 1.000000])
    close(whiten(result.advantages), [0.842364, 0.262789, -1.105153])


def test_gae_skips_tool_tokens():
    """mask [1, 1, 0, 1] with a value of 7 in the hole: the hole is no live token, whatever its value."""
    close(gae(f64(0, 0, 1), f64(0.3, 0.6, 0.4), ROW, lam=0.95).advantages, [0.651500, 0.370000, 0.600000])


def test_values_after_the_answer_do_not_leak_into_gae():
    """Failure cases 47 and 49: the value after the last token is 0, and rows do not see each other."""
    rows = torch.tensor([0, 0, 1, 1])
    result = gae(f64(0, 1, 0, 0), f64(0.2, 0.4, 9, 9), rows, lam=1.0)
    close(result.advantages[:2], [0.8, 0.6])


@pytest.mark.parametrize(("lam", "expected"), [(1.0, [0.85, 0.75, 0.5, 0.4]), (0.95, [0.794450, 0.731, 0.48, 0.4])])
def test_bilevel_gae(lam, expected):
    rows, turns = torch.zeros(4, dtype=torch.long), torch.tensor([0, 0, 1, 1])
    result = bilevel_gae(f64(0, 0.1, 0, 1), f64(0.2, 0.3, 0.5, 0.6), rows, turns, lam=lam, turn_gamma=0.95)
    close(result.advantages, expected)


def test_a_turn_that_pays_nothing_still_ends_in_bilevel_gae():
    rows, turns, values = torch.zeros(4, dtype=torch.long), torch.tensor([0, 0, 1, 1]), f64(0.2, 0.3, 0.5, 0.6)
    paid = bilevel_gae(f64(0, 1e-9, 0, 1), values, rows, turns)
    unpaid = bilevel_gae(f64(0, 0, 0, 1), values, rows, turns)
    close(unpaid.advantages, paid.advantages, atol=1e-8)


def test_turn_returns_discount_by_turns():
    rows, turns = torch.tensor([0, 0, 0, 0, 1]), torch.tensor([0, 0, 1, 1, 2])
    close(turn_returns(f64(0, 1, 0, 2, 5), rows, turns, gamma=0.5), [2, 2, 2, 2, 5])
    close(rewards_on_last_token(f64(1, 5), torch.tensor([0, 0, 1])), [0, 1, 5])


def test_chunk_returns_discount_by_chunks():
    rows, chunks = torch.zeros(6, dtype=torch.long), torch.tensor([0, 0, 1, 1, 1, 2])
    close(chunk_returns(f64(1.0), rows, chunks, gamma=0.9), [0.81, 0.81, 0.9, 0.9, 0.9, 1.0])


def test_pass_at_k_pays_only_the_best():
    close(pass_at_k_advantages(f64(0, 1, 0.25, 0), ONE, ALL), [0, 0.75, 0, 0])
    assert torch.equal(pass_at_k_advantages(f64(1, 1, 0, 0), ONE, ALL), torch.zeros(4).double())
    close(pass_at_k_advantages(f64(1, 0, 0, 0), ONE, ALL, advantage_std="group"), [1.999996, 0, 0, 0])
    invalid = torch.tensor([False, True, True, True])
    close(pass_at_k_advantages(f64(9, 1, 0.25, 0), ONE, invalid), [0, 0.75, 0, 0])


def test_gdpo_does_not_let_a_loud_reward_drown_a_quiet_one():
    parts, weights = torch.stack([f64(1, 0, 0, 0), f64(0, 0, 0, 10)]), f64(1, 1)
    advantages = gdpo_advantages(parts, weights, ONE, ALL)
    close(advantages, whiten(f64(1, -1, -1, 1)), atol=1e-5)
    close(gdpo_advantages(parts, f64(1, 0), ONE, ALL), whiten(f64(3, -1, -1, -1)), atol=1e-5)
    assert torch.equal(gdpo_advantages(torch.ones(2, 4), weights, ONE, ALL), torch.zeros(4))
    with pytest.raises(ValueError, match="one row per weight"):
        gdpo_advantages(parts, f64(1), ONE, ALL)


def test_raft_selects_what_is_right_or_best():
    rewards, groups = f64(1, 0, 0.2, 0.5), torch.tensor([0, 0, 1, 1])
    assert raft_keep(rewards, groups, ALL).tolist() == [True, False, False, False]
    assert raft_keep(rewards, groups, ALL, raft_select="best").tolist() == [True, False, False, True]
    invalid = torch.tensor([False, True, True, True])
    assert raft_keep(rewards, groups, invalid, raft_select="best").tolist() == [False, True, False, True]


def test_a_part_that_nobody_scored_adds_nothing_to_gdpo():
    parts = torch.stack([f64(1, 0, 0, 0), f64(0, 0, torch.nan, torch.nan)])
    close(gdpo_advantages(parts, f64(1, 1), ONE, ALL), gdpo_advantages(parts[:1], f64(1), ONE, ALL))


def test_raft_advantages_are_one_for_what_is_selected():
    rewards, groups = f64(1, 0, 0.2, 0.5), torch.tensor([0, 0, 1, 1])
    close(raft_advantages(rewards, groups, ALL), [1, 0, 0, 0])
    close(raft_advantages(rewards, groups, ALL, success_reward=0.5), [1, 0, 0, 1])
    close(raft_advantages(rewards, groups, ALL, raft_select="best"), [1, 0, 0, 1])


def test_reinforce_rej_drops_groups_that_are_all_right_or_all_wrong():
    rewards, groups = f64(1, 1, 1, 0, 0, 0), torch.tensor([0, 0, 1, 1, 2, 2])
    selected = reinforce_rej_keep(rewards, groups, torch.ones(6, dtype=torch.bool))
    assert selected.tolist() == [False, False, True, True, False, False]


EPISODES, TASK = torch.tensor([0, 0, 0, 1, 1]), torch.zeros(5, dtype=torch.long)
STATES, STEP_REWARDS = torch.tensor([10, 11, 12, 10, 11]), f64(0, 0, 1, 0, 0)
EVERY_STEP = torch.ones(5, dtype=torch.bool)


def gigpo(**options):
    return gigpo_advantages(STEP_REWARDS, EPISODES, TASK, STATES, EVERY_STEP, **options)


def test_gigpo_joins_episode_and_step_advantages():
    close(step_returns(STEP_REWARDS, EPISODES, 0.95), [0.9025, 0.95, 1, 0, 0])
    close(gigpo(step_weight=0.0), [0.5, 0.5, 0.5, -0.5, -0.5])
    close(gigpo(step_weight=0.0, std="group"), [0.707106, 0.707106, 0.707106, -0.707106, -0.707106])
    close(gigpo(step_weight=0.0, episode_mean_over="steps"), [0.4, 0.4, 0.4, -0.6, -0.6])
    close(gigpo() - gigpo(step_weight=0.0), [0.451250, 0.475, 0, -0.451250, -0.475])
    close(gigpo(), [0.951250, 0.975, 0.5, -0.951250, -0.975])
    close(gigpo(episode_mean_over="steps"), [0.851250, 0.875, 0.4, -1.051250, -1.075])


def test_gigpo_does_not_mix_equal_states_of_different_tasks():
    """A state hash alone would join them."""
    two = lambda x: torch.cat([x, x])
    tasks, episodes = torch.cat([TASK, TASK + 1]), torch.cat([EPISODES, EPISODES + 2])
    rewards = torch.cat([STEP_REWARDS, STEP_REWARDS * 7])
    advantages = gigpo_advantages(rewards, episodes, tasks, two(STATES), two(EVERY_STEP))
    close(advantages[:5], gigpo())
    close(advantages[5:], gigpo() * 7)


def test_gigpo_takes_interleaved_steps():
    """Failure case 53: keyed by episode, never by position."""
    order = torch.tensor([3, 0, 1, 4, 2])
    shuffled = gigpo_advantages(STEP_REWARDS[order], EPISODES[order], TASK, STATES[order], EVERY_STEP)
    close(shuffled, gigpo()[order])


ESTIMATORS = {
    "grpo": grpo_advantages,
    "dr_grpo": lambda r, g, v: grpo_advantages(r, g, v, advantage_std="none"),
    "rloo": rloo_advantages,
    "opo": lambda r, g, v: opo_advantages(r, torch.arange(len(r)) + 1, g, v),
    "lite_ppo": lite_ppo_advantages,
    "pass_at_k": pass_at_k_advantages,
    "opmd": opmd_advantages,
    "opmd_log_mean_exp": lambda r, g, v: opmd_advantages(r, g, v, opmd_baseline="log_mean_exp"),
    "gdpo": lambda r, g, v: gdpo_advantages(torch.stack([r, r]), torch.ones(2), g, v),
    "gigpo": lambda r, g, v: gigpo_advantages(r, torch.arange(len(r)), g, g * 0, v),
    "reinforce_pp_baseline": lambda r, g, v: reinforce_pp_baseline_advantages(r, g, v, torch.arange(len(r))),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("reward", [0.0, 1.0, 0.1, 0.9, -3.3, 1e6 + 0.1])
def test_a_group_without_spread_teaches_nothing(name, dtype, reward):
    """Failure case 51; groups of one and of thirty."""
    rewards = torch.full((31,), reward, dtype=dtype)
    groups = torch.tensor([0] * 30 + [1])
    advantages = ESTIMATORS[name](rewards, groups, torch.ones(31, dtype=torch.bool))
    assert torch.equal(advantages, torch.zeros(31, dtype=dtype))


BY_ID = [name for name in ESTIMATORS if name != "opo"]
"""Estimators above whose result does not depend on the position of a row (OPO is given lengths by position)."""


@pytest.mark.parametrize("name", BY_ID)
def test_rows_that_are_not_valid_get_zero_and_shift_nobody(name):
    """Failure cases 54 and 64, with NaN in place of the missing rewards."""
    rewards, groups = f64(1, torch.nan, 0, 0.5, 0.2, torch.nan), torch.tensor([0, 0, 0, 1, 1, 1])
    valid = rewards.isfinite()
    advantages = ESTIMATORS[name](rewards, groups, valid)
    alone = ESTIMATORS[name](rewards[valid], groups[valid], torch.ones(4, dtype=torch.bool))
    close(advantages[valid], alone, atol=1e-12)
    assert (advantages[~valid] == 0).all()


@pytest.mark.parametrize("name", ESTIMATORS)
def test_group_ids_are_only_names(name):
    rewards, groups = f64(1, 0, 0.5, 0.2, 0, 1), torch.tensor([0, 0, 1, 1, 2, 2])
    valid = torch.ones(6, dtype=torch.bool)
    renamed = torch.tensor([-5, 10**12, 7])[groups]
    close(ESTIMATORS[name](rewards, renamed, valid), ESTIMATORS[name](rewards, groups, valid), atol=1e-12)


@pytest.mark.parametrize("name", ESTIMATORS)
def test_nothing_to_learn_from_is_an_ordinary_case(name):
    """No rows at all (everything was filtered), and rows that all failed."""
    none = torch.zeros(0, dtype=torch.long)
    assert ESTIMATORS[name](f64(), none, none.bool()).shape == (0,)
    failed = ESTIMATORS[name](torch.full((4,), torch.nan).double(), ONE, ~ALL)
    assert torch.equal(failed, torch.zeros(4, dtype=torch.float64))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_a_float_mask_is_refused(name):
    """Failure case 38."""
    with pytest.raises(TypeError, match="valid must be a bool tensor"):
        ESTIMATORS[name](f64(1, 0, 0, 0), ONE, ALL.double())


def test_a_float_mask_is_refused_by_reinforce_pp():
    """Failure case 38."""
    with pytest.raises(TypeError, match="valid must be a bool tensor"):
        reinforce_pp_advantages(REWARDS5, ROWS5, valid=f64(1, 0))


def test_opo_leaves_out_rows_that_are_not_valid():
    """Failure case 54."""
    valid = torch.tensor([True, True, True, False])
    advantages = opo_advantages(f64(1, 0, 0, torch.nan), torch.tensor([10, 20, 30, 40]), ONE, valid)
    close(advantages, [1 - 1 / 6, -1 / 6, -1 / 6, 0])


@pytest.mark.parametrize("name", BY_ID)
@settings(max_examples=30, deadline=None)
@given(
    rows=st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0.0, 0.1, 1.0, -2.0])), min_size=1, max_size=9),
    seed=st.integers(0, 99),
)
def test_order_of_rows_never_matters(name, rows, seed):
    """Failure case 53."""
    groups, rewards = torch.tensor([g for g, _ in rows]), f64(*[r for _, r in rows])
    valid = torch.ones(len(rows), dtype=torch.bool)
    order = torch.randperm(len(rows), generator=torch.Generator().manual_seed(seed))
    close(
        ESTIMATORS[name](rewards[order], groups[order], valid),
        ESTIMATORS[name](rewards, groups, valid)[order],
        atol=1e-9,
    )


@settings(max_examples=40, deadline=None)
@given(lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5), seed=st.integers(0, 999))
def test_gae_equals_the_recursion_of_each_row(lengths, seed):
    rows = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    generator = torch.Generator().manual_seed(seed)
    rewards, values = torch.randn(2, len(rows), dtype=torch.float64, generator=generator)
    expected = torch.zeros_like(values)
    for row in range(len(lengths)):
        following = carry = 0.0
        for t in reversed((rows == row).nonzero().flatten().tolist()):
            carry = rewards[t] + 0.98 * following - values[t] + 0.98 * 0.9 * carry
            following = values[t]
            expected[t] = carry
    result = gae(rewards, values, rows, gamma=0.98, lam=0.9)
    close(result.advantages, expected, atol=1e-12)
    close(result.returns, expected + values, atol=1e-12)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: pass_at_k_advantages(f64(1, 0, 0, 0), ONE, ALL, advantage_std="batch"), "'batch'"),
        (lambda: raft_keep(f64(1, 0, 0, 0), ONE, ALL, raft_select="some"), "'some'"),
        (lambda: opmd_advantages(f64(1, 0, 0, 0), ONE, ALL, opmd_baseline="max"), "'max'"),
    ],
)
def test_unknown_options_are_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()
