"""`kind: judge`: a language model's grade of an answer, between 0 and 1.

    {kind: judge, url: "http://localhost:8000/v1", model: qwen3-32b, criteria: "Is the proof complete and correct?"}

Any OpenAI-compatible endpoint. The judge gives a number on `scale`; the value is (grade - lowest) / (highest -
lowest). Its reply is read strictly (`rollick.rewards.judge_call`): what is no verdict is asked for again and then
Failed, never a 0.
"""

from __future__ import annotations

from typing import Any, Literal

from pydantic import model_validator

from rollick.data.records import Episode
from rollick.rewards.base import Failed, Score, Verdict
from rollick.rewards.judge_call import JudgeClient, JudgeOptions, number_between, work_of
from rollick.rewards.remote_http import HttpFailure

DEFAULT_CRITERIA = "Is the answer correct, complete and to the point? Where there is a reference, it is right."


class JudgeReward:
    """The part `grade` is the number as the judge gave it."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options
        self._client = JudgeClient(options)

    def score(self, episode: Episode) -> Verdict:
        low, high = self._options.scale
        task = (
            f"Grade the answer to the question.\nCriteria: {self._options.criteria}\n"
            f"Give a grade from {low:g} (worst) to {high:g} (best), and first, in reason, why in one sentence."
        )
        fields: dict[str, Any] = {
            "reason": {"type": "string"},
            "grade": {"type": "number", "minimum": low, "maximum": high},
        }
        work = work_of(episode, self._options.reference)
        try:
            grade = self._client.ask(
                task, work, fields, lambda reply: number_between("grade", reply["grade"], low, high)
            )
        except HttpFailure as failure:
            return Failed(f"reward '{self.name}': {failure}")
        return Score((grade - low) / (high - low), {"grade": grade})

    def stats(self) -> dict[str, float]:
        return self._client.stats()


class Options(JudgeOptions):
    kind: Literal["judge"] = "judge"
    criteria: str = DEFAULT_CRITERIA
    """What to look at, in words."""
    scale: tuple[float, float] = (0.0, 10.0)
    """The worst and the best grade."""

    @model_validator(mode="after")
    def _scale_is_a_range(self) -> Options:
        if self.scale[0] >= self.scale[1]:
            raise ValueError(f"scale {list(self.scale)} must be [worst, best] with worst below best")
        return self

    def build(self) -> JudgeReward:
        return JudgeReward(self)
