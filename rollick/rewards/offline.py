"""Grading a file of answers, without a model or a run: what `rollick reward` does.

A row has `prompt` (text or messages), `answer` (or `response`, as the sample files of a run call it), usually
`ground_truth`, and optionally `id`, `domain` (which rewards of a job) and `status: truncated`. All other columns
reach the graders in `Task.extra`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml
from pydantic import Field, ValidationError

from rollick.config.base import Settings, plugin
from rollick.config.load import build_job
from rollick.config.source import Origins, read_tree
from rollick.config.violations import sentences
from rollick.data.datasets import Rows
from rollick.data.records import Completion, Episode, Task, Turn
from rollick.errors import ConfigError, DataError
from rollick.rewards.base import RewardOptions, Verdict
from rollick.rewards.gates import gate_problems
from rollick.rewards.grading import Grader, combine

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

OWN_COLUMNS = ("prompt", "messages", "answer", "response", "ground_truth", "id", "domain", "status")
IN_FLIGHT = 256
"""Rows that are graded at the same time; bounds memory."""
ANY_DOMAIN = "answers"
RewardsByDomain = dict[str, list[RewardOptions]]


class _RewardList(Settings):
    rewards: list[plugin("rewards")] = Field(min_length=1)  # type: ignore[valid-type]


@dataclass(frozen=True)
class GradedRow:
    """One row with the reward it got. GradedRow("a.jsonl:1", {…}, Score(1.0, {"math": 1.0}))"""

    where: str
    row: Mapping[str, Any]
    verdict: Verdict

    @property
    def answer(self) -> str:
        return answer_of(self.row)


def load_rewards(written: str) -> RewardsByDomain:
    """Rewards by domain from a job file, from a file with a list of rewards, or from such a list in the command line.

        load_rewards("job.yaml")
        load_rewards("[{kind: format, tags: [answer]}, {kind: math, gate: format}]")
        load_rewards("math")

    Raises ConfigError with every violation.
    """
    path = Path(written)
    if path.suffix not in (".yaml", ".yml"):
        return {ANY_DOMAIN: _rewards_of(_parse(written, "--reward"), {})}
    if not path.is_file():
        raise ConfigError(f"{written}: there is no such file; give a YAML file or the rewards themselves")
    content = _parse(path.read_text(encoding="utf-8"), written)
    if not isinstance(content, dict) or "kind" in content:
        return {ANY_DOMAIN: _rewards_of(content, {})}
    tree, origins = read_tree(path)
    if "pipeline" not in tree and "environments" not in tree:
        return {ANY_DOMAIN: _rewards_of(tree, origins)}
    return _rewards_of_job(tree, origins, written)


def _rewards_of_job(tree: dict[str, Any], origins: Origins, source: str) -> RewardsByDomain:
    job = build_job(tree, origins, source)
    evaluation = getattr(job, "evaluation", None)
    environments = [*(evaluation.environments if evaluation else []), *getattr(job, "environments", [])]
    found = {environment.domain: list(environment.rewards) for environment in environments if environment.rewards}
    if not found:
        raise ConfigError(f"{source}: this job has no rewards")
    return found


def _parse(text: str, source: str) -> Any:
    try:
        return yaml.load(text, Loader=yaml.SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}: not valid YAML ({str(error).splitlines()[0]})") from None


def _rewards_of(content: Any, origins: Origins) -> list[RewardOptions]:
    if isinstance(content, str) or (isinstance(content, dict) and "kind" in content):
        content = [content]
    tree = content if isinstance(content, dict) else {"rewards": content}
    try:
        rewards = _RewardList.model_validate(tree).rewards
    except ValidationError as error:
        raise ConfigError(sentences(error, _RewardList, tree, origins)) from None
    if problems := gate_problems(rewards):
        raise ConfigError(problems)
    return list(rewards)


def grade_rows(
    rows: Rows,
    rewards: RewardsByDomain,
    workers: int = 2,
    timeout: float = 120.0,
    tokenizer: PreTrainedTokenizerBase | None = None,
) -> Iterator[GradedRow]:
    """Every row with its reward, in order. `tokenizer` counts tokens, for the rewards that ask for them.

    Raises DataError for a row without an answer or of an unknown domain, ConfigError when a reward needs a tokenizer.
    """
    counting = [options.label for some in rewards.values() for options in some if options.counts_tokens]
    if counting and tokenizer is None:
        raise ConfigError(f"reward '{counting[0]}' counts tokens; say whose with --tokenizer FOLDER")
    with Grader(rewards, workers=workers, timeout=timeout) as grader:
        ready: dict[int, Verdict] = {}
        submitted = 0
        for index in range(len(rows)):
            while submitted < min(len(rows), index + IN_FLIGHT):
                grader.submit(_episode(rows, submitted, rewards, tokenizer))
                submitted += 1
            while index not in ready:
                for id, verdicts in grader.poll(timeout=1.0):
                    domain = _domain(rows, int(id), rewards)
                    ready[int(id)] = combine(verdicts, rewards[domain])
            yield GradedRow(rows.where(index), rows[index], ready.pop(index))


def answer_of(row: Mapping[str, Any]) -> str:
    """The answer of a row. Raises KeyError when there is none, TypeError when it is no text."""
    answer = row["answer"] if "answer" in row else row["response"]
    if not isinstance(answer, str):
        raise TypeError(f"the answer is {answer!r:.80}, which is no text")
    return answer


def _domain(rows: Rows, index: int, rewards: RewardsByDomain) -> str:
    """The row's own domain; where there is one only, that."""
    written = rows[index].get("domain")
    if len(rewards) == 1 and (written is None or ANY_DOMAIN in rewards):
        return next(iter(rewards))
    if written not in rewards:
        names = ", ".join(rewards)
        raise DataError(f"{rows.where(index)}: the column domain is {written!r}; it must name one of {names}")
    return str(written)


def _episode(rows: Rows, index: int, rewards: RewardsByDomain, tokenizer: PreTrainedTokenizerBase | None) -> Episode:
    row = rows[index]
    try:
        answer = answer_of(row)
    except KeyError:
        there = ", ".join(row) or "none"
        raise DataError(
            f"{rows.where(index)}: no column 'answer' or 'response' (columns of this row: {there}); "
            "rename the one that holds the answer"
        ) from None
    except TypeError as error:
        raise DataError(f"{rows.where(index)}: {error}") from None
    prompt = row.get("messages") or row.get("prompt") or ""
    if isinstance(prompt, str):
        prompt = [{"role": "user", "content": prompt}]
    extra = {key: value for key, value in row.items() if key not in OWN_COLUMNS}
    task = Task(str(row.get("id", index)), _domain(rows, index, rewards), prompt, row.get("ground_truth"), extra)
    ids: Sequence[int] = tokenizer(answer, add_special_tokens=False)["input_ids"] if tokenizer else []
    truncated = row.get("status") == "truncated"
    zeros = [0.0] * len(ids)
    completion = Completion(list(ids), zeros, zeros, [0] * len(ids), "length" if truncated else "stop")
    return Episode(
        id=str(index),
        group_id=str(index),
        member=0,
        task=task,
        seed=0,
        turns=[Turn([], completion, response_text=answer)],
        status="truncated" if truncated else "finished",
    )
