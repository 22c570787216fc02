"""`kind: numeric`: 1.0 when the answer is a number within a tolerance of the ground truth, else 0.0.

    {kind: numeric, relative: 0.01}       within 1 % of the ground truth
    {kind: numeric, absolute: 0.5}        within half a unit
    {kind: numeric, proportional: true}   1 - error / tolerance in place of all or nothing

Plain, scientific, mixed and fractional numbers with thousands marks, per cent signs, currency and units are read (as
for `math`, a unit on one side is ignored); formulas are not: use `math` for these.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, Literal

from pydantic import Field

from rollick.data.records import Episode
from rollick.rewards.answers import PLACES, Place, Thinking, find_answer, visible
from rollick.rewards.base import Abstain, RewardOptions, Score, Verdict
from rollick.rewards.math_equality import numeral
from rollick.rewards.math_forms import normalize, quantity, without_name


class NumericReward:
    """Parts: `answered`, and `error`, the distance from the ground truth, where there was an answer."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options

    def score(self, episode: Episode) -> Verdict:
        truth = read_number(episode.task.ground_truth)
        if truth is None:
            return Abstain(f"{episode.task.ground_truth!r:.100} is no number")
        text = visible(episode.response_text, self._options.thinking)
        answers = find_answer(text, self._options.extract) if text is not None else []
        numbers = {read_number(answer) for answer in answers}
        answer = numbers.pop() if len(numbers) == 1 else None
        if answer is None:
            return Score(0.0, {"answered": 0.0})
        error = abs(answer - truth)
        allowed = max(Fraction(self._options.absolute), Fraction(self._options.relative) * abs(truth))
        value = float(error <= allowed)
        if self._options.proportional and allowed:
            value = max(0.0, 1.0 - float(error / allowed))
        return Score(value, {"answered": 1.0, "error": float(min(error, Fraction(10**300)))})


def read_number(value: Any) -> Fraction | None:
    """The exact number in a ground truth or an answer, None when it is none; 12 % is 12."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    number, _ = quantity(without_name(normalize(str(value))))
    return numeral(number)


class Options(RewardOptions):
    kind: Literal["numeric"] = "numeric"
    thinking: Thinking = "auto"
    """As for `math`."""
    extract: tuple[Place, ...] = Field(PLACES, min_length=1)
    """As for `math`."""
    absolute: float = Field(0.0, ge=0, allow_inf_nan=False)
    relative: float = Field(1e-6, ge=0, allow_inf_nan=False)
    """Of the ground truth's size. The larger of the two tolerances counts."""
    proportional: bool = False

    def build(self) -> NumericReward:
        return NumericReward(self)

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        return None if read_number(ground_truth) is not None else f"{ground_truth!r:.100} is no number"
