"""Laying rows out for a model's forward."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollick.data.batch import Batch
from rollick.models.attention import RowLayout
from rollick.training.packing import input_lengths, lay_out, shared_prefixes
from tests.training.rows import make_sample


def batch_of(*rows):
    """Rows given as (ids, mask)."""
    samples = []
    for i, (ids, mask) in enumerate(rows):
        sample = make_sample(f"s{i}", 1, len(ids) - 1)
        sample.token_ids[:], sample.loss_mask[:] = ids, mask
        samples.append(sample)
    return Batch.from_samples(samples)


def test_worked_example():
    batch = batch_of(([5, 6, 9], [0, 0, 1]), ([7, 2], [0, 1]))
    packed, padded = lay_out(batch, [0, 1], True).inputs, lay_out(batch, [0, 1], False).inputs
    assert packed.input_ids.tolist() == [[5, 6, 7]] and packed.position_ids.tolist() == [[0, 1, 0]]
    assert padded.input_ids.tolist() == [[5, 6], [7, 0]] and padded.position_ids.tolist() == [[0, 1], [0, 1]]
    assert packed.predictors.tolist() == padded.predictors.tolist() == [1, 2]
    assert packed.targets.tolist() == padded.targets.tolist() == [9, 2]


def test_rows_of_a_group_share_their_prefix():
    batch = batch_of(([5, 6, 9, 1], [0, 0, 1, 1]), ([5, 6, 4, 8, 3], [0, 0, 1, 1, 1]), ([5, 6, 9, 7], [0, 0, 0, 1]))
    assert shared_prefixes(batch) == [4, 2, 3]
    inputs = lay_out(batch, [0, 1, 2], True).inputs
    assert inputs.input_ids.tolist() == [[5, 6, 9, 4, 8]]
    assert inputs.position_ids.tolist() == [[0, 1, 2, 2, 3]]
    assert inputs.predictors.tolist() == [1, 2, 1, 3, 4, 2]
    assert inputs.targets.tolist() == [9, 1, 4, 8, 3, 7]


def test_a_row_borrows_nothing_that_its_leader_does_not_compute():
    """The first row needs only its first token; the second one the same tokens and more."""
    batch = batch_of(([5, 6, 9, 1], [0, 1, 0, 0]), ([5, 6, 9, 1, 2], [0, 0, 0, 0, 1]))
    inputs = lay_out(batch, [0, 1], True).inputs
    assert inputs.input_ids.tolist() == [[5, 6, 9, 1]] and inputs.predictors.tolist() == [0, 3]


def test_only_tokens_before_the_last_live_one_are_computed():
    batch = batch_of(([1, 2, 3, 4, 5, 6], [0, 0, 1, 1, 0, 0]), ([1, 2, 3], [0, 0, 0]), ([1, 2], [0, 1]))
    assert input_lengths(batch) == [3, 0, 1]


def test_live_positions_of_packed_rows_start_at_each_row():
    """Case 27: answers at [6, 9] of 10 and [5, 11] of 12 are 6-9 and 15-21 in the pack."""
    first, second = make_sample("a", 6, 4, seed=1), make_sample("b", 5, 7, seed=2)
    micro = lay_out(Batch.from_samples([first, second]), [0, 1], True)
    assert micro.positions.tolist() == [*range(6, 10), *range(15, 22)]
    assert micro.inputs.targets.tolist() == [*first.token_ids[6:], *second.token_ids[5:]]
    assert micro.live.offsets.tolist() == [0, 4, 11]


def test_padding_is_told_by_length_when_pad_is_a_sampled_token():
    """Case 32: pad = end token = 2; the row 5 6 2 has three tokens that count, whatever follows it."""
    batch = batch_of(([1, 5, 6, 2], [0, 1, 1, 1]), ([1, 5, 6, 7, 2, 2], [0, 1, 1, 1, 1, 1]))
    micro = lay_out(batch, [0, 1], False, pad_id=2)
    assert micro.inputs.targets.tolist() == [5, 6, 2, 5, 6, 7, 2, 2]
    assert micro.inputs.predictors.tolist() == [0, 1, 2, 5, 6, 7, 8, 9]


def test_a_live_first_token_is_refused():
    with pytest.raises(ValueError, match="row s1: its first token"):
        input_lengths(batch_of(([1, 2], [0, 1]), ([1, 2], [1, 1])))


@given(st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=8), st.booleans(), st.randoms())
def test_every_live_token_is_predicted_by_the_token_before_it_in_its_own_row(shapes, packed, random):
    """Case 31: values that encode their row and place come back at their own positions, in any selection."""
    samples = [make_sample(f"s{i}", p, a) for i, (p, a) in enumerate(shapes)]
    for row, sample in enumerate(samples):
        sample.token_ids[:] = [1000 * (row + 1) + place for place in range(len(sample))]
    batch = Batch.from_samples(samples)
    rows = random.sample(range(len(shapes)), random.randint(1, len(shapes)))
    micro = lay_out(batch, rows, packed)
    states = micro.inputs.input_ids.flatten()[micro.inputs.predictors]
    assert torch.equal(states + 1, micro.inputs.targets)
    assert torch.equal(batch.tokens["token_ids"][micro.positions], micro.inputs.targets)
    assert torch.equal(micro.live.tokens["token_ids"], micro.inputs.targets)
    assert micro.live.row_ids == [f"s{row}" for row in rows]
    assert torch.equal(micro.inputs.position_ids.flatten()[micro.inputs.predictors], states % 1000)


@given(st.lists(st.integers(1, 30), min_size=1, max_size=12))
def test_blocks_hold_every_token_once_at_home(lengths):
    rows = list(torch.arange(sum(lengths)).split(lengths))
    layout = RowLayout.of(rows, sum(lengths))
    flat = torch.cat([block.flatten() for block in layout.blocks])
    assert torch.equal(flat[layout.home], torch.arange(sum(lengths)))
    assert sorted(block.shape[0] for block in layout.blocks) and sum(b.shape[0] for b in layout.blocks) == len(rows)
    assert all(block.shape[1] in lengths for block in layout.blocks)
