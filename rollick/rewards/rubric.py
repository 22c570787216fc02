"""`kind: rubric`: a language model checks a list of weighted points; the value is the weighted share that is met.

    kind: rubric
    url: http://localhost:8000/v1
    model: qwen3-32b
    points:
      - {name: cites, text: "Names a source for every number.", weight: 2}
      - {name: short, text: "Has at most three sentences."}

A task may bring its own points in the column that `points_column` names, in the same form (a list of texts will do);
tasks without it use `points`. All points are asked in one request; each is met by 0 to 1. A point with a negative
weight is a fault: meeting it costs that much. The value is the weighted sum over the sum of positive weights.
"""

from __future__ import annotations

import json
from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from rollick.config.base import Settings
from rollick.data.records import Episode, Task
from rollick.rewards.base import Abstain, Failed, Score, Verdict
from rollick.rewards.judge_call import JudgeClient, JudgeOptions, number_between, work_of
from rollick.rewards.remote_http import HttpFailure


class Point(Settings):
    name: str = Field(pattern=r"^[A-Za-z_][\w-]*$")
    """Label of its part in the metrics."""
    text: str = Field(min_length=1)
    """What must hold."""
    weight: float = 1.0
    """Relative to the others; below 0 for a fault."""


class RubricReward:
    """One part per point: how far it is met, 0 to 1."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options
        self._client = JudgeClient(options)

    def score(self, episode: Episode) -> Verdict:
        try:
            points = self._points(episode.task)
        except ValueError as error:
            return Failed(f"reward '{self.name}': column '{self._options.points_column}': {error}")
        if not points:
            return Abstain(f"reward '{self.name}': the task has no points and there are none in the options")
        task = "Check the answer to the question against each of these points:\n" + json.dumps(
            {point.name: point.text for point in points}, ensure_ascii=False
        )
        task += "\nFor each point give a number from 0 (not at all) to 1 (fully) that says how far it holds."
        fields: dict[str, Any] = {point.name: {"type": "number", "minimum": 0, "maximum": 1} for point in points}
        try:
            met = self._client.ask(
                task,
                work_of(episode, self._options.reference),
                fields,
                lambda reply: {name: number_between(name, value, 0.0, 1.0) for name, value in reply.items()},
            )
        except HttpFailure as failure:
            return Failed(f"reward '{self.name}': {failure}")
        return Score(weighted_share(points, met), met)

    def stats(self) -> dict[str, float]:
        return self._client.stats()

    def _points(self, task: Task) -> list[Point]:
        column = self._options.points_column
        written = task.extra.get(column) if column else None
        return read_points(written) if written is not None else list(self._options.points)


def weighted_share(points: list[Point], met: dict[str, float]) -> float:
    """Points of weight 2, 1 and -1 that are met by 1, 0.5 and 1: (2 + 0.5 - 1) / 3 = 0.5."""
    total = sum(point.weight for point in points if point.weight > 0)
    return sum(point.weight * met[point.name] for point in points) / total


def read_points(written: Any) -> list[Point]:
    """Points as a data set brings them: texts, or objects like those of the options. Raises ValueError."""
    if not isinstance(written, list):
        raise ValueError(f"a list of points was expected, not {written!r:.80}")
    try:
        points = [
            Point(name=f"point{number}", text=one)
            if isinstance(one, str)
            else Point.model_validate({"name": f"point{number}", **one})
            for number, one in enumerate(written, start=1)
        ]
    except (ValidationError, TypeError) as error:
        raise ValueError(f"not a list of points ({str(error).splitlines()[0]}): {written!r:.80}") from None
    if points and (problem := _points_problem(points)):
        raise ValueError(problem)
    return points


def _points_problem(points: list[Point]) -> str | None:
    names = [point.name for point in points]
    if len(set(names)) < len(names) or "nonce" in names:
        return f"points need different names, none of them 'nonce' (they are {', '.join(names)})"
    if not any(point.weight > 0 for point in points):
        return "at least one point needs a weight above 0"
    return None


class Options(JudgeOptions):
    kind: Literal["rubric"] = "rubric"
    points: list[Point] = Field(default_factory=list)
    """What to check, for tasks without points of their own."""
    points_column: str | None = None
    """Column of the data set that holds a task's own points."""

    @model_validator(mode="after")
    def _has_points(self) -> Options:
        if not self.points and not self.points_column:
            raise ValueError("needs points, or points_column where each task brings its own")
        if self.points and (problem := _points_problem(self.points)):
            raise ValueError(problem)
        return self

    def build(self) -> RubricReward:
        return RubricReward(self)
