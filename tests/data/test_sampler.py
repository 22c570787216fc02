"""Samplers use every row, keep their weights, and resume where they stopped."""

import json
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.data.sampler import MixedSampler, ShuffledSampler
from rollick.errors import DataError


@given(size=st.integers(1, 30), batches=st.lists(st.integers(0, 13), max_size=8), seed=st.integers(0, 2**62))
def test_every_epoch_has_every_row_once_however_batches_are_cut(size, batches, seed):
    sampler = ShuffledSampler(size, seed)
    draws = [draw for count in batches for draw in sampler.next(count)]
    assert draws == ShuffledSampler(size, seed).next(sum(batches))
    for epoch in range(sum(batches) // size):
        assert sorted(index for e, index in draws if e == epoch) == list(range(size))


def test_epochs_and_seeds_differ():
    one, other = ShuffledSampler(50, seed=0), ShuffledSampler(50, seed=1)
    first, second = one.next(50), one.next(50)
    assert [i for _, i in first] != [i for _, i in second]
    assert [i for _, i in first] != [i for _, i in other.next(50)]
    assert [i for _, i in first] != sorted(i for _, i in first)


def test_the_order_is_fixed_for_all_time():
    """A checkpoint must resume under a later version of everything."""
    assert ShuffledSampler(size=3, seed=0).next(4) == [(0, 2), (0, 1), (0, 0), (1, 2)]


@given(size=st.integers(1, 20), before=st.integers(0, 50), after=st.integers(0, 50))
def test_a_restored_sampler_draws_what_was_next(size, before, after):
    """Cases 106 and 119: state through JSON, rows are only counted, none is drawn again."""
    straight, stopped = ShuffledSampler(size, 3), ShuffledSampler(size, 3)
    straight.next(before)
    stopped.next(before)
    resumed = ShuffledSampler(size, 3)
    resumed.restore(json.loads(json.dumps(stopped.state())))
    assert resumed.next(after) == straight.next(after)


def test_resuming_uses_no_row_of_the_steps_before():
    """Case 119: 20 prompts, batch 2, stop at step 4."""
    first = ShuffledSampler(20, seed=7)
    used = [index for _ in range(4) for _, index in first.next(2)]
    resumed = ShuffledSampler(20, seed=7)
    resumed.restore(first.state())
    rest = [index for _ in range(6) for _, index in resumed.next(2)]
    assert len(used) == 8
    assert sorted(used + rest) == list(range(20))


def test_a_dataset_that_changed_is_refused_on_resume():
    state = ShuffledSampler(20, seed=0).state()
    with pytest.raises(DataError, match="drew from 20 rows with seed 0, the dataset now has 21 rows"):
        ShuffledSampler(21, seed=0).restore(state)
    with pytest.raises(DataError, match="the seed is 1"):
        ShuffledSampler(20, seed=1).restore(state)
    with pytest.raises(DataError, match="drew from 2 sources, now there are 1"):
        MixedSampler([5], [1.0], 0).restore(MixedSampler([5, 5], [1.0, 1.0], 0).state())


weights_of = st.lists(st.floats(0.05, 20), min_size=1, max_size=5)


@given(weights=weights_of, batches=st.lists(st.integers(1, 17), min_size=1, max_size=12))
def test_weights_hold_in_every_batch(weights, batches):
    sampler = MixedSampler([7] * len(weights), weights, seed=0)
    drawn, total = Counter(), 0
    for count in batches:
        batch = sampler.next(count)
        assert len(batch) == count
        drawn.update(draw.source for draw in batch)
        total += count
        for source, weight in enumerate(weights):
            behind = weight / sum(weights) * total - drawn[source]
            assert -1 - 1e-6 < behind < max(len(weights) - 1, 1e-6) + 1e-6


def test_what_a_batch_cannot_split_is_carried_over():
    sampler = MixedSampler([100, 100], [1.0, 2.0], seed=0)
    sizes = [Counter(draw.source for draw in sampler.next(4)) for _ in range(3)]
    assert [(c[0], c[1]) for c in sizes] == [(1, 3), (2, 2), (1, 3)]


def test_a_mixture_restores_all_its_sources():
    straight, stopped = (MixedSampler([3, 5], [1.0, 3.0], seed=2) for _ in range(2))
    straight.next(7)
    stopped.next(7)
    resumed = MixedSampler([3, 5], [1.0, 3.0], seed=2)
    resumed.restore(json.loads(json.dumps(stopped.state())))
    assert resumed.next(11) == straight.next(11)


@pytest.mark.parametrize(("sizes", "weights"), [([], []), ([3], [1.0, 2.0]), ([3], [0.0]), ([0], [1.0])])
def test_impossible_mixtures_are_refused(sizes, weights):
    with pytest.raises(ValueError):
        MixedSampler(sizes, weights, seed=0)
