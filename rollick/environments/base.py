"""The Environment contract. A dataset with a grader is the one-turn environment; RLVR is agentic RL of one turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from pydantic import Field, model_validator

from rollick.config.base import PluginSettings, plugin
from rollick.data.records import Message, Task
from rollick.rewards.gates import gate_problems


@dataclass(frozen=True)
class Observation:
    """What the policy sees next: messages to append to the conversation (the whole prompt after `reset`).

    A plain string instead of messages is raw text for models without a chat template.
    """

    messages: list[Message] | str


@dataclass(frozen=True)
class StepResult:
    """The Gymnasium five-tuple, with messages as the observation."""

    observation: Observation
    reward: float
    terminated: bool
    truncated: bool
    info: dict[str, Any] = field(default_factory=dict)


class Environment(Protocol):
    """One episode at a time. `step` gets the text of the policy's turn."""

    def reset(self, task: Task, seed: int) -> Observation: ...

    def step(self, action: str) -> StepResult: ...

    def close(self) -> None: ...


class TaskSource(Protocol):
    """Where tasks come from: finite and indexable, so that a sampler can shuffle it and resume inside it."""

    name: str

    def __len__(self) -> int: ...

    def __getitem__(self, index: int) -> Task: ...

    def where(self, index: int) -> str:
        """The place of a task for people: file and line where there is one."""


class EnvironmentOptions(PluginSettings):
    """Base of every environment's `Options` (one environment = one file in this folder)."""

    pays_rewards: ClassVar[bool] = False
    """True where `step` returns rewards of its own, so that a job needs no graders beside it."""
    runs_inline: ClassVar[bool] = False
    """True where every call returns at once. All others run in threads: one that hangs costs its episode only."""

    name: str | None = None
    """The domain of its tasks, in metrics and samples; left out, the kind."""
    weight: float = Field(1.0, gt=0)
    """Share of each step's prompts, relative to the other environments."""
    rewards: list[plugin("rewards")] = Field(default_factory=list)  # type: ignore[valid-type]
    """Graders of finished episodes; their weighted sum is added to the environment's own turn rewards."""

    @model_validator(mode="after")
    def _gates_exist(self) -> EnvironmentOptions:
        if problems := gate_problems(self.rewards):
            raise ValueError("; ".join(problems))
        return self

    @property
    def domain(self) -> str:
        return self.name or self.kind

    def tasks(self) -> TaskSource:
        """Load the tasks. Raises DataError naming file, row and column."""
        raise NotImplementedError(f"{type(self).__module__} must define tasks")

    def environment(self) -> Environment:
        """A fresh environment for one episode."""
        raise NotImplementedError(f"{type(self).__module__} must define environment")
