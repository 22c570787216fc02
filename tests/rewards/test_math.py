import random
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rollick.rewards.base import Abstain, Score
from rollick.rewards.grading import Grader
from rollick.rewards.math import Options
from tests.rewards.episodes import episode
from tests.rewards.math_pairs import DIFFERENT, EQUAL
from tests.rewards.test_grading import collect

PIECES = (
    *(r"\frac{", r"\sqrt{", r"\boxed{", r"\text{", r"\begin{pmatrix}", r"\end{pmatrix}", r"\left(", r"\right]"),
    *(r"\cup", r"\infty", r"\pm", r"\int_0^1", r"\sum_{k=1}^{9}", r"\sin", r"\log", r"\%", r"^\circ", r"\\", "&"),
    *("1", "-2", "3.5", "1,000", "10^{9}", "x", "y", "e", "i", "+", "-", "*", "/", "^", "_", "=", "<", "!", "|", ","),
    *("{", "}", "(", ")", "[", "]", "$", " ", "and", "\n", "é", "²", "½", "\0"),
)


def value(response, truth, **options):
    verdict = Options(**options).build().score(episode(response, truth))
    assert isinstance(verdict, Score)
    return verdict.value


@pytest.mark.parametrize(
    ("truth", "response", "expected"),
    [
        # 60
        ("512", r"It is \boxed{512} ... **Final Answer** \boxed{512}", 1),
        ("5", r"so \boxed{3} … no, \boxed{5}", 1),
        ("3", r"so \boxed{3} … no, \boxed{5}", 0),
        (r"\{2,7\}", r"\boxed{2} and \boxed{7}", 1),
        ("2,7", r"\boxed{2}, \boxed{7}", 1),
        (r"\{2,7\}", r"\boxed{2}. Hence by symmetry \boxed{7}", 0),
        ("7", r"\boxed{2} and \boxed{7}", 0),
        ("840", r"\boxed{840} \boxed{840}", 1),
        ("840840", r"\boxed{840} \boxed{840}", 0),
        # 61
        ("58", "the total is **58**. Final Answer: **58**", 1),
        # 63
        (r"\dfrac{9}{7}", r"\boxed{\frac{9}{7}}", 1),
        (r"\boxed{9/7}", r"\boxed{\frac{9}{7}}", 1),
        # 68, 69
        ("17", r"Result: \boxed{17}", 1),
        ("17", r"Result: \boxed{18}", 0),
        ("42", r"\fbox{42}", 1),
        ("1/2", r"\fbox{\frac12}", 1),
        ("7", r"\boxed 7", 1),
        # 70
        ("7", r"in \boxed{}", 0),
        ("7", "\\boxed{" + "{" * 200_000, 0),
        # 72
        ("7", "I do not know", 0),
        # 73
        ("8", r"<think>..\boxed{8}</think> final \boxed{9}", 0),
        ("8", r"<think>..\boxed{8}", 0),
        ("8", r"\boxed{8}", 1),
        # plain answers, and ground truths of other shapes
        ("19", "19", 1),
        (19, "The answer is 19.", 1),
        (0.5, "It is 1/2", 1),
        ("9 * 8 = <<9*8=72>>72\n#### 72", "So we get 72 dollars in all.", 1),
        ("72", "#### 72", 1),
        ("-5", "The temperature is -5", 1),
        ("1234", "1,234", 1),
        ("42", "The answer is 42 apples.", 1),
        ("3", "The answer is $x = 3$.", 1),
    ],
)
def test_answers(truth, response, expected):
    """Cases 60 to 63 and 68 to 73."""
    assert value(response, truth) == expected


@pytest.mark.parametrize(("pairs", "expected"), [(EQUAL, 1.0), (DIFFERENT, 0.0)], ids=["equal", "different"])
def test_hand_checked_pairs_in_boxes(pairs, expected):
    """What is equal as mathematics is paid through the whole reward."""
    grader = Options().build()
    verdicts = {pair: grader.score(episode(rf"So it is $\boxed{{{pair[1]}}}$.", pair[0])) for pair in pairs}
    unreadable = {pair for pair, verdict in verdicts.items() if isinstance(verdict, Abstain)}
    assert unreadable <= {(r"9^{9^{9^{9}}}", r"9^{9^{9^9}}")}
    assert [pair for pair in pairs if pair not in unreadable and verdicts[pair].value != expected] == []


def test_strict_mode_wants_a_box():
    """Case 61."""
    assert value("Final Answer: **58**", "58", extract=("boxed",)) == 0
    assert value(r"Final Answer: \boxed{58}", "58", extract=("boxed",)) == 1


