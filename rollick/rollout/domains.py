"""The tasks of a job, checked before any model is loaded: every row readable, every prompt short enough."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from rollick.data.records import Task
from rollick.environments.base import EnvironmentOptions, TaskSource
from rollick.errors import ConfigError, DataError
from rollick.models.chat import prompt_ids
from rollick.rewards.base import RewardOptions

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Domain:
    """One environment of the job and those of its tasks that are used.

    `rows` are the indices of the tasks whose prompts fit; `over_long` counts those that were dropped.
    """

    options: EnvironmentOptions
    source: TaskSource
    rows: Sequence[int]
    over_long: int = 0

    @property
    def name(self) -> str:
        return self.options.domain

    def __len__(self) -> int:
        return len(self.rows)

    def task(self, position: int) -> Task:
        return self.source[self.rows[position]]


def open_domains(
    environments: Sequence[EnvironmentOptions],
    tokenizer: PreTrainedTokenizerBase,
    max_prompt_tokens: int,
    over_long_prompts: Literal["refuse", "drop"],
) -> list[Domain]:
    """Load the tasks of every environment and read each once.

    Raises DataError for a bad row, for a prompt over the limit (or, with "drop", when none is left), and when no
    task of an environment can be graded; ConfigError when two environments share a name.
    """
    names = [options.domain for options in environments]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"two environments are called '{name}'; give each its own `name`")
    return [_open(options, tokenizer, max_prompt_tokens, over_long_prompts) for options in environments]


def rewards_by_domain(*sections: Sequence[Domain]) -> dict[str, list[RewardOptions]]:
    """The graders of training and evaluation together. Raises ConfigError when environments of one name are
    graded in two ways."""
    found: dict[str, list[RewardOptions]] = {}
    for domain in (domain for section in sections for domain in section):
        rewards = list(domain.options.rewards)
        if found.setdefault(domain.name, rewards) != rewards:
            raise ConfigError(
                f"environment '{domain.name}' of the evaluation has other rewards than the one of the training; "
                "give it another `name`, or the same rewards"
            )
    return found


def reward_weights(domains: Sequence[Domain]) -> dict[str, dict[str, float]]:
    """Weight by domain and reward label, as the metrics show it."""
    return {domain.name: {reward.label: reward.weight for reward in domain.options.rewards} for domain in domains}


def _open(
    options: EnvironmentOptions,
    tokenizer: PreTrainedTokenizerBase,
    limit: int,
    over_long_prompts: Literal["refuse", "drop"],
) -> Domain:
    source = options.tasks()
    rows, ungradable = [], _Ungradable(options)
    for index in range(len(source)):
        task = source[index]
        length = len(prompt_ids(tokenizer, task.prompt))
        if length <= limit:
            rows.append(index)
            ungradable.check(task, source.where(index))
        elif over_long_prompts == "refuse":
            raise DataError(
                f"{source.where(index)}: the prompt has {length} tokens, rollout.max_prompt_tokens is {limit}; raise "
                "the limit, shorten the prompt, or set rollout.over_long_prompts: drop"
            )
    dropped = len(source) - len(rows)
    if not rows:
        raise DataError(f"environment '{options.domain}': all {dropped} prompts have more than {limit} tokens")
    if dropped:
        log.warning("%s: dropped %d of %d prompts over %d tokens", options.domain, dropped, len(source), limit)
    ungradable.report(len(rows))
    return Domain(options, source, rows, dropped)


class _Ungradable:
    """Counts tasks that a grader will have nothing to say about, which would be seen only as missing rewards."""

    def __init__(self, options: EnvironmentOptions):
        self._options = options
        self._counts: dict[str, int] = {}
        self._examples: dict[str, str] = {}

    def check(self, task: Task, place: str) -> None:
        for reward in self._options.rewards:
            problem = reward.ground_truth_problem(task.ground_truth) if reward.applies_to(task) else None
            if problem is not None:
                self._counts[reward.label] = self._counts.get(reward.label, 0) + 1
                self._examples.setdefault(reward.label, f"{place}: {problem}")

    def report(self, total: int) -> None:
        for label, count in self._counts.items():
            text = f"reward '{label}' cannot use the ground truth of {count} of {total} tasks of environment "
            text += f"'{self._options.domain}' (first: {self._examples[label]})"
            if count == total:
                raise DataError(f"{text}; correct the column, or name it in dataset.columns")
            log.warning("%s; their answers get no reward from it", text)
