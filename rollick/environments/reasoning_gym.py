"""`kind: reasoning_gym`: problems made by the generators of the package reasoning-gym, graded by its own rules.

    - kind: reasoning_gym
      task: chain_sum
      size: 2000
      config: {min_terms: 2, max_terms: 3}

Held-out problems come from another `seed`.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, ClassVar, Literal

from pydantic import Field, PositiveInt, field_validator, model_validator

from rollick.config.base import nearest
from rollick.data.records import Message, Task
from rollick.environments.base import Environment, EnvironmentOptions, TaskSource
from rollick.environments.one_turn import OneTurn
from rollick.errors import ConfigError, MissingDependencyError
from rollick.state.seeds import derive_seed

AnswerForm = Literal["tags", "number", "text"]
INSTRUCTIONS: dict[AnswerForm, str] = {
    "tags": "Give the final answer between <answer> and </answer>.",
    "number": "End with the number that is the answer.",
    "text": "Reply with the answer only.",
}


class Options(EnvironmentOptions):
    runs_inline: ClassVar[bool] = True

    kind: Literal["reasoning_gym"] = "reasoning_gym"
    task: str
    """Name of a generator of reasoning-gym."""
    size: PositiveInt = 1000
    """Number of problems."""
    seed: int = Field(0, ge=0)
    """Two seeds give different problems, however near they are."""
    config: dict[str, Any] = Field(default_factory=dict)
    """The generator's own options."""
    answer: AnswerForm = "tags"
    """Where the reply's answer stands: in its last <answer> tags, its last number, or it is the whole reply."""
    instruction: str | None = None
    """Put behind every question; left out, a sentence that asks for the form of `answer`. Empty adds nothing."""
    system_prompt: str | None = None

    @field_validator("config")
    @classmethod
    def _no_size_or_seed(cls, config: dict[str, Any]) -> dict[str, Any]:
        if config.keys() & {"size", "seed"}:
            raise ValueError("size and seed stand beside config, not in it")
        return config

    @model_validator(mode="before")
    @classmethod
    def _graded_by_its_own_rules(cls, data: Any) -> Any:
        if isinstance(data, dict) and not data.get("rewards"):
            return {**data, "rewards": [{"kind": "reasoning_gym", "answer": data.get("answer", "tags")}]}
        return data

    @property
    def domain(self) -> str:
        return self.name or self.task

    def tasks(self) -> TaskSource:
        """Raises MissingDependencyError without the package, ConfigError for what the generator refuses."""
        return GeneratedTasks(self)

    def environment(self) -> Environment:
        return OneTurn()


class GeneratedTasks:
    """Problems made when they are asked for; each depends on the seed and its index only."""

    def __init__(self, options: Options):
        self.name = options.domain
        self._options = options
        # The generators seed problem i with seed + i, so neighbouring seeds would share nearly all of their problems.
        seed = derive_seed(options.seed, "reasoning_gym") % 2**32
        self._dataset = make_dataset(options.task, options.config, size=options.size, seed=seed)
        instruction = options.instruction
        self._instruction = INSTRUCTIONS[options.answer] if instruction is None else instruction

    def __len__(self) -> int:
        return self._options.size

    def __getitem__(self, index: int) -> Task:
        if not 0 <= index < len(self):
            raise IndexError(f"problem {index} of {len(self)}")
        entry = self._dataset[index]
        return Task(
            id=f"{self._options.task}/{self._options.seed}/{index}",
            domain=self.name,
            prompt=self._messages(entry["question"]),
            ground_truth=entry["answer"],
            extra={"task": self._options.task, "config": self._options.config, "entry": entry},
        )

    def where(self, index: int) -> str:
        return f"reasoning_gym task {self._options.task}, seed {self._options.seed}, problem {index}"

    def _messages(self, question: str) -> list[Message]:
        system = self._options.system_prompt
        content = f"{question}\n{self._instruction}" if self._instruction else question
        user = {"role": "user", "content": content}
        return [user] if system is None else [{"role": "system", "content": system}, user]


def make_dataset(task: str, config: dict[str, Any], size: int, seed: int) -> Any:
    """A dataset of reasoning-gym. Raises ConfigError naming the nearest task, or the option that it refuses."""
    package = import_package()
    known = package.factory.DATASETS
    if task not in known:
        near = nearest(task, known)
        hint = f"did you mean '{near}'?" if near else f"known: {', '.join(sorted(known))}"
        raise ConfigError(f"reasoning_gym: there is no task '{task}'; {hint}")
    try:
        return package.create_dataset(task, size=size, seed=seed, **config)
    except (TypeError, ValueError, AssertionError) as error:  # the package checks its options by assertions
        raise ConfigError(f"reasoning_gym: task '{task}' refuses config {config}: {error}") from error


def import_package() -> ModuleType:
    try:
        import reasoning_gym
    except ModuleNotFoundError as error:
        raise MissingDependencyError(
            "reasoning_gym tasks need the package reasoning-gym: pip install 'rollick[reasoning-gym]'"
        ) from error
    return reasoning_gym
