"""Format, overlong, repetition, language: rewards for how an answer looks."""

import pytest
from pydantic import ValidationError

from rollick.data.records import Completion, Turn
from rollick.rewards.base import Score
from rollick.rewards.format import Options as FormatOptions
from rollick.rewards.language import Options as LanguageOptions
from rollick.rewards.overlong import Options as OverlongOptions
from rollick.rewards.repetition import Options as RepetitionOptions
from tests.rewards.episodes import episode


def with_tokens(ids, text="", status="finished"):
    made = episode(text)
    made.status = status
    n = len(ids)
    made.turns = [Turn([5], Completion(list(ids), [0.0] * n, [0.0] * n, [0] * n, "stop"), response_text=text)]
    return made


@pytest.mark.parametrize(
    ("text", "fits"),
    [
        ("<think>a</think><answer>b</answer>", True),
        ("well <think>a</think> so <answer>b</answer>!", True),
        ("<answer>b</answer><think>a</think>", False),
        ("<think>a<answer>b</answer></think>", False),
        ("<think>a</think><answer>b</answer><answer>c</answer>", False),
        ("<think></think><answer>b</answer>", False),
        ("<think>a</think><answer>b", False),
        ("</think>a<think><answer>b</answer>", False),
        ("", False),
    ],
)
def test_tags(text, fits):
    assert FormatOptions(tags=("think", "answer")).build().score(episode(text)) == Score(float(fits))


def test_nothing_outside_the_tags_when_asked():
    reward = FormatOptions(tags=("a", "b"), only_tags=True, present=0, missing=-1).build()
    assert reward.score(episode("<a>1</a>\n<b>2</b>\n")) == Score(0.0)
    for text in ("x<a>1</a><b>2</b>", "<a>1</a>x<b>2</b>", "<a>1</a><b>2</b>x"):
        assert reward.score(episode(text)) == Score(-1.0)


def test_a_pattern_must_match_all_of_the_answer():
    options = FormatOptions(pattern=r"Answer: \d+")
    assert options.runs_isolated
    assert options.build().score(episode("Answer: 12\n")) == Score(1.0)
    assert options.build().score(episode("So. Answer: 12")) == Score(0.0)


@pytest.mark.parametrize("options", [{}, {"pattern": "("}])
def test_a_format_without_a_readable_demand_is_refused(options):
    with pytest.raises(ValidationError):
        FormatOptions(**options)


def test_overlong_penalty():
    """DAPO's numbers: limit 20480, buffer 4096, capped as in the paper."""
    reward = OverlongOptions(max_length=20480, buffer=4096).build()
    lengths = [16000, 16384, 18432, 20480, 24576]
    values = [reward.score(with_tokens(range(n))).value for n in lengths]
    assert values == pytest.approx([0, 0, -0.5, -1, -1], abs=1e-12)


def test_an_unfinished_answer_costs_extra_when_asked():
    reward = OverlongOptions(max_length=10, buffer=5, unfinished=-0.5).build()
    assert reward.score(with_tokens(range(2), status="truncated")).value == -0.5
    assert reward.score(with_tokens(range(10), status="truncated")).value == -1.5
    assert reward.score(with_tokens(range(10))).value == -1.0
    with pytest.raises(ValidationError, match="larger than max_length"):
        OverlongOptions(max_length=5, buffer=6)


@pytest.mark.parametrize(
    ("text", "ngram", "penalty", "expected"),
    [
        ("a b c a b c a b c", 3, 0.1, -0.057143),
        ("A B a b", 2, 1.0, -1 / 3),
        ("two words", 3, 1.0, 0.0),
        ("", 1, 1.0, 0.0),
    ],
)
def test_repeated_words(text, ngram, penalty, expected):
    reward = RepetitionOptions(ngram=ngram, max_penalty=penalty).build()
    assert reward.score(episode(text)).value == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize(("ids", "expected"), [([5] * 5, -0.75), ([1, 2, 3, 4], 0.0), ([1], 0.0)])
def test_repeated_tokens(ids, expected):
    reward = RepetitionOptions(ngram=2, max_penalty=1.0, unit="tokens").build()
    assert reward.score(with_tokens(ids)).value == expected


def test_an_endless_word_costs_the_whole_penalty():
    reward = RepetitionOptions(max_penalty=1.0, longest_word=100).build()
    assert reward.score(episode("x" * 101)).value == -1.0
    assert reward.score(episode("x" * 100)).value == 0.0


@pytest.mark.parametrize(
    ("text", "scripts", "share"),
    [
        ("hello world", ("latin",), 1.0),
        ("答案是 x", ("han",), 0.75),
        ("答えは", ("han", "kana"), 1.0),
        ("答えは", ("han",), 1 / 3),
        ("привет", ("latin",), 0.0),
        ("12 + 3 = 15", ("cyrillic",), 1.0),
        ("答案 `1`\n```python\nprint(x)\n``` \\frac{1}{2} <think>", ("han",), 1.0),
        ("", ("latin",), 1.0),
    ],
)
def test_script_shares(text, scripts, share):
    assert LanguageOptions(scripts=scripts).build().score(episode(text)).value == pytest.approx(share)


def test_a_threshold_makes_it_all_or_nothing():
    reward = LanguageOptions(scripts=("han",), threshold=0.75).build()
    assert reward.score(episode("答案是 x")).value == 1.0
    assert reward.score(episode("答案 x y")).value == 0.0
