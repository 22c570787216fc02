"""How right and how fast mathematics is graded: `python -m benchmarks.math_grading`.

Quality: the hand-checked pairs of `tests/rewards/math_pairs.py`, each answer in a box, put to our reward, to
math-verify as its documentation shows it (ground truth first, in dollar signs), and to comparison of strings.
Precision is the share of paid answers that are right, recall the share of right answers that are paid.
Speed: gradings per second of a warm pool of two workers over answers that never repeat.
"""

from __future__ import annotations

import logging
import random
import time
from collections.abc import Callable
from datetime import date

from benchmarks.common import report
from rollick.data.records import Completion, Episode, Task, Turn
from rollick.rewards.base import Score
from rollick.rewards.grading import Grader
from rollick.rewards.math import Options
from tests.rewards.math_pairs import DIFFERENT, EQUAL

GRADINGS = 2000


def episode(id: str, answer: str, truth: str) -> Episode:
    turn = Turn([1], Completion([2], [0.0], [0.0], [0], "stop"), response_text=f"So it is \\boxed{{{answer}}}.")
    return Episode(id, id, 0, Task(id, "maths", "?", truth), seed=0, turns=[turn], status="finished")


def graded(grader: Grader, pairs: list[tuple[str, str]]) -> list[bool]:
    """Whether each answer was paid in full, in the order of the pairs."""
    for i, (truth, answer) in enumerate(pairs):
        grader.submit(episode(str(i), answer, truth))
    paid: dict[int, bool] = {}
    while len(paid) < len(pairs):
        for id, verdicts in grader.poll(timeout=60.0):
            paid[int(id)] = verdicts["math"] == Score(1.0, {"answered": 1.0, "timeout": 0.0})
    return [paid[i] for i in range(len(pairs))]


def math_verify_alone(truth: str, answer: str) -> bool:
    from math_verify import parse, verify

    return bool(verify(parse(f"${truth}$"), parse(f"So it is $\\boxed{{{answer}}}$.")))


def quality(paid: list[bool]) -> dict[str, float]:
    """Precision and recall over EQUAL followed by DIFFERENT."""
    right, wrong = paid[: len(EQUAL)], paid[len(EQUAL) :]
    return {
        "precision": round(sum(right) / max(1, sum(paid)), 4),
        "recall": round(sum(right) / len(right), 4),
        "wrongly_paid": sum(wrong),
        "wrongly_refused": len(right) - sum(right),
    }


def fresh_pairs(count: int, seed: int = 0) -> list[tuple[str, str]]:
    """Numbers, fractions, roots and polynomials in equal parts; one in five answers is wrong."""
    draw = random.Random(seed)
    pairs = []
    for i in range(count):
        a, b = draw.randint(1, 99_999), draw.randint(2, 99)
        pairs.append(
            [
                (str(a), str(a)),
                (rf"\frac{{{a}}}{{{b}}}", rf"\frac{{{2 * a}}}{{{2 * b}}}"),
                (rf"{a}\sqrt{{{b}}}", rf"\sqrt{{{b}}} \cdot {a}"),
                (rf"{a}x^2+{b}x", rf"{b}x + {a}x^2"),
                (str(a), str(b)),
            ][i % 5]
        )
    return pairs


def main() -> None:
    logging.disable(logging.WARNING)
    pairs = EQUAL + DIFFERENT
    sides: dict[str, Callable[[str, str], bool]] = {
        "math_verify": math_verify_alone,
        "strings": lambda truth, answer: truth.strip() == answer.strip(),
    }
    result: dict[str, object] = {"date": date.today().isoformat(), "pairs": len(pairs)}
    with Grader({"maths": [Options()]}, workers=2, timeout=60.0) as grader:
        graded(grader, [("7", "7")])
        result["ours"] = quality(graded(grader, pairs))
        work = fresh_pairs(GRADINGS)
        start = time.perf_counter()
        graded(grader, work)
        result["gradings_per_second"] = round(GRADINGS / (time.perf_counter() - start), 1)
    for name, side in sides.items():
        result[name] = quality([side(truth, answer) for truth, answer in pairs])
    report("math_grading", result)


if __name__ == "__main__":
    main()
