import pytest

from rollick.rewards.base import Abstain, Score
from rollick.rewards.numeric import Options
from tests.rewards.episodes import episode


def score(response, truth, **options):
    return Options(**options).build().score(episode(response, truth))


@pytest.mark.parametrize(
    ("response", "truth", "options", "expected"),
    [
        ("The answer is 99.2", 100, {"relative": 0.01}, 1),
        ("The answer is 98.9", 100, {"relative": 0.01}, 0),
        ("-99.2", -100, {"relative": 0.01}, 1),
        ("99.2", -100, {"relative": 0.01}, 0),
        ("7.5", "7", {"absolute": 0.5}, 1),
        ("7.51", "7", {"absolute": 0.5}, 0),
        (r"\boxed{\frac{1}{3}}", 1 / 3, {}, 1),
        ("1,234.5", 1234.5, {}, 1),
        ("$12.50", "12.5", {}, 1),
        ("5 km", "5", {}, 1),
        ("1.2e3", 1200, {}, 1),
        ("0", 0, {}, 1),
        ("0.0000001", 0, {}, 0),
        ("I do not know", 7, {}, 0),
        (r"\boxed{x+1}", 7, {}, 0),
        (r"\boxed{6} and \boxed{7}", 7, {}, 0),
        ("<think>7", 7, {}, 0),
        (r"\boxed{nan}", 7, {}, 0),
        (r"\boxed{1e999}", 7, {}, 0),
    ],
)
def test_tolerance(response, truth, options, expected):
    assert score(response, truth, **options).value == expected


def test_proportional_reward_falls_with_the_error():
    values = [score(str(x), 100, relative=0.1, proportional=True).value for x in (100, 95, 90, 80)]
    assert values == pytest.approx([1.0, 0.5, 0.0, 0.0])
    assert score("95", 100, relative=0.1, proportional=True).parts == {"answered": 1.0, "error": 5.0}


@pytest.mark.parametrize("truth", [None, "seven", True, "", float("nan"), float("inf"), [7]])
def test_a_ground_truth_that_is_no_number_is_abstained_on(truth):
    assert isinstance(score("7", truth), Abstain)
    assert Options().ground_truth_problem(truth)


def test_errors_stay_finite():
    verdict = score("1e300", -(10**300))
    assert isinstance(verdict, Score) and verdict.parts["error"] == 1e300
