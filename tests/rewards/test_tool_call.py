import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.rewards.base import Abstain, Score
from rollick.rewards.tool_call import Options
from tests.rewards.episodes import episode

ROME = {"name": "weather", "arguments": {"city": "Rome", "days": 2}}
OSLO = {"name": "weather", "arguments": {"city": "Oslo", "days": 1}}
SUM = {"name": "sum", "arguments": {"numbers": [1, 2]}}


def said(*calls):
    return "\n".join(
        f"<tool_call>\n{call if isinstance(call, str) else json.dumps(call)}\n</tool_call>" for call in calls
    )


def score(response, truth, **options):
    return Options(**options).build().score(episode(response, truth))


@pytest.mark.parametrize(
    ("response", "truth", "options", "expected"),
    [
        (said(ROME), ROME, {}, 1),
        ("I look it up. " + said(ROME), [ROME], {}, 1),
        (said({"arguments": {"days": 2.0, "city": "Rome"}, "name": "weather"}), ROME, {}, 1),
        (said({"name": "weather", "arguments": json.dumps(ROME["arguments"])}), json.dumps(ROME), {}, 1),
        (said({"name": "now"}), {"name": "now", "arguments": {}}, {}, 1),
        (said({"name": "weather", "arguments": {"city": "Rome", "days": "2"}}), ROME, {}, 0),
        (said({"name": "f", "arguments": {"x": True}}), {"name": "f", "arguments": {"x": 1}}, {}, 0),
        (said({"name": "weather", "arguments": {"city": "Rome"}}), ROME, {}, 0),
        (said({"name": "weather", "arguments": {**ROME["arguments"], "unit": "C"}}), ROME, {}, 0),
        (said({"name": "sum", "arguments": {"numbers": [2, 1]}}), SUM, {}, 0),
        (json.dumps(ROME), ROME, {}, 0),
        ("", ROME, {}, 0),
        ("No tool is needed.", [], {}, 1),
        (said(ROME), [], {}, 0),
        (said(ROME, SUM), [ROME, SUM], {}, 1),
        (said(SUM, ROME), [ROME, SUM], {}, 0),
        (said(SUM, ROME), [ROME, SUM], {"order": "any"}, 1),
        (said(ROME, ROME), [ROME, SUM], {"order": "any", "credit": "fraction"}, 0.5),
        (said(ROME, SUM, OSLO), [ROME, SUM], {"credit": "fraction"}, 0.8),
        (said(ROME, SUM, OSLO), [ROME, SUM], {}, 0),
        (said(ROME, '{"name": "sum", "arguments": {'), [ROME], {}, 0),
        (said(ROME).removesuffix("</tool_call>"), ROME, {}, 1),
        (said(ROME)[:-30], ROME, {}, 0),
        ("<think>" + said(ROME) + "</think>Done.", ROME, {}, 0),
        ("<think>Which?</think>" + said(ROME), ROME, {}, 1),
        (said(json.dumps([ROME])), ROME, {}, 0),
        (said('{"name": "weather", "name": "sum", "arguments": {}}'), {"name": "sum"}, {}, 0),
    ],
)
def test_calls_are_compared_as_json(response, truth, options, expected):
    assert score(response, truth, **options).value == pytest.approx(expected)


def test_parts_tell_a_wrong_tool_from_wrong_arguments_and_from_broken_json():
    assert score(said(OSLO), ROME).parts == {"names": 1.0, "malformed": 0.0}
    assert score(said(SUM), ROME).parts == {"names": 0.0, "malformed": 0.0}
    assert score(said("{"), ROME).parts == {"names": 0.0, "malformed": 1.0}


@pytest.mark.parametrize(
    "truth", [None, "weather(Rome)", {"arguments": {}}, [ROME, 3], {"name": "f", "arguments": [1]}]
)
def test_a_ground_truth_that_is_no_call_is_abstained_on(truth):
    assert isinstance(score(said(ROME), truth), Abstain)
    assert "is no call" in Options().ground_truth_problem(truth)


@given(st.lists(st.sampled_from(["<tool_call>", "</tool_call>", "{", "}", '"name": "f"', '"arguments": ', "[", ","])))
def test_no_answer_breaks_the_reader(pieces):
    verdict = score("".join(pieces), [ROME, SUM], order="any", credit="fraction")
    assert isinstance(verdict, Score) and 0 <= verdict.value <= 1


def test_many_open_tags_and_deep_nesting_end_at_once():
    assert score("<tool_call>" * 20_000, ROME).value == 0
    assert score(said("[" * 100_000), ROME).parts["malformed"] == 1
