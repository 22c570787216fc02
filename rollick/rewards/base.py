"""The Reward contract: a grader's failure is a value, never a 0.

Score(1.0)                     the answer is right
Abstain("no ground truth")     this grader has nothing to say about this episode; it enters no average
Failed("timeout after 5 s")    the grader itself failed; counted, shown, retried where that helps
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import Field, PositiveFloat

from rollick.config.base import PluginSettings
from rollick.data.records import Episode


@dataclass(frozen=True)
class Score:
    """A finite value and optional named parts (logged, not added)."""

    value: float
    parts: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Abstain:
    reason: str


@dataclass(frozen=True)
class Failed:
    reason: str


Verdict = Score | Abstain | Failed


class Reward(Protocol):
    """Scores one finished episode. `name` labels its metrics (`reward/<name>`)."""

    name: str

    def score(self, episode: Episode) -> Verdict: ...


class RewardOptions(PluginSettings):
    """Base of every reward's `Options` (one reward = one file in this folder).

    A reward that runs code it cannot bound (a computer algebra system, a user's function) says so by
    `runs_isolated`; it is then called in a worker process that can be killed, at most `timeout` seconds a call.
    """

    name: str | None = None
    """Label in metrics and parts; left out, the kind."""
    weight: float = Field(1.0, allow_inf_nan=False)
    timeout: PositiveFloat | None = None
    """Seconds one call may take in its worker process; left out, the job's `rollout.reward_timeout`."""

    @property
    def label(self) -> str:
        return self.name or self.kind

    @property
    def runs_isolated(self) -> bool:
        """Whether calls go to the pool of killable worker processes."""
        return False

    def build(self) -> Reward:
        """The grader, ready to score; raises ConfigError when it cannot be made."""
        raise NotImplementedError(f"{type(self).__module__} must define build")

    def preload(self) -> None:
        """Imports and warm-up done once, before the worker processes are forked."""

    def on_timeout(self, seconds: float) -> Verdict:
        """The verdict of a call that was killed after `seconds`."""
        return Failed(f"reward '{self.label}': timeout after {seconds:g} s")

    def ground_truth_problem(self, ground_truth: Any) -> str | None:
        """Why this grader could not use `ground_truth`, or None when it can; asked of every task when data is loaded,
        so that rows nobody can be paid for are counted and reported there."""
        return None


def checked(verdict: Any, label: str) -> Verdict:
    """`verdict` itself, or Failed when it is no verdict or carries a number that is not finite."""
    if isinstance(verdict, Abstain | Failed):
        return verdict
    if not isinstance(verdict, Score):
        return Failed(f"reward '{label}' returned {verdict!r:.200}, which is no Score, Abstain or Failed")
    for name, value in (("value", verdict.value), *verdict.parts.items()):
        if not math.isfinite(value):
            return Failed(f"reward '{label}' returned {name} = {value}; rewards must be finite")
    return verdict
