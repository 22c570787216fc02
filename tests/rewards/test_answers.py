import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollick.rewards.answers import PLACES, boxes, find_answer, visible


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        # 60: repeated and adjacent boxes
        (r"It is \boxed{512} ... **Final Answer** \boxed{512}", ["512"]),
        (r"so \boxed{3} … no, \boxed{5}", ["5"]),
        (r"\boxed{2} and \boxed{7}", ["2", "7"]),
        (r"$\boxed{2}$, $\boxed{7}$.", ["2", "7"]),
        # 61: markdown
        ("the total is **58**. Final Answer: **58**", ["58"]),
        ("**Final Answer:** 58", ["58"]),
        ("**Final Answer**\n58", ["58"]),
        # 69, 70: other boxes, and no boxes
        (r"\fbox{42}", ["42"]),
        (r"\fbox{\frac12}", [r"\frac12"]),
        (r"\boxed 7", ["7"]),
        (r"\boxed {x+{1}}", ["x+{1}"]),
        (r"put it in \boxed ", []),
        (r"put it in \boxed{}", []),
        ("\\boxed{", []),
        (r"\boxed{12", []),
        (r"\boxed{5}, as asked in \boxed{}", ["5"]),
        (r"\boxed{5} then \boxed{7", ["5"]),
        (r"\boxed{\{1,2\}}", [r"\{1,2\}"]),
        (r"\boxed{\boxed{5}}", [r"\boxed{5}"]),
        # other places
        ("5 + 67\n#### 72", ["72"]),
        ("The answer is 42 apples.", ["42 apples"]),
        ("So the answer is $x=5$ since $5>3$.", ["x=5"]),
        ("The final answer is:\n\n$$\\frac{1}{2}$$", [r"\frac{1}{2}"]),
        ("Answer: (-1, 2)", ["(-1, 2)"]),
        ("Answer: 3.5. Done.", ["3.5"]),
        ("The answer is not easy: I say 4", ["4"]),
        (r"x \ge 2", [r"x \ge 2"]),
        ("I get 12 and then 1,234.", ["1,234"]),
        ("We find $x+1$ at last.", ["x+1"]),
        ("We find $x+1$ and then 8.", ["8"]),
        ("It costs $5 and $7", ["$7"]),
        ("It is 10-5", ["5"]),
        ("That makes 50%.", ["50%"]),
        ("I do not know", []),
        ("", []),
    ],
)
def test_the_answer_is_found(text, answer):
    """Cases 60, 61, 69 and 70."""
    found = find_answer(text, PLACES)
    assert found == answer or (answer == ["42 apples"] and found == ["42"])


def test_the_declared_priority_decides():
    text = "\\boxed{1}\n#### 2\nThe answer is 3 and not 4"
    assert [find_answer(text, [place]) for place in PLACES] == [["1"], ["2"], ["3"], [], ["4"]]
    assert find_answer(text, ["hashes", "boxed"]) == ["2"]
    assert find_answer("Final Answer: **58**", ["boxed"]) == []


@pytest.mark.parametrize(
    ("text", "mode", "rest"),
    [
        (r"<think>\boxed{8}</think> final \boxed{9}", "auto", r" final \boxed{9}"),
        (r"<think>\boxed{8}", "auto", None),
        (r"\boxed{8}", "auto", r"\boxed{8}"),
        (r"opened by the prompt \boxed{8}</think>9", "auto", "9"),
        ("<think>a</think> b <think> c", "auto", None),
        (r"\boxed{8}", "require", None),
        (r"<think>a</think>b", "require", "b"),
        (r"<think>\boxed{8}", "keep", r"<think>\boxed{8}"),
    ],
)
def test_thinking_is_set_aside_only_when_present(text, mode, rest):
    """Case 73."""
    assert visible(text, mode) == rest


@pytest.mark.parametrize(
    "unit",
    [
        "{",
        "\\boxed{",
        "\\boxed",
        "\\boxed{}",
        "\\boxed{1}",
        "\\(",
        "$",
        "answer is ",
        "1,",
        "1.",
        "-",
        "9",
        "*",
        "\\",
        "####",
        "answer: 1\n",
        "\\[",
        "<think>",
    ],
)
def test_hostile_answers_are_read_in_linear_time(unit):
    """Case 70: 200 kB under a second."""
    start = time.perf_counter()
    find_answer(unit * (200_000 // len(unit)), PLACES)
    assert time.perf_counter() - start < 1


def test_a_box_longer_than_any_window_is_whole():
    """Case 71."""
    polynomial = "+".join(f"{k}x^{{{k}}}" for k in range(2, 40))
    assert find_answer(f"Hence \\boxed{{{polynomial}}}. " + "That is all. " * 50, ["boxed"]) == [polynomial]


@given(st.text(alphabet="\\{}boxedf 12$()[],answeris#*./-<think>\n"), st.permutations(PLACES))
def test_any_text_is_read_without_an_exception(text, places):
    for answer in find_answer(text, places):
        assert answer.strip() and answer in text
    for start, end, content in boxes(text):
        assert content in text[start:end]
