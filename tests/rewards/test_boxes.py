import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.rewards.base import Abstain, Score
from rollick.rewards.boxes import MAX_BOXES, Options, iou
from tests.rewards.episodes import episode

A, B = [0, 0, 2, 2], [10, 10, 14, 12]
CAT, DOG = {"bbox_2d": A, "label": "cat"}, {"bbox_2d": B, "label": "dog"}
numbers = st.integers(-20, 20)
boxes = st.tuples(numbers, numbers, st.integers(0, 20), st.integers(0, 20)).map(
    lambda box: (float(box[0]), float(box[1]), float(box[0] + box[2]), float(box[1] + box[3]))
)


def score(response, truth, **options):
    response = response if isinstance(response, str) else json.dumps(response)
    return Options(**options).build().score(episode(response, truth))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ((0, 0, 2, 2), (0, 0, 2, 2), 1),
        ((0, 0, 2, 2), (1, 0, 3, 2), 1 / 3),
        ((0, 0, 4, 4), (1, 1, 3, 3), 1 / 4),
        ((0, 0, 2, 2), (2, 0, 4, 2), 0),
        ((0, 0, 2, 2), (5, 5, 6, 6), 0),
        ((1, 1, 1, 1), (1, 1, 1, 1), 0),
    ],
)
def test_intersection_over_union(a, b, expected):
    assert iou(a, b) == pytest.approx(expected)


@given(boxes, boxes)
def test_it_is_symmetric_bounded_and_does_not_depend_on_the_place(a, b):
    value = iou(a, b)
    assert 0 <= value <= 1 and value == iou(b, a)
    moved = [tuple(corner + 100 for corner in box) for box in (a, b)]
    assert iou(*moved) == pytest.approx(value)


@pytest.mark.parametrize(
    ("response", "truth", "options", "expected"),
    [
        (A, A, {}, 1),
        ("It is at [0, 0, 2, 2].", [A], {}, 1),
        ("```json\n[[1, 0, 3, 2]]\n```", [A], {}, 1 / 3),
        ([A, B], [A, B], {}, 1),
        ([B, A], [A, B], {}, 1),
        ([A], [A, B], {}, 0.5),
        ([A, B, [50, 50, 60, 60]], [A, B], {}, 2 / 3),
        ([A, A], [A, B], {}, 0.5),
        ([DOG, CAT], [CAT, DOG], {}, 1),
        ([{**CAT, "label": "Cat "}, DOG], json.dumps([CAT, DOG]), {}, 1),
        ([{**CAT, "label": "dog"}, {**DOG, "label": "cat"}], [CAT, DOG], {}, 0),
        ([CAT], [A], {}, 1),
        ([A], [CAT], {}, 0),
        ([1, 0, 3, 2], A, {"at": 0.5}, 0),
        ([[0, 0, 2, 1.5], [50, 50, 60, 60]], [A], {"at": 0.5}, 2 / 3),
        ([], [], {}, 1),
        ([A], [], {}, 0),
        ("nothing there", A, {}, 0),
        ("[2, 2, 0, 0]", A, {}, 0),
        ("[0, 0, 2]", A, {}, 0),
        ("[0, 0, 2, 2, 2]", A, {}, 0),
        ("<think>[0, 0, 2, 2]</think> unsure", A, {}, 0),
    ],
)
def test_boxes_pair_up_once_and_surplus_costs(response, truth, options, expected):
    assert score(response, truth, **options).value == pytest.approx(expected)


def test_covering_everything_pays_nothing():
    assert score([A] * (MAX_BOXES + 1), A) == Score(0.0, {"boxes": MAX_BOXES + 1.0})


@pytest.mark.parametrize("truth", [None, "left", [0, 0, 2], [A, 3], {"label": "cat"}, [0, 0, 2, float("nan")]])
def test_a_ground_truth_without_boxes_is_abstained_on(truth):
    assert isinstance(score(A, truth), Abstain)
    assert "is no box" in Options().ground_truth_problem(truth)


@given(st.text(alphabet='[]{},.0123456789eE-"bxo: \n', max_size=200))
def test_no_answer_breaks_the_reader(text):
    verdict = score(text, [A, B])
    assert isinstance(verdict, Score) and 0 <= verdict.value <= 1
