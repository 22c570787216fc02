import pytest
from pydantic import ValidationError

from rollick.rewards.base import Abstain, Failed, Score
from rollick.rewards.rubric import Options, Point, read_points, weighted_share
from tests.rewards.test_judge import judged, verdict

POINTS = [{"name": "cites", "text": "Names a source.", "weight": 2}, {"name": "short", "text": "Is short."}]


def test_the_value_is_the_weighted_share_of_points_that_are_met():
    [score], [request], _ = judged(lambda request: verdict(request, cites=1, short=0.25), Options, points=POINTS)
    assert score == Score((2 * 1 + 0.25) / 3, {"cites": 1.0, "short": 0.25})
    assert "Names a source." in request.body["messages"][1]["content"]


def test_faults_have_negative_weights():
    points = [Point(name="a", text="…", weight=2), Point(name="b", text="…"), Point(name="lies", text="…", weight=-1)]
    assert weighted_share(points, {"a": 1.0, "b": 0.5, "lies": 1.0}) == 0.5


@pytest.mark.parametrize(
    "fields", [{"cites": 1}, {"cites": 1, "short": 2}, {"cites": 1, "short": "yes"}, {"cites": 1, "short": 0, "x": 1}]
)
def test_a_reply_needs_every_point_and_no_other(fields):
    [failed], _, _ = judged(lambda request: verdict(request, **fields), Options, points=POINTS, retries=0)
    assert isinstance(failed, Failed)


def test_a_task_brings_its_own_points():
    reply = lambda request: verdict(request, point1=1, tone=0)
    extra = {"rubric": ["Is true.", {"name": "tone", "text": "Is kind.", "weight": 3}]}
    [score], _, _ = judged(reply, Options, points_column="rubric", extra=extra)
    assert score == Score(0.25, {"point1": 1.0, "tone": 0.0})
    [nothing], requests, _ = judged(reply, Options, points_column="rubric")
    assert isinstance(nothing, Abstain) and requests == []


@pytest.mark.parametrize("written", ["Is true.", [1], [{"name": "a"}], ["", "x"], [{"text": "x", "weight": -1}]])
def test_points_of_a_task_that_make_no_sense_are_a_failure_that_says_so(written):
    with pytest.raises(ValueError):
        read_points(written)
    [failed], _, _ = judged(lambda request: {}, Options, points_column="rubric", extra={"rubric": written})
    assert isinstance(failed, Failed) and "column 'rubric'" in failed.reason


@pytest.mark.parametrize("options", [{}, {"points": [POINTS[0]] * 2}, {"points": [{"name": "nonce", "text": "x"}]}])
def test_points_that_cannot_be_asked_are_refused(options):
    with pytest.raises(ValidationError):
        Options(url="http://h", model="m", **options)
