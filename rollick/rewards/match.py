"""`kind: match`: the answer equals the ground truth, exactly or where a regular expression points.

    {kind: match}                                     "Beagle." is not "beagle"
    {kind: match, ignore_case: true, strip: " ."}     but here it is
    {kind: match, pattern: 'answer: (\\w+)'}           compares group 1 (or the group named `answer`) of the last hit

There is no substring matching: an empty answer and a list of every candidate are wrong.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Any, Literal

from pydantic import field_validator

from rollick.data.records import Episode
from rollick.rewards.base import Abstain, RewardOptions, Score, Verdict


class MatchReward:
    """1.0 when the (extracted, stripped, case-folded) answer equals the ground truth, else 0.0."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options
        self._pattern = re.compile(options.pattern, re.DOTALL) if options.pattern else None

    def score(self, episode: Episode) -> Verdict:
        problem = self._options.ground_truth_problem(episode.task.ground_truth)
        if problem:
            return Abstain(problem)
        truths = episode.task.ground_truth
        accepted = truths if isinstance(truths, list | tuple) else [truths]
        answer = self._extract(episode.response_text)
        if answer is None:
            return Score(0.0)
        return Score(float(self._clean(answer) in {self._clean(str(one)) for one in accepted}))

    def _extract(self, text: str) -> str | None:
        if self._pattern is None:
            return text
        hits = deque(self._pattern.finditer(text), maxlen=1)
        if not hits:
            return None
        last = hits[0]
        if "answer" in self._pattern.groupindex:
            return last["answer"]
        return last[1] if self._pattern.groups else last[0]

    def _clean(self, text: str) -> str:
        text = text.strip()
        if self._options.strip:
            text = text.strip(self._options.strip + " \t\r\n")
        return text.casefold() if self._options.ignore_case else text


class Options(RewardOptions):
    """A list as ground truth names alternatives. Without ground truth the reward abstains."""

    kind: Literal["match"] = "match"
    pattern: str | None = None
    """Regular expression (`.` matches newlines); the last match in the answer counts. No match is a wrong answer."""
    ignore_case: bool = False
    strip: str = ""
    """Characters removed from both ends of answer and ground truth, besides white space."""

    @field_validator("pattern")
    @classmethod
    def _compiles(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"'{pattern}' is not a regular expression: {error}") from error
        return pattern

    @property
    def runs_isolated(self) -> bool:
        # A pattern can backtrack for ever on an answer made for it; plain comparison cannot.
        return self.pattern is not None

    def build(self) -> MatchReward:
        return MatchReward(self)

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        values = ground_truth if isinstance(ground_truth, list | tuple) else [ground_truth]
        if all(isinstance(value, str | int | float) and str(value).strip() for value in values) and values:
            return None
        return f"{ground_truth!r:.100} is no text or number to compare with"
