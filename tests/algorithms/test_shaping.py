import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rollick.algorithms.groups import group_statistics
from rollick.algorithms.sample_filters import difficulty_keep, spread_keep, uncertainty_keep
from rollick.algorithms.shaping import (
    difficulty_weights,
    length_rewards,
    length_weights,
    nonzero_advantage_keep,
    overlong_penalty,
    repetition_penalty,
)
from tests.algorithms.toy import close, f64

SCORES = f64(1, 1, 1, 1, 1, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0)
GROUPS = torch.arange(4).repeat_interleave(4)
ALL = torch.ones(16, dtype=torch.bool)


def kept_groups(keep):
    return GROUPS[keep].unique().tolist()


def test_the_soft_overlong_penalty():
    lengths = torch.tensor([16000, 16384, 18432, 20480, 24576])
    close(overlong_penalty(lengths, max_length=20480, buffer=4096), [0, 0, -0.5, -1, -1])
    close(overlong_penalty(lengths, max_length=20480, buffer=4096, capped=False), [0, 0, -0.5, -1, -2])
    close(overlong_penalty(lengths, max_length=20480, buffer=4096, factor=2.0), [0, 0, -1, -2, -2])


def test_length_rewards_inside_a_group():
    lengths, correct = torch.tensor([100, 200, 300, 150]), torch.tensor([True, True, True, False])
    close(length_rewards(lengths, correct, torch.zeros(4, dtype=torch.long)), [0.5, 0, -0.5, 0])
    two_groups = length_rewards(torch.tensor([5, 5, 1, 3]), correct, torch.tensor([0, 0, 1, 1]))
    close(two_groups, [0, 0, 0.5, -0.5])


def test_difficulty_bounds_are_strict():
    assert kept_groups(difficulty_keep(SCORES, GROUPS, ALL)) == [1, 2]
    assert kept_groups(difficulty_keep(SCORES, GROUPS, ALL, difficulty_low=0.25, difficulty_high=0.95)) == [1]
    assert kept_groups(difficulty_keep(SCORES, GROUPS, ALL, difficulty_low=-1.0, difficulty_high=2.0)) == [0, 1, 2, 3]


def test_dynamic_sampling_keeps_groups_with_spread_and_single_answers():
    assert kept_groups(spread_keep(SCORES, GROUPS, ALL)) == [1, 2]
    single = spread_keep(f64(1, 0, 0), torch.tensor([0, 1, 1]), torch.ones(3, dtype=torch.bool))
    assert single.tolist() == [True, False, False]


@pytest.mark.parametrize(
    ("fraction", "keep", "expected"),
    [
        (0.25, "highest", [1]),
        (0.5, "highest", [1, 2]),
        (0.1, "highest", [1]),
        (0.5, "lowest", [0, 3]),
        (1.0, "highest", [0, 1, 2, 3]),
    ],
)
def test_the_most_uncertain_groups_are_kept(fraction, keep, expected):
    """StarPO-S."""
    close(group_statistics(SCORES, GROUPS, ALL).std, [0, 0.577350, 0.5, 0])
    assert (
        kept_groups(uncertainty_keep(SCORES, GROUPS, ALL, uncertainty_fraction=fraction, uncertainty_keep_groups=keep))
        == expected
    )


def test_filters_never_keep_a_row_that_was_not_scored():
    scores = SCORES.clone()
    scores[:4] = torch.nan
    scores[5] = torch.nan
    valid = scores.isfinite()
    for keep in (difficulty_keep, spread_keep, uncertainty_keep):
        kept = keep(scores, GROUPS, valid)
        assert not (kept & ~valid).any() and kept[4]
    with pytest.raises(ValueError, match="'best'"):
        uncertainty_keep(SCORES, GROUPS, ALL, uncertainty_keep_groups="best")


def test_group_ids_are_only_names():
    renamed = torch.tensor([10**12, 7, -5, 3])[GROUPS]
    for keep in (difficulty_keep, spread_keep):
        assert torch.equal(keep(SCORES, renamed, ALL), keep(SCORES, GROUPS, ALL))
    assert kept_groups(uncertainty_keep(SCORES, renamed, ALL, uncertainty_fraction=0.5)) == [1, 2]
    lengths, correct = torch.tensor([5, 9, 1, 3]), torch.ones(4, dtype=torch.bool)
    close(length_rewards(lengths, correct, torch.tensor([9, 9, -4, -4])), [0.5, -0.5, 0.5, -0.5])


def test_masks_must_be_bool():
    """Failure case 38."""
    with pytest.raises(TypeError, match="correct must be a bool tensor"):
        length_rewards(torch.tensor([1, 2]), f64(1, 0), torch.tensor([0, 0]))
    with pytest.raises(TypeError, match="valid must be a bool tensor"):
        spread_keep(SCORES, GROUPS, SCORES)


def test_nothing_to_filter_is_an_ordinary_case():
    empty = torch.zeros(0, dtype=torch.long)
    for keep in (difficulty_keep, spread_keep, uncertainty_keep):
        assert keep(f64(), empty, empty.bool()).shape == (0,)
    assert length_rewards(empty, empty.bool(), empty).shape == (0,)
    close(repetition_penalty(empty, empty, 2, ngram=2, max_penalty=-1.0), [0, 0])


def test_rows_without_advantage_are_found():
    assert nonzero_advantage_keep(f64(0, 0.1, -0.1, -0.0)).tolist() == [False, True, True, False]


def test_sample_weights_have_a_mean_of_one():
    close(difficulty_weights(f64(-1, 0.5, 2)), f64(0.5, 1.25, 2.0) / 1.25)
    close(length_weights(torch.tensor([10, 20, 30])), [1.5, 1.0, 0.5])
    close(length_weights(torch.tensor([7, 7])), [1, 1])


def words(text):
    vocabulary = {}
    return torch.tensor([vocabulary.setdefault(word, len(vocabulary)) for word in text.split()])


@pytest.mark.parametrize(
    ("ids", "ngram", "penalty", "expected"),
    [
        (words("a b c a b c a b c"), 3, -0.1, -0.057143),
        (torch.tensor([5] * 5), 2, -1.0, -0.75),
        (torch.tensor([1, 2, 3, 4]), 2, -1.0, 0.0),
        (words("one two"), 3, -0.1, 0.0),
    ],
)
def test_repetition_penalty(ids, ngram, penalty, expected):
    rows = torch.zeros(len(ids), dtype=torch.long)
    close(repetition_penalty(ids, rows, 1, ngram=ngram, max_penalty=penalty), [expected])


@settings(max_examples=60, deadline=None)
@given(answers=st.lists(st.lists(st.integers(0, 2), max_size=9), min_size=1, max_size=5), ngram=st.integers(1, 3))
def test_repetition_is_counted_inside_each_row(answers, ngram):
    ids = torch.tensor([token for answer in answers for token in answer], dtype=torch.long)
    rows = torch.tensor([row for row, answer in enumerate(answers) for _ in answer], dtype=torch.long)
    expected = []
    for answer in answers:
        grams = [tuple(answer[i : i + ngram]) for i in range(len(answer) - ngram + 1)]
        expected.append(-(1 - len(set(grams)) / len(grams)) if grams else 0.0)
    close(repetition_penalty(ids, rows, len(answers), ngram=ngram, max_penalty=-1.0), expected)
