"""The controller's trainer handle, on a recording backend: how rows are split and put back."""

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from rollick.data.batch import Batch
from rollick.data.records import Sample
from rollick.training.trainer import _gather, _shard, split_rows


def _batch(lengths: list[int]) -> Batch:
    samples = []
    for row, length in enumerate(lengths):
        mask = np.ones(length, bool)
        mask[0] = False
        samples.append(
            Sample(
                id=f"r{row}",
                group_id="g",
                task_id="t",
                domain="d",
                token_ids=np.full(length, row, np.int64),
                loss_mask=mask,
                behaviour_logprobs=np.zeros(length, np.float32),
                kept_logmass=np.zeros(length, np.float32),
                versions=np.zeros(length, np.int64),
                segments=[(1, length)],
                reward=0.0,
                truncated=False,
            )
        )
    return Batch.from_samples(samples)


@given(st.lists(st.integers(2, 40), min_size=1, max_size=30), st.integers(1, 5))
def test_every_row_goes_to_one_rank_and_comes_back_in_its_place(lengths: list[int], ranks: int) -> None:
    batch = _batch(lengths)
    assignment = split_rows(batch, ranks)
    assert sorted(row for rows in assignment for row in rows) == list(range(len(lengths)))
    shards = [_shard(batch, rows) for rows in assignment]
    parts = [torch.zeros(0) if shard is None else shard.tokens["token_ids"].float() for shard in shards]
    assert torch.equal(_gather(batch, assignment, parts), batch.tokens["token_ids"].float())


def test_no_rank_is_empty_while_another_has_two_rows() -> None:
    """failure case 137: 5 rows over 4 ranks are 2, 1, 1, 1 whatever their lengths; 3 rows leave one rank empty."""
    assert sorted(len(rows) for rows in split_rows(_batch([9, 9, 9, 9, 2]), 4)) == [1, 1, 1, 2]
    assert sorted(len(rows) for rows in split_rows(_batch([5, 5, 5]), 4)) == [0, 1, 1, 1]


def test_loads_are_balanced_by_tokens() -> None:
    assert split_rows(_batch([5, 3, 3]), 2) == [[0], [1, 2]]
