"""`kind: math`: 1.0 when the answer equals the ground truth as mathematics, else 0.0.

    {kind: math}                          any usual way to state the answer
    {kind: math, extract: [boxed]}        strict: the answer must be boxed
    {kind: math, thinking: require}       an answer counts only behind a finished <think>…</think>

Where the answer is looked for: `rollick.rewards.answers`. What equals what: `rollick.rewards.math_equality`. A ground
truth that cannot be read as mathematics makes the reward abstain, never pay. An answer that takes longer to compare
than `timeout` is wrong (part `timeout`): the ground truth is known to be readable, so the answer is to blame.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

from pydantic import Field, PositiveFloat

from rollick.data.records import Episode
from rollick.rewards.answers import PLACES, Place, Thinking, boxes, find_answer, has_prose, visible
from rollick.rewards.base import Abstain, RewardOptions, Score, Verdict
from rollick.rewards.math_equality import equal, holds_several, is_readable, warm_up
from rollick.rewards.math_forms import normalize, quantity, words


class MathReward:
    """Parts: `answered`, whether there was an answer where one was looked for; `timeout`."""

    def __init__(self, name: str, thinking: Thinking, extract: tuple[Place, ...]):
        self.name = name
        self._thinking = thinking
        self._extract = extract

    def score(self, episode: Episode) -> Verdict:
        problem = ground_truth_problem(episode.task.ground_truth)
        if problem:
            return Abstain(problem)
        truth = ground_truth_text(episode.task.ground_truth)
        text = visible(episode.response_text, self._thinking)
        answers = find_answer(text, self._extract) if text is not None else []
        right = bool(answers) and _matches(truth, answers)
        return Score(float(right), {"answered": float(bool(answers)), "timeout": 0.0})


def _matches(truth: str, answers: list[str]) -> bool:
    """Adjacent boxes state their values together: all must equal the truth, or together be its several values."""
    if all(equal(truth, answer) for answer in answers):
        return True
    return len(answers) > 1 and holds_several(truth) and equal(truth, ", ".join(answers))


def ground_truth_text(value: Any) -> str:
    """The final answer inside a ground truth: behind `####` (GSM8K), in its last box, or all of it."""
    text = str(value)
    if "####" in text:
        return text.rpartition("####")[2].strip()
    found = boxes(text)
    return found[-1][2] if found else text.strip()


def ground_truth_problem(value: Any) -> str | None:
    """Why a ground truth cannot be graded against, or None when it can."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return f"{value!r:.100} is no text or number"
    return _text_problem(ground_truth_text(value))


@lru_cache(maxsize=4096)
def _text_problem(text: str) -> str | None:
    plain = normalize(text)
    if words(plain) is None and has_prose(quantity(plain)[0]):
        return f"{text!r:.100} is prose; put words that are the answer into \\text{{…}}"
    if not is_readable(text):
        return f"{text!r:.100} cannot be read as mathematics"
    return None


class Options(RewardOptions):
    kind: Literal["math"] = "math"
    thinking: Thinking = "auto"
    """auto: `<think>…</think>` is skipped when present, and an unfinished one means no answer; require: the same, and
    an answer needs a finished thought before it; keep: thoughts are read like everything else."""
    extract: tuple[Place, ...] = Field(PLACES, min_length=1)
    """Places an answer is looked for, in this order; `[boxed]` is the strict mode."""
    timeout: PositiveFloat | None = 5.0

    @property
    def runs_isolated(self) -> bool:
        return True

    def build(self) -> MathReward:
        return MathReward(self.label, self.thinking, self.extract)

    def preload(self) -> None:
        warm_up()

    def on_timeout(self, seconds: float) -> Verdict:
        return Score(0.0, {"answered": 1.0, "timeout": 1.0})

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        return ground_truth_problem(ground_truth)
