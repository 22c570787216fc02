"""The Reward contract: a grader's failure is a value, never a 0.

Score(1.0)                     the answer is right
Abstain("no ground truth")     this grader has nothing to say about this episode; it enters no average
Failed("timeout after 5 s")    the grader itself failed; counted, shown, retried where that helps
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Protocol

from pydantic import Field

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
    """Base of every reward's `Options` (one reward = one file in this folder)."""

    name: str | None = None
    """Label in metrics and parts; left out, the kind."""
    weight: float = Field(1.0, allow_inf_nan=False)

    @property
    def label(self) -> str:
        return self.name or self.kind

    def build(self) -> Reward:
        raise NotImplementedError(f"{type(self).__module__} must define build")
