"""Every registered reward with a right and a wrong answer, through the Grader, looking at what the trainer reads."""

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import rollick.rewards
from rollick.config.base import load_plugin, plugin_kinds
from rollick.rewards.base import Score, checked
from rollick.rewards.grading import Grader, combine
from tests.rewards.episodes import episode
from tests.rewards.test_grading import collect

ENTRY = {"task": "basic_arithmetic", "config": {}, "entry": {"question": "10 + 7", "answer": "17", "metadata": {}}}
CASES = {
    "math": ({}, "17", r"Result: \boxed{17}", r"Result: \boxed{18}"),
    "match": ({}, "17", "17", "18"),
    "function": ({"path": "tests.rewards.graders:equals"}, "17", "17", "18"),
    "reasoning_gym": ({}, None, "<answer>17</answer>", "<answer>23</answer>"),
    "choice": ({}, "C", r"\boxed{C}", r"\boxed{B}"),
    "numeric": ({}, 17, "It is 17", "It is 18"),
    "overlap": ({}, "seventeen", "Seventeen.", "eighteen"),
    "format": ({"tags": ["answer"]}, None, "<answer>17</answer>", "17"),
    "language": ({"scripts": ["latin"]}, None, "seventeen", "семнадцать"),
    "ifeval": ({}, [{"id": "punctuation:no_comma"}], "one and two", "one, two"),
    "json_schema": ({}, {"type": "object"}, "{}", "[]"),
    "code": (
        {"sandbox": {"isolation": "none"}},
        [{"stdin": "7", "stdout": "17"}],
        "```python\nprint(int(input()) + 10)\n```",
        "```python\nprint(18)\n```",
    ),
    "tool_call": ({}, {"name": "f"}, '<tool_call>{"name": "f"}</tool_call>', '<tool_call>{"name": "g"}</tool_call>'),
    "boxes": ({}, [1, 1, 4, 4], "[1, 1, 4, 4]", "[1, 1, 2, 2]"),
    "overlong": ({"max_length": 4, "buffer": 2}, None, "is seventeen", "is one and seven and nine"),
    "repetition": ({"ngram": 1}, None, "all different", "same same"),
}
"""Options, ground truth, a right answer, a wrong answer."""
PENALTIES = {"overlong", "repetition"}
"""These pay 0 at best."""
PACKAGES = {"reasoning_gym": "reasoning_gym", "json_schema": "jsonschema"}
"""What some need."""
ELSEWHERE = {"remote", "judge", "rubric", "pairwise", "reward_model"}
"""These need a service or a model folder; each has its own test file."""


def test_every_registered_reward_has_a_case_here():
    assert set(CASES) | ELSEWHERE == set(plugin_kinds("rewards"))


@pytest.mark.parametrize("kind", CASES)
def test_a_right_answer_is_paid_and_a_wrong_one_is_not(kind):
    """Cases 68 and 75."""
    if kind in PACKAGES:
        pytest.importorskip(PACKAGES[kind])
    options, truth, right, wrong = CASES[kind]
    best = 0.0 if kind in PENALTIES else 1.0
    reward = load_plugin("rewards", kind).model_validate({"kind": kind, "weight": 2.0, **options})
    with Grader({"d": [reward]}, workers=1, timeout=30.0) as grader:
        grader.submit(episode(right, truth, id="right", extra=ENTRY))
        grader.submit(episode(wrong, truth, id="wrong", extra=ENTRY))
        done = collect(grader, 2, seconds=60)
    paid = {id: combine(verdicts, [reward]) for id, verdicts in done.items()}
    assert all(isinstance(verdict, Score) for verdict in paid.values()), paid
    assert paid["right"].value == 2.0 * best and paid["right"].parts[reward.label] == best
    assert paid["wrong"].value < paid["right"].value


PIECES = (
    *(
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<answer>",
        "</answer>",
        "```json\n",
        "```",
        "####",
        "\\boxed{",
    ),
    *("{", "}", "[", "]", "(", ")", '"', ",", ":", ".", "-", "+", "/", "%", "$", "\n", "\\", "^", "*", "|"),
    *(
        "answer is",
        "C",
        "option",
        "name",
        "NaN",
        "null",
        "1",
        "17",
        "1e9",
        "e999999999",
        "½",
        "é",
        "\0",
        "\ud800",
        "the ",
    ),
)


@pytest.mark.parametrize("kind", sorted(CASES.keys() - {"math", "code", "function", "reasoning_gym"}))
@given(st.lists(st.sampled_from(PIECES), max_size=20).map("".join) | st.text(max_size=200))
def test_whatever_an_answer_holds_it_gets_a_finite_score(kind, text):
    """Mathematics and programs are graded in processes of their own and tested there."""
    options, truth, _, _ = CASES[kind]
    reward = load_plugin("rewards", kind).model_validate({"kind": kind, **options})
    verdict = checked(reward.build().score(episode(text, truth)), kind)
    assert isinstance(verdict, Score), verdict


def test_no_reward_hands_text_to_the_interpreter():
    """Nothing a policy wrote may reach eval, exec, compile or a shell."""
    for file in Path(rollick.rewards.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id in ("eval", "exec", "compile", "__import__")), file
            assert not (isinstance(called, ast.Name) and called.id in ("parse_expr", "sympify")), file
            assert not (isinstance(called, ast.Attribute) and called.attr in ("sympify", "parse_expr", "system")), file
            assert not (isinstance(node, ast.keyword) and node.arg == "shell"), file