def test_thinking_modes():
    """Case 73."""
    assert value(r"\boxed{8}", "8", thinking="require") == 0
    assert value(r"<think>a</think>\boxed{8}", "8", thinking="require") == 1
    assert value(r"<think>\boxed{8}", "8", thinking="keep") == 1


def test_the_prompt_is_never_read():
    """Case 72."""
    asked = episode("I do not know", "7", prompt=r"What is 3+4? Write \boxed{7}.")
    assert Options().build().score(asked) == Score(0.0, {"answered": 0.0, "timeout": 0.0})


@pytest.mark.parametrize("truth", ["see figure", None, "", "}{", ["7"], True, "yes, by induction", r"9^{9^{9^{9}}}"])
def test_an_unreadable_ground_truth_pays_nobody(truth):
    """Case 64."""
    grader = Options().build()
    for answer in ("see figure", "7", r"\boxed{see figure}", ""):
        assert isinstance(grader.score(episode(answer, truth)), Abstain)


def test_unreadable_ground_truths_are_named_when_data_is_loaded():
    """Cases 63 and 64."""
    options = Options()
    assert all(
        options.ground_truth_problem(truth) is None
        for truth in ["7", 7, 0.5, r"\dfrac{9}{7}", r"\text{Monday}", "72 clips", r"\{1,2\}", "#### 72"]
    )
    assert "see figure" in options.ground_truth_problem("see figure")
    assert "None" in options.ground_truth_problem(None)


@pytest.fixture(scope="module")
def grader():
    with Grader({"d": [Options(timeout=1.0)]}, workers=2, timeout=30.0) as grader:
        grader.submit(episode("7", "7", id="warm"))
        assert len(collect(grader, 1, seconds=60)) == 1
        yield grader


def test_hung_comparisons_end_in_time_and_the_pool_stays_whole(grader):
    """Case 79: huge powers, factorials and sums, deep radicals, then ordinary answers."""
    hostile = [
        r"\boxed{9^{9^{9^{9}}}}",
        r"\boxed{" + r"\sqrt{2+" * 300 + "1" + "}" * 300 + "}",
        r"\boxed{\sum_{k=1}^{10^{9}} \frac{1}{k^k+\sin k}}",
        r"\boxed{\int_0^1 \int_0^1 \int_0^1 \sin(xyz)^{x+y} dx dy dz}",
        r"\boxed{(((10^{9})!)!)!}",
        r"\boxed{\prod_{k=1}^{100000} (1+\sqrt{k})}",
    ]
    start = time.monotonic()
    for i, answer in enumerate(hostile):
        grader.submit(episode(answer, "7", id=f"hostile/{i}"))
    for i in range(4):
        grader.submit(episode(rf"\boxed{{{i}}}", str(i), id=f"normal/{i}"))
    done = collect(grader, len(hostile) + 4)
    assert time.monotonic() - start < len(hostile) / 2 * 1.0 + 2
    for episode_id, verdicts in done.items():
        assert verdicts["math"].value == float(episode_id.startswith("normal"))


def test_whatever_an_answer_is_made_of_it_gets_a_score_in_time(grader):
    """Pieces of formulas in any order: no exception, no failed grader, and nothing that is paid by accident."""
    draw = random.Random(0)
    truths = ("987654321", r"\frac{x^2+1}{987}", r"\{1, 987\}", "(987, 988]", r"x = 987\pi")
    cases = [("".join(draw.choices(PIECES, k=draw.randint(1, 12))), truth) for _ in range(120) for truth in truths]
    start = time.monotonic()
    for i, (answer, truth) in enumerate(cases):
        grader.submit(episode(rf"So it is \boxed{{{answer}}}." if i % 2 else answer, truth, id=str(i)))
    done = collect(grader, len(cases), seconds=60)
    assert time.monotonic() - start < 45
    verdicts = [done[str(i)]["math"] for i in range(len(cases))]
    assert [(case, v) for case, v in zip(cases, verdicts) if not isinstance(v, Score) or v.value] == []


def test_a_timeout_is_wrong_and_shows_in_the_parts():
    assert Options().on_timeout(5.0) == Score(0.0, {"answered": 1.0, "timeout": 1.0})


def test_grading_from_threads_gives_the_same_verdicts():
    """Case 78: no signals, so threads grade as the main thread does."""
    cases = [(r"\frac13", "1/3"), (r"3.5\%", "0.035"), (r"\{1,2\}", r"\{2,1\}"), ("8", "7")] * 10

    def grade(case):
        return value(rf"\boxed{{{case[1]}}}", case[0])

    with ThreadPoolExecutor(8) as threads:
        assert list(threads.map(grade, cases, timeout=60)) == [1, 1, 1, 0] * 10
