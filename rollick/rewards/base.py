"""The Reward contract: a grader's failure is a value, never a 0.

Score(1.0)                     the answer is right
Abstain("no ground truth")     this grader has nothing to say about this episode; it enters no average
Failed("timeout after 5 s")    the grader itself failed; counted, shown, retried where that helps
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from pydantic import Field, PositiveFloat, model_validator

from rollick.config.base import PluginSettings
from rollick.data.records import Episode, Task


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


class BatchReward(Protocol):
    """Scores several episodes in one call: one verdict each, in their order (see `RewardOptions.batching`)."""

    name: str

    def score_batch(self, episodes: Sequence[Episode]) -> list[Verdict]: ...


@dataclass(frozen=True)
class Batching:
    """How the calls of a reward that waits for a service or a model are gathered: at most `size` episodes a call and
    `in_flight` calls at once, in threads of the trainer's process or, with `own_process`, in one worker process of
    the reward's own, where its method `load` is called once and has `start_seconds`.

        Batching(size=1, in_flight=8)             a judge behind HTTP
        Batching(size=32, own_process=True)       a model
    """

    size: int = 1
    in_flight: int = 1
    own_process: bool = False
    start_seconds: float = 600.0


class RewardOptions(PluginSettings):
    """Base of every reward's `Options` (one reward = one file in this folder).

    A reward that runs code it cannot bound (a computer algebra system, a user's function) says so by
    `runs_isolated`; it is then called in a worker process that can be killed, at most `timeout` seconds a call.
    One that waits for a service or scores many episodes at once says so by `batching`. All others are called where
    the trainer runs, and answer at once. `score` may be a coroutine function in each of these.
    """

    name: str | None = None
    """Label in metrics and parts; left out, the kind."""
    weight: float = Field(1.0, allow_inf_nan=False)
    timeout: PositiveFloat | None = None
    """Seconds one call may take in its worker process; left out, the job's `rollout.reward_timeout`."""
    clip: tuple[float, float] | None = None
    """The value is cut to this range before it is weighted; its part in the metrics stays as it was."""
    gate: str | None = None
    """Label of a reward beside this one ("format before correctness"): where that reward's own value is below
    `gate_at`, this one counts 0. Its part stays as it was, and the part `<label>/gated` says so."""
    gate_at: float = 1.0
    """What the gate's value must reach."""
    task_tags: tuple[str, ...] = ()
    """Only for tasks whose column `tags` (a text or a list) holds one of these; left out, for all."""
    cache: bool = False
    """Remember verdicts by content: the same options, prompt, answer and ground truth are graded once."""

    @model_validator(mode="after")
    def _contract_options_fit(self) -> RewardOptions:
        if self.clip is not None and self.clip[0] > self.clip[1]:
            raise ValueError(f"clip {list(self.clip)} is empty; write [lowest, highest]")
        if self.gate is None and "gate_at" in self.model_fields_set and self.gate_at != 1.0:
            raise ValueError(f"gate_at {self.gate_at:g} has no effect without gate")
        return self

    @property
    def label(self) -> str:
        return self.name or self.kind

    @property
    def runs_isolated(self) -> bool:
        """Whether calls go to the pool of killable worker processes."""
        return False

    @property
    def batching(self) -> Batching | None:
        """How calls are gathered, for rewards that wait for a service or a model."""
        return None

    @property
    def counts_tokens(self) -> bool:
        """Whether the value depends on the tokens of an answer, not on its text alone."""
        return False

    def applies_to(self, task: Task) -> bool:
        """Whether `task_tags` selects this reward for a task."""
        written = task.extra.get("tags") or ()
        return not self.task_tags or not set(self.task_tags).isdisjoint(
            [written] if isinstance(written, str) else written
        )

    def build(self) -> Reward | BatchReward:
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
