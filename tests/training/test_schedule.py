"""The learning rate of every update."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.config.job import ScheduleSettings
from rollick.training.schedule import learning_rate


def rates(planned, updates=None, **settings):
    schedule = ScheduleSettings(**settings)
    return [learning_rate(u, planned, 1e-3, schedule) for u in range(1, (updates or planned) + 1)]


def test_warm_up_starts_above_zero_and_reaches_the_peak():
    """Case 6."""
    assert rates(5, kind="constant", warmup_updates=4) == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3, 1e-3])


@pytest.mark.parametrize("kind", ["constant", "linear", "cosine"])
def test_warm_up_may_take_all_updates_and_ends_at_the_peak(kind):
    """Case 5, 4 of 4."""
    assert rates(4, kind=kind, warmup_updates=4) == pytest.approx([2.5e-4, 5e-4, 7.5e-4, 1e-3])


def test_warm_up_longer_than_the_run_is_refused():
    """Case 5, 5 of 4."""
    with pytest.raises(ValueError, match="warmup_updates 5 is longer than the 4 planned updates"):
        rates(4, warmup_updates=5)


def test_decays_reach_the_smallest_rate_at_the_last_planned_update_and_stay():
    assert rates(4, 6, kind="linear", min_ratio=0.2) == pytest.approx([8e-4, 6e-4, 4e-4, 2e-4, 2e-4, 2e-4])
    assert rates(4, 5, kind="cosine") == pytest.approx([8.5355e-4, 5e-4, 1.4645e-4, 0, 0], abs=1e-8)
    assert rates(3, kind="linear", warmup_updates=1) == pytest.approx([1e-3, 5e-4, 0])


@given(st.integers(1, 50), st.integers(0, 50), st.sampled_from(["constant", "linear", "cosine"]), st.floats(0, 1))
def test_rates_stay_between_the_smallest_and_the_peak_and_rise_then_fall(planned, warmup, kind, ratio):
    warmup = min(warmup, planned)
    values = rates(planned, kind=kind, warmup_updates=warmup, min_ratio=ratio)
    assert all(0 <= value <= 1e-3 * (1 + 1e-12) for value in values)
    peak = max(0, warmup - 1)
    assert values[: peak + 1] == sorted(values[: peak + 1])
    assert values[peak:] == sorted(values[peak:], reverse=True)
    assert kind == "constant" or warmup == planned or values[-1] == pytest.approx(1e-3 * ratio)
