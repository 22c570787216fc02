import pytest

from rollick.rewards.base import Abstain, Failed, Score
from rollick.rewards.pairwise import Options, settle
from tests.rewards.test_judge import asked, judged, verdict


def prefers(choose):
    """A judge that chooses between the two texts."""

    def reply(request):
        _, work = asked(request)
        return verdict(request, reason="", better=choose(work["first"], work["second"]))

    return reply


longer = prefers(
    lambda first, second: "tie" if len(first) == len(second) else "first" if len(first) > len(second) else "second"
)


def test_better_worse_and_equal_answers():
    scores, requests, _ = judged(longer, Options, ["longest", "x", "four"], ground_truth="good")
    assert [score.value for score in scores] == [1.0, 0.0, 0.5] and len(requests) == 6
    assert all(score.parts == {"disagreement": 0.0} for score in scores)


@pytest.mark.parametrize("place", ["first", "second"])
def test_a_judge_that_likes_a_place_says_nothing(place):
    assert judged(prefers(lambda first, second: place), Options)[0] == [Score(0.5, {"disagreement": 1.0})]


def test_both_orders_are_asked():
    _, requests, _ = judged(longer, Options, ["ours"], ground_truth="theirs")
    pairs = [tuple(asked(request)[1][name] for name in ("first", "second")) for request in requests]
    assert pairs == [("ours", "theirs"), ("theirs", "ours")]


def test_several_answers_to_compare_with_give_the_mean():
    extra = {"others": ["a", "longer than ours", "b"]}
    [score], requests, _ = judged(longer, Options, ["ours"], extra=extra, against="others")
    assert score.value == pytest.approx(2 / 3) and len(requests) == 6
    assert asked(requests[0])[1]["reference"] == "4"


def test_without_an_answer_to_compare_with_it_abstains():
    [nothing], requests, _ = judged(longer, Options, against="others")
    assert isinstance(nothing, Abstain) and "'others'" in nothing.reason and requests == []


@pytest.mark.parametrize("better", ["First", "both", 1, None, ["first"]])
def test_a_choice_that_is_none_is_a_failure(better):
    [failed], _, _ = judged(lambda request: verdict(request, reason="", better=better), Options, retries=0)
    assert isinstance(failed, Failed) and "not one of first, second, tie" in failed.reason


def test_only_a_preference_that_survives_the_swap_counts():
    table = {
        ("first", "second"): (1.0, False),
        ("second", "first"): (0.0, False),
        ("tie", "tie"): (0.5, False),
        ("first", "first"): (0.5, True),
        ("second", "second"): (0.5, True),
        ("first", "tie"): (0.5, True),
        ("tie", "first"): (0.5, True),
    }
    assert {pair: settle(*pair) for pair in table} == table
