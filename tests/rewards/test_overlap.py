import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.rewards.base import Abstain, Score
from rollick.rewards.overlap import Options, common_subsequence, edit_distance, overlap
from tests.rewards.episodes import episode


@pytest.mark.parametrize(
    ("metric", "text", "reference", "expected"),
    [
        ("f1", "the cat sat", "a cat sat down", 0.8),
        ("f1", "The Cat, sat!", "cat sat", 1.0),
        ("f1", "cat cat cat", "cat", 0.5),
        ("f1", "dog", "cat", 0.0),
        ("f1", "", "cat", 0.0),
        ("exact", "The cat.", "cat", 1.0),
        ("exact", "sat cat", "cat sat", 0.0),
        ("rouge1", "the cat sat", "the cat sat down", 6 / 7),
        ("rouge2", "the cat sat", "the cat sat down", 4 / 5),
        ("rouge2", "cat", "cat", 0.0),
        ("rougeL", "sat the cat", "the cat sat down", 4 / 7),
        ("wer", "the cat sat", "the cat sat down", 0.75),
        ("wer", "the dog sat down", "the cat sat down", 0.75),
        ("wer", "one two three four five", "one", 0.0),
        ("wer", "", "one two", 0.0),
    ],
)
def test_values(metric, text, reference, expected):
    assert overlap(text, reference, metric) == pytest.approx(expected, abs=1e-12)


def test_the_best_reference_counts():
    reward = Options().build()
    assert reward.score(episode("cat", ["dog", "cat"])) == Score(1.0)
    assert reward.score(episode("<think> cat", "cat")) == Score(0.0)
    assert reward.score(episode("<think>x</think> cat", "cat")) == Score(1.0)


@pytest.mark.parametrize("truth", [None, "", [], 7, ["", "a"]])
def test_no_reference_is_abstained_on(truth):
    assert isinstance(Options().build().score(episode("cat", truth)), Abstain)


texts = st.lists(st.sampled_from("abc"), max_size=12)


@given(texts, texts)
def test_subsequence_and_distance_agree_with_their_definitions(a, b):
    table = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            table[i + 1][j + 1] = table[i][j] + 1 if x == y else max(table[i][j + 1], table[i + 1][j])
    common = table[-1][-1]
    assert common_subsequence(a, b) == common_subsequence(b, a) == common
    distance = edit_distance(a, b)
    assert distance == edit_distance(b, a)
    assert max(len(a), len(b)) - common <= distance <= len(a) + len(b) - 2 * common


@given(st.text(), st.text(), st.sampled_from(["f1", "exact", "rouge1", "rouge2", "rougeL", "wer"]))
def test_every_value_lies_between_0_and_1(a, b, metric):
    assert 0.0 <= overlap(a, b, metric) <= 1.0


def test_long_texts_are_bounded():
    words = [random.Random(0).choice("abcdefgh") for _ in range(100_000)]
    assert overlap(" ".join(words), " ".join(words), "rougeL") == 1.0
