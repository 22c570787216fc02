"""Attention over packed rows equals attention over each row alone, forward and backward."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from rollick.models.attention import RowLayout, row_attention


def states(num_tokens, heads=4, kv_heads=2, width=8, seed=0):
    generator = torch.Generator().manual_seed(seed)
    shapes = [(1, h, num_tokens, width) for h in (heads, kv_heads, kv_heads)]
    return [torch.randn(s, generator=generator, dtype=torch.float64).requires_grad_() for s in shapes]


def naive(query, key, value, window=None):
    """[heads, length, width] each."""
    key, value = (x.repeat_interleave(query.shape[0] // key.shape[0], 0) for x in (key, value))
    scores = query @ key.transpose(1, 2) * 0.3
    place = torch.arange(query.shape[1])
    distance = place[:, None] - place[None]
    hidden = (distance < 0) | (distance >= (window or len(place)))
    return scores.masked_fill(hidden, -torch.inf).softmax(-1) @ value


def run(query, key, value, layout, window=None):
    return row_attention(nn.Module(), query, key, value, None, scaling=0.3, sliding_window=window, row_layout=layout)[0]


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(1, 20), min_size=1, max_size=6), st.sampled_from([None, 1, 5]))
def test_rows_equal_rows_alone(lengths, window):
    query, key, value = states(sum(lengths))
    layout = RowLayout.of(list(torch.arange(sum(lengths)).split(lengths)), sum(lengths))
    ours = run(query, key, value, layout, window)[0].transpose(0, 1)
    alone = [naive(*parts, window) for parts in zip(*(x[0].split(lengths, 1) for x in (query, key, value)))]
    theirs = torch.cat(alone, 1)
    torch.testing.assert_close(ours, theirs, atol=1e-12, rtol=0)
    weight = torch.randn_like(theirs)
    gradients = [torch.autograd.grad((out * weight).sum(), (query, key, value)) for out in (ours, theirs)]
    torch.testing.assert_close(*gradients, atol=1e-11, rtol=0)


@pytest.mark.parametrize("extra", [{"softcap": 30.0}, {"s_aux": torch.zeros(4)}, {"dropout": 0.1}])
def test_variants_that_it_does_not_know_are_refused(extra):
    query, key, value = states(3)
    layout = RowLayout.of([torch.arange(3)], 3)
    with pytest.raises(ValueError, match="packed rows support no"):
        row_attention(nn.Module(), query, key, value, None, row_layout=layout, **extra)
    with pytest.raises(ValueError, match="packed rows support no"):
        row_attention(nn.Module(), query, key, value, None)
