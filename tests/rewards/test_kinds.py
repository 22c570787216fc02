"""Every registered reward with a right and a wrong answer, through the Grader, looking at what the trainer reads."""

import ast
from pathlib import Path

import pytest

import rollick.rewards
from rollick.config.base import load_plugin, plugin_kinds
from rollick.rewards.base import Score
from rollick.rewards.grading import Grader, combine
from tests.rewards.episodes import episode
from tests.rewards.test_grading import collect

ENTRY = {"task": "basic_arithmetic", "config": {}, "entry": {"question": "10 + 7", "answer": "17", "metadata": {}}}
CASES = {
    "math": ({}, r"Result: \boxed{17}", r"Result: \boxed{18}"),
    "match": ({}, "17", "18"),
    "function": ({"path": "tests.rewards.graders:equals"}, "17", "18"),
    "reasoning_gym": ({}, "<answer>17</answer>", "<answer>23</answer>"),
}


def test_every_registered_reward_has_a_case_here():
    assert set(CASES) == set(plugin_kinds("rewards"))


@pytest.mark.parametrize("kind", CASES)
def test_a_right_answer_is_paid_and_a_wrong_one_is_not(kind):
    """Cases 68 and 75."""
    if kind == "reasoning_gym":
        pytest.importorskip("reasoning_gym")
    options, right, wrong = CASES[kind]
    reward = load_plugin("rewards", kind).model_validate({"kind": kind, "weight": 2.0, **options})
    with Grader({"d": [reward]}, workers=1, timeout=30.0) as grader:
        grader.submit(episode(right, "17", id="right", extra=ENTRY))
        grader.submit(episode(wrong, "17", id="wrong", extra=ENTRY))
        done = collect(grader, 2, seconds=60)
    paid = {id: combine(verdicts, [reward]) for id, verdicts in done.items()}
    assert all(isinstance(verdict, Score) for verdict in paid.values()), paid
    assert paid["right"].value == 2.0 and paid["right"].parts[reward.label] == 1.0
    assert paid["wrong"].value < 1.0


def test_no_reward_hands_text_to_the_interpreter():
    """Nothing a policy wrote may reach eval, exec, compile or a shell."""
    for file in Path(rollick.rewards.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            called = node.func if isinstance(node, ast.Call) else None
            assert not (isinstance(called, ast.Name) and called.id in ("eval", "exec", "compile", "__import__")), file
            assert not (isinstance(called, ast.Name) and called.id in ("parse_expr", "sympify")), file
            assert not (isinstance(called, ast.Attribute) and called.attr in ("sympify", "parse_expr", "system")), file
            assert not (isinstance(node, ast.keyword) and node.arg == "shell"), file
