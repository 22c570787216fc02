import pytest
from pydantic import ValidationError

from rollick.rewards.base import Abstain, Score
from rollick.rewards.match import Options
from tests.rewards.episodes import episode


def score(options, response, truth):
    return options.build().score(episode(response, truth))


@pytest.mark.parametrize(
    ("answer", "value"),
    [("", 0.0), ("b", 0.0), ("beagle or poodle or pug", 0.0), ("Beagle.", 1.0), (" beagle\n", 1.0), ("beagles", 0.0)],
)
def test_substrings_pay_nothing(answer, value):
    """Case 74."""
    assert score(Options(ignore_case=True, strip=".!"), answer, "beagle") == Score(value)


def test_exact_by_default():
    assert score(Options(), "Beagle", "beagle") == Score(0.0)
    assert score(Options(), "beagle.", "beagle") == Score(0.0)
    assert score(Options(), " beagle ", "beagle") == Score(1.0)


@pytest.mark.parametrize(
    ("pattern", "answer", "value"),
    [
        (r"answer: (\w+)", "answer: cat ... answer: dog", 1.0),
        (r"answer: (\w+)", "answer: dog ... answer: cat", 0.0),
        (r"(?P<word>\w+) is (?P<answer>\w+)", "it is dog", 1.0),
        (r"<a>.*</a>", "<a>dog</a>", 0.0),
        (r"(?<=<a>).*?(?=</a>)", "<a>dog</a>", 1.0),
        (r"answer: (\w+)?", "answer: ", 0.0),
        (r"answer: (\w+)", "dog", 0.0),
    ],
)
def test_a_pattern_points_at_the_answer(pattern, answer, value):
    assert score(Options(pattern=pattern), answer, "dog") == Score(value)


def test_alternatives_and_numbers():
    assert score(Options(), "b", ["a", "b"]) == Score(1.0)
    assert score(Options(), "7", 7) == Score(1.0)


@pytest.mark.parametrize("truth", [None, "", "  ", [], ["a", None], {"a": 1}])
def test_an_unusable_ground_truth_is_abstained_on(truth):
    assert isinstance(score(Options(), "", truth), Abstain)


def test_a_broken_pattern_is_refused_at_load():
    with pytest.raises(ValidationError, match="not a regular expression"):
        Options(pattern="(")


def test_a_pattern_runs_where_it_can_be_killed():
    assert Options(pattern="(a+)+$").runs_isolated and not Options().runs_isolated
