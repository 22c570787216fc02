"""`kind: tasks`: a dataset whose rows are problems, graded by the rewards beside it (RLVR).

    - kind: tasks
      dataset: {path: data/train.jsonl}
      rewards: [math]

A row has `prompt` (text, or chat messages) or `messages`, usually `ground_truth`, and optionally `id`. All other
columns are kept for graders in `Task.extra`.

    {"prompt": "What is 3+4?", "ground_truth": "7"}
"""

from __future__ import annotations

from typing import Any, ClassVar, Literal

from pydantic import model_validator

from rollick.config.job import DatasetSettings
from rollick.data.datasets import Rows, load_rows
from rollick.data.records import Message, Task
from rollick.environments.base import Environment, EnvironmentOptions, TaskSource
from rollick.environments.one_turn import OneTurn
from rollick.errors import DataError

OWN_COLUMNS = ("prompt", "messages", "ground_truth", "id")


class Options(EnvironmentOptions):
    runs_inline: ClassVar[bool] = True

    kind: Literal["tasks"] = "tasks"
    dataset: DatasetSettings
    prompt_is: Literal["message", "text"] = "message"
    """A prompt that is plain text becomes a user's chat message, or (text) the raw beginning that is continued."""
    system_prompt: str | None = None
    """Put before the messages of every row that has no system message of its own."""

    @model_validator(mode="after")
    def _system_prompt_needs_messages(self) -> Options:
        if self.system_prompt is not None and self.prompt_is == "text":
            raise ValueError("system_prompt needs chat messages; remove it or set prompt_is: message")
        return self

    def tasks(self) -> TaskSource:
        return DatasetTasks(load_rows(self.dataset), self)

    def environment(self) -> Environment:
        return OneTurn()


class DatasetTasks:
    """Rows read one at a time as tasks. Reading a row without a usable prompt raises DataError naming the place."""

    def __init__(self, rows: Rows, options: Options):
        self.name = options.domain
        self._rows = rows
        self._options = options

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> Task:
        row = self._rows[index]
        id = row.get("id")
        return Task(
            id=f"{self._rows.name}/{index if id is None else id}",
            domain=self.name,
            prompt=self._prompt(index, row),
            ground_truth=row.get("ground_truth"),
            extra={key: value for key, value in row.items() if key not in OWN_COLUMNS},
        )

    def where(self, index: int) -> str:
        return self._rows.where(index)

    def _prompt(self, index: int, row: dict[str, Any]) -> list[Message] | str:
        given = [name for name in ("messages", "prompt") if row.get(name) is not None]
        if not given:
            raise self._rows.missing_column(index, "prompt", "messages")
        if len(given) == 2:
            raise DataError(f"{self.where(index)}: has both 'prompt' and 'messages'; keep one of them")
        prompt = row[given[0]]
        if isinstance(prompt, str):
            if not prompt:
                raise DataError(f"{self.where(index)}: '{given[0]}' is empty")
            if self._options.prompt_is == "text":
                return prompt
            prompt = [{"role": "user", "content": prompt}]
        return self._with_system(self._checked(index, given[0], prompt))

    def _checked(self, index: int, column: str, messages: Any) -> list[Message]:
        place = f"{self.where(index)}: '{column}'"
        if not isinstance(messages, list) or not messages:
            raise DataError(f"{place} must be text or a list of chat messages, not {messages!r:.80}")
        for message in messages:
            if not isinstance(message, dict) or not isinstance(message.get("role"), str) or "content" not in message:
                raise DataError(f'{place} holds {message!r:.80}; a message looks like {{"role": …, "content": …}}')
        if messages[-1]["role"] == "assistant":
            raise DataError(f"{place} ends with the assistant's answer; end it with the question to be answered")
        return messages

    def _with_system(self, messages: list[Message]) -> list[Message]:
        if self._options.system_prompt is None or messages[0]["role"] == "system":
            return messages
        return [{"role": "system", "content": self._options.system_prompt}, *messages]
