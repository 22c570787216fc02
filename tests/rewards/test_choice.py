import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.rewards.base import Abstain, Score
from rollick.rewards.choice import Options, find_letter, letter_of
from tests.rewards.episodes import episode


def value(response, truth="C", choices=None, **options):
    verdict = Options(**options).build().score(episode(response, truth, extra={"choices": choices}))
    assert isinstance(verdict, Score)
    return verdict.value


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (r"\boxed{\text{C}}", 1),
        (r"\boxed{C: the third}", 1),
        (r"\boxed{(C)}", 1),
        (r"\boxed{A} then \boxed{C}", 1),
        (r"\boxed{A, C}", 0),
        (r"\boxed{the third}", 0),
        (r"\boxed{C} then \boxed{A}", 0),
        (r"\boxed{A} or \boxed{C}", 0),
        (r"\boxed{C}, \boxed{C}", 1),
        (r"\boxed{A or C}", 0),
        (r"\boxed{\mathrm{C}}", 1),
        (r"\boxed{C.}", 1),
        (r"\boxed{CA}", 0),
        (r"\boxed{}", 0),
        (r"<think>\boxed{C}", 0),
        (r"<think>\boxed{C}</think>\boxed{A}", 0),
    ],
)
def test_boxed_choices(response, expected):
    """Case 76."""
    assert value(response, extract=("boxed",)) == expected


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        ("The answer is C.", 1),
        ("The answer is (C) because of the heat.", 1),
        ("The answer is C because it is hot", 1),
        ("The answer is C, since it is hot", 1),
        ("Answer: **C**", 1),
        ("Answer: A. No, the answer is C", 1),
        ("The correct option is C", 1),
        ("C", 1),
        ("(C)", 1),
        ("C. the third", 1),
        ("c", 1),
        ("A, B, C, D", 0),
        ("The answer is A or C", 0),
        ("The answer is a cat", 0),
        ("Can I say so?", 0),
        ("A man walks. The third one is right.", 0),
        ("", 0),
        ("The answer is A, C", 0),
    ],
)
def test_choices_in_plain_text(response, expected):
    assert value(response) == expected


def test_option_texts_count_only_when_asked_for():
    choices = ["red", "green", "blue"]
    assert value(r"\boxed{blue}", choices=choices) == 0
    assert value(r"\boxed{Blue}", choices=choices, match_text=True) == 1
    assert value(r"\boxed{\text{blue}}", choices=choices, match_text=True) == 1
    assert value(r"\boxed{green}", choices=choices, match_text=True) == 0


@pytest.mark.parametrize("truth", ["C", "(C)", "c", "C. the third"])
def test_ground_truths(truth):
    assert value(r"\boxed{C}", truth) == 1 and value(r"\boxed{B}", truth) == 0


@pytest.mark.parametrize("truth", [None, 2, "the third", "", "A, C", ["C"]])
def test_a_ground_truth_that_names_no_choice_is_abstained_on(truth):
    assert isinstance(Options().build().score(episode("C", truth)), Abstain)


@given(st.text(alphabet="ABC(). :,*\\{}boxedtxanswer\n$"))
def test_any_text_is_read_without_an_exception(text):
    letter = find_letter(text, ("boxed", "phrase", "bare"), ["a", "b"])
    assert letter is None or letter.isupper()
    assert letter_of(text) is None or len(letter_of(text)) == 1
