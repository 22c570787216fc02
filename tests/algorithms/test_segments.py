import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollick.algorithms.segments import (
    compact,
    compact_pairs,
    next_in_segment,
    require_bool,
    reverse_scan,
    segment_ends,
    segment_max,
    segment_mean,
    segment_min,
    segment_sum,
)
from tests.algorithms.toy import close, f64

INDEX = torch.tensor([0, 0, 2])


def test_reductions_of_segments_with_an_empty_one():
    values = f64(1, 2, 4)
    close(segment_sum(values, INDEX, 3), [3, 0, 4])
    close(segment_mean(values, INDEX, 3), [1.5, 0, 4])
    assert segment_max(values, INDEX, 3).tolist() == [2, -torch.inf, 4]
    assert segment_min(values, INDEX, 3).tolist() == [1, torch.inf, 4]


def test_neighbours_and_ends():
    assert segment_ends(INDEX).tolist() == [False, True, True]
    close(next_in_segment(f64(1, 2, 4), INDEX), [2, 0, 0])
    index, count = compact(torch.tensor([7, 3, 7]))
    assert index.tolist() == [1, 0, 1] and count == 2
    index, count = compact_pairs(torch.tensor([7, 7, 3]), torch.tensor([1, 2, 1]))
    assert index.tolist() == [1, 2, 0] and count == 3


def test_a_mask_of_floats_is_refused():
    """Failure case 38."""
    with pytest.raises(TypeError, match="keep must be a bool tensor, got torch"):
        require_bool("keep", torch.ones(2))


@settings(max_examples=80, deadline=None)
@given(lengths=st.lists(st.integers(0, 9), min_size=1, max_size=6), seed=st.integers(0, 999))
def test_the_scan_equals_the_recursion(lengths, seed):
    rows = torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(len(rows), dtype=torch.float64, generator=generator)
    decay = torch.rand(len(rows), dtype=torch.float64, generator=generator)
    decay[decay < 0.2] = 0
    expected, carry = torch.zeros_like(values), 0.0
    for t in reversed(range(len(rows))):
        last = t + 1 == len(rows) or rows[t + 1] != rows[t]
        carry = values[t] + (0.0 if last else decay[t] * carry)
        expected[t] = carry
    close(reverse_scan(values, decay, rows), expected, atol=1e-12)


def test_nan_of_one_row_does_not_reach_another():
    rows = torch.tensor([0, 0, 1, 1])
    scanned = reverse_scan(f64(1, 2, torch.nan, 1), 1.0, rows)
    close(scanned[:2], [3, 2])
    assert scanned[2].isnan() and scanned[3] == 1


def test_a_long_row_keeps_its_precision():
    scanned = reverse_scan(torch.ones(4096, dtype=torch.float64), 0.99, torch.zeros(4096, dtype=torch.long))
    close(scanned[0], (1 - 0.99**4096) / 0.01, atol=1e-9)
