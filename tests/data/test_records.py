import numpy as np
import pytest

from rollick.data.batch import Batch
from rollick.data.records import NO_VERSION, Completion, Episode, Sample, Task, Turn


def _completion(ids: list[int], version: int = 4) -> Completion:
    return Completion(ids, [-0.7] * len(ids), [0.0] * len(ids), [version] * len(ids), "stop", stopped_by=ids[-1])


def _episode(*turns: Turn, reward: float | None = 1.0) -> Episode:
    task = Task("train/17", "sums", prompt="3+4=")
    return Episode("g0/1", "g0", 1, task, seed=11, turns=list(turns), status="finished", reward=reward)


def test_one_turn_becomes_the_documented_row() -> None:
    [sample] = _episode(Turn([5, 6, 7], Completion([9, 2], [-0.7, -0.1], [0, 0], [4, 4], "stop", 2))).samples()
    assert sample.token_ids.tolist() == [5, 6, 7, 9, 2]
    assert sample.loss_mask.tolist() == [False, False, False, True, True]
    assert sample.behaviour_logprobs.tolist() == pytest.approx([0, 0, 0, -0.7, -0.1])
    assert sample.versions.tolist() == [NO_VERSION] * 3 + [4, 4]
    assert sample.segments == [(3, 5)] and sample.response_length == 2


def test_turns_that_extend_one_another_share_a_row_and_observations_carry_no_loss() -> None:
    first = Turn([5, 6], _completion([9, 2]))
    second = Turn([5, 6, 9, 2, 30, 31], _completion([8], version=5))
    [sample] = _episode(first, second).samples()
    assert sample.token_ids.tolist() == [5, 6, 9, 2, 30, 31, 8]
    assert sample.loss_mask.tolist() == [False, False, True, True, False, False, True]
    assert sample.versions.tolist() == [-1, -1, 4, 4, -1, -1, 5]
    assert sample.segments == [(2, 4), (6, 7)]


def test_a_rewritten_history_starts_a_new_row_that_was_really_seen() -> None:
    """failure case 127: never a row whose context was not seen at sampling."""
    episode = _episode(Turn([5, 6], _completion([9, 2])), Turn([5, 6, 2, 30], _completion([8])))
    rows = episode.samples()
    assert [row.token_ids.tolist() for row in rows] == [[5, 6, 9, 2], [5, 6, 2, 30, 8]]
    assert [row.id for row in rows] == ["g0/1", "g0/1#1"]
    assert rows[1].loss_mask.tolist() == [False] * 4 + [True]


def test_lengths_that_differ_are_refused_at_every_append() -> None:
    """failure case 103: ids, log-probs, kept mass and versions are equally long."""
    with pytest.raises(ValueError, match="2 ids, 1 log-probs"):
        Completion([1, 2], [-0.5], [0.0, 0.0], [0, 0], "length")
    with pytest.raises(ValueError, match="at least one prompt token"):
        _episode(Turn([], _completion([1]))).samples()


def test_a_batch_packs_rows_and_gives_them_back() -> None:
    short, long = _episode(Turn([7], _completion([2]))), _episode(Turn([5, 6], _completion([9])), reward=None)
    long.group_id = "g1"
    batch = Batch.from_samples(short.samples() + long.samples())
    assert batch.tokens["token_ids"].tolist() == [7, 2, 5, 6, 9]
    assert batch.offsets.tolist() == [0, 2, 5] and batch.row_index().tolist() == [0, 0, 1, 1, 1]
    assert batch.rows["group"].tolist() == [0, 1]
    assert batch.rows["reward"][0] == 1.0 and batch.rows["reward"][1].isnan()
    swapped = batch.select([1, 0])
    assert swapped.tokens["token_ids"].tolist() == [5, 6, 9, 7, 2] and swapped.rows["group"].tolist() == [1, 0]
    assert swapped.select([1]).tokens["token_ids"].tolist() == [7, 2]


def test_an_empty_batch_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one sample"):
        Batch.from_samples([])


def test_truncated_samples_carry_their_flag() -> None:
    episode = _episode(Turn([5], _completion([9])))
    episode.status = "truncated"
    [sample] = episode.samples()
    assert isinstance(sample, Sample) and sample.truncated and np.array_equal(sample.loss_mask, [False, True])
