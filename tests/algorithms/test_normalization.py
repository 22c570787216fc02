import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollick.algorithms.advantages import grpo_advantages, lite_ppo_advantages
from rollick.algorithms.normalization import RunningMoments, clip_magnitude, normalize_rewards, whiten
from tests.algorithms.toy import close, f64

TWO = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
REWARDS = f64(1, 0, 0, 0, 1, 1, 0, 0)
ALL = torch.ones(8, dtype=torch.bool)
SCOPES = ["group", "batch", "running", "none"]


def test_lite_ppo_takes_the_mean_of_the_group_and_the_std_of_the_batch():
    expected = [1.449135, -0.483045, -0.483045, -0.483045, 0.966090, 0.966090, -0.966090, -0.966090]
    close(lite_ppo_advantages(REWARDS, TWO, ALL), expected)


def test_group_scopes_are_grpo():
    normalized = normalize_rewards(REWARDS, TWO, ALL, mean="group", std="group")
    close(normalized, grpo_advantages(REWARDS, TWO, ALL), atol=1e-12)


@pytest.mark.parametrize("mean", SCOPES)
@pytest.mark.parametrize("std", SCOPES)
def test_every_pair_of_scopes_gives_the_hand_value(mean, std):
    """Failure case 3: an option that changes nothing is a lie."""
    running = RunningMoments(count=10, mean=0.4, squares=9.0)
    means = {"group": f64(0.25, 0.5)[TWO], "batch": 0.375, "running": 0.4, "none": 0.0}
    stds = {"group": f64(0.5, 3**-0.5)[TWO] + 1e-6, "batch": 0.517549 + 1e-6, "running": 1.0 + 1e-6, "none": 1.0}
    normalized = normalize_rewards(REWARDS, TWO, ALL, mean=mean, std=std, running=running)
    close(normalized, (REWARDS - means[mean]) / stds[std], atol=1e-5)


@pytest.mark.parametrize(
    ("mean", "std"), [("group", "batch"), ("none", "group"), ("group", "none"), ("group", "group")]
)
def test_a_flat_group_gives_exactly_zero_under_any_scope_that_looks_at_it(mean, std):
    rewards = torch.tensor([0.9] * 4 + [1, 1, 0, 0])
    assert torch.equal(normalize_rewards(rewards, TWO, ALL, mean=mean, std=std)[:4], torch.zeros(4))


def test_a_flat_batch_gives_zero_and_never_nan():
    """Failure case 51."""
    assert torch.equal(normalize_rewards(torch.full((8,), 0.3), TWO, ALL, mean="batch", std="batch"), torch.zeros(8))


def test_rows_that_are_not_valid_take_no_part():
    valid = torch.tensor([True] * 7 + [False])
    rewards = REWARDS.clone()
    rewards[7] = torch.nan
    normalized = normalize_rewards(rewards, TWO, valid, mean="batch", std="none")
    close(normalized, [4 / 7, -3 / 7, -3 / 7, -3 / 7, 4 / 7, 4 / 7, -3 / 7, 0])


@pytest.mark.parametrize(
    ("scopes", "message"),
    [
        ({"mean": "running", "std": "none"}, "needs the running moments"),
        ({"mean": "prompt", "std": "none"}, "unknown mean scope 'prompt'"),
        ({"mean": "none", "std": "all"}, "unknown std scope 'all'"),
    ],
)
def test_a_scope_that_cannot_be_used_is_refused(scopes, message):
    with pytest.raises(ValueError, match=message):
        normalize_rewards(REWARDS, TWO, ALL, **scopes)


@settings(max_examples=50, deadline=None)
@given(parts=st.lists(st.lists(st.floats(-100, 100), max_size=5), max_size=5))
def test_running_moments_of_parts_are_those_of_the_whole(parts):
    moments = RunningMoments()
    for part in parts:
        moments = moments.including(f64(*part))
    whole = f64(*[value for part in parts for value in part])
    assert moments.count == len(whole)
    if len(whole) > 1:
        close(moments.mean, whole.mean(), atol=1e-9)
        close(moments.std, whole.std(), atol=1e-9)


def test_whitening_over_live_tokens():
    close(whiten(f64(0.4705, 0.39, 0.2)), [0.842364, 0.262789, -1.105153])


def test_whitening_leaves_out_what_is_not_valid_even_nan():
    values, valid = f64(0.4705, torch.nan, 0.39, 0.2), torch.tensor([True, False, True, True])
    close(whiten(values, valid), [0.842364, 0, 0.262789, -1.105153])


@pytest.mark.parametrize("values", [f64(), f64(3.0), f64(3.0, 3.0)])
def test_whitening_what_has_no_spread_gives_zero(values):
    assert torch.equal(whiten(values), torch.zeros_like(values))


def test_a_clip_holds_values_within_its_limit():
    close(clip_magnitude(f64(-7, 0.5, 3), 2.0), [-2, 0.5, 2])
    with pytest.raises(ValueError, match="positive limit, got 0"):
        clip_magnitude(f64(1), 0)
