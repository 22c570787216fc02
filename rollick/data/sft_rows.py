"""Rows of a fine-tuning dataset as token ids with a loss mask.

A row has one of three shapes:

    {"messages": [{"role": "user", "content": "3+4="}, {"role": "assistant", "content": "7"}]}
    {"prompt": "3+4=", "completion": "7"}      (each a string or messages)
    {"text": "3+4=7"}

and optionally `tools` (a list, or its JSON text) beside messages. `train_on` says what is learnt:

| `train_on`   | messages                 | prompt + completion                 | text                 |
|---|---|---|---|
| `assistant`  | every assistant turn     | every assistant turn of completion  | refused              |
| `completion` | the last assistant turn  | the last assistant turn             | refused              |
| `all`        | every token but the first | every token but the first          | every token but the first |

Answers in messages end as the chat template ends them. Raw text (`text`, or strings with `prompt_is: text`) gets
the tokenizer's end token appended unless it is there already; a row that was cut by `max_length` has none.
A template that rewrites earlier turns gives several rows per conversation, see `models.turns.conversation_rows`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from rollick.config.sft import SftJob
from rollick.data.datasets import Row, Rows
from rollick.data.records import NO_VERSION, Message, Sample
from rollick.errors import DataError
from rollick.models.chat import Tools, encode, render, text_ids
from rollick.models.turns import TokenRow, completion_ids, conversation_rows

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


@dataclass
class SftReport:
    """What preparation did. A conversation may give several rows (`rows` counts those that are trained).

    SftReport(dataset_rows=100, rows=97, truncated=5, dropped_over_long=0, dropped_untrained=3,
              dropped_tokens=812, tokens=20480, trained_tokens=9034, without_end_token=5)
    """

    dataset_rows: int = 0
    rows: int = 0
    truncated: int = 0
    dropped_over_long: int = 0
    dropped_untrained: int = 0
    """Rows in which no token is trained, for example because the prompt alone reaches max_length."""
    dropped_tokens: int = 0
    tokens: int = 0
    trained_tokens: int = 0
    without_end_token: int = 0
    """Rows that train no end token, and so do not teach the model to stop."""

    def metrics(self) -> dict[str, float]:
        return {f"data/{name}": float(value) for name, value in asdict(self).items()}

    def summary(self) -> str:
        """One line for people."""
        lost = [
            f"{count} {what}"
            for count, what in (
                (self.truncated, "truncated"),
                (self.dropped_over_long, "dropped as over-long"),
                (self.dropped_untrained, "dropped without a trained token"),
            )
            if count
        ]
        line = f"{self.rows} rows of {self.dataset_rows}, {self.tokens} tokens, {self.trained_tokens} trained on"
        return f"{line} ({', '.join(lost)}; {self.dropped_tokens} tokens lost)" if lost else line


class SftRows(Sequence[Sample]):
    """The prepared rows, kept compactly; indexing makes a `Sample` (id `train/17`, or `train/17#1` for the second
    row of a conversation). `report` says what was truncated and dropped."""

    def __init__(self, rows: list[tuple[str, np.ndarray, np.ndarray]], report: SftReport, domain: str):
        self._rows = rows
        self._domain = domain
        self.report = report

    def __len__(self) -> int:
        return len(self._rows)

    @overload
    def __getitem__(self, index: int) -> Sample: ...
    @overload
    def __getitem__(self, index: slice) -> list[Sample]: ...
    def __getitem__(self, index: int | slice) -> Sample | list[Sample]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        id, token_ids, loss_mask = self._rows[index]
        size = len(token_ids)
        return Sample(
            id=id,
            group_id=id,
            task_id=id,
            domain=self._domain,
            token_ids=token_ids.astype(np.int64),
            loss_mask=loss_mask,
            behaviour_logprobs=np.zeros(size, np.float32),
            kept_logmass=np.zeros(size, np.float32),
            versions=np.full(size, NO_VERSION, np.int64),
            segments=[],
            reward=None,
            truncated=False,
        )


def prepare_sft_rows(rows: Rows, tokenizer: PreTrainedTokenizerBase, job: SftJob, end_ids: Sequence[int]) -> SftRows:
    """Tokenise a dataset. `end_ids` are the tokens that end an answer (`models.tokenizer.end_token_ids`).

    Over-long rows are truncated to their first `max_length` tokens (what is cut off never becomes a row of its
    own), dropped, or refused, as `over_long_rows` says; rows with no trained token left are dropped and counted.
    Raises DataError naming file and row for a row of no known shape, and when nothing is left to train on.
    """
    report = SftReport(dataset_rows=len(rows))
    kept: list[tuple[str, np.ndarray, np.ndarray]] = []
    reader = RowReader(tokenizer, job, frozenset(end_ids))
    for index in range(len(rows)):
        for part, whole in enumerate(reader.read(rows, index)):
            row = _fit(whole, job, report, rows.where(index))
            if row is None:
                continue
            token_ids, loss_mask = np.asarray(row.token_ids, np.int32), np.asarray(row.loss_mask, bool)
            kept.append((f"{rows.name}/{index}" + (f"#{part}" if part else ""), token_ids, loss_mask))
            report.without_end_token += reader.end_ids.isdisjoint(token_ids[loss_mask].tolist())
    if not kept:
        raise DataError(
            f"dataset '{rows.path}': none of its {len(rows)} rows has a token to train on "
            f"({report.dropped_over_long} dropped as longer than max_length = {job.max_length}, "
            f"{report.dropped_untrained} with no trained token left); "
            f"raise max_length, or check train_on: {job.train_on}"
        )
    report.rows = len(kept)
    report.tokens = sum(len(ids) for _, ids, _ in kept)
    report.trained_tokens = int(sum(mask.sum() for _, _, mask in kept))
    return SftRows(kept, report, rows.name)


def _fit(row: TokenRow, job: SftJob, report: SftReport, where: str) -> TokenRow | None:
    """The row as it is trained: within max_length, with something to train; None (and counted) when dropped."""
    length = len(row.token_ids)
    if length > job.max_length and job.over_long_rows == "refuse":
        raise DataError(
            f"{where}: the row has {length} tokens, more than max_length = {job.max_length}; "
            "raise it, or set over_long_rows to truncate or drop"
        )
    if length > job.max_length and job.over_long_rows == "drop":
        report.dropped_over_long += 1
        report.dropped_tokens += length
        return None
    if not any(row.loss_mask[: job.max_length]):
        report.dropped_untrained += 1
        report.dropped_tokens += length
        return None
    if length > job.max_length:
        report.truncated += 1
        report.dropped_tokens += length - job.max_length
    return TokenRow(row.token_ids[: job.max_length], row.loss_mask[: job.max_length])


class RowReader:
    """Turns one dataset row into token rows, by its shape."""

    def __init__(self, tokenizer: PreTrainedTokenizerBase, job: SftJob, end_ids: frozenset[int]):
        self._tokenizer = tokenizer
        self._job = job
        self.end_ids = end_ids

    def read(self, rows: Rows, index: int) -> list[TokenRow]:
        """Raises DataError naming file and row."""
        row = rows[index]
        shapes = [name for name in ("messages", "prompt", "text") if row.get(name) is not None]
        if not shapes:
            raise rows.missing_column(index, "prompt", "messages", "text")
        if len(shapes) > 1:
            raise DataError(f"{rows.where(index)}: has both '{shapes[0]}' and '{shapes[1]}'; keep one of them")
        try:
            if shapes[0] == "messages":
                return self._messages(_messages(row, "messages"), _tools(row))
            if shapes[0] == "prompt":
                rows.require(index, "completion")
                return self._prompt_completion(row)
            return self._text(row["text"])
        except DataError as error:
            where = rows.where(index)
            raise error if str(error).startswith(where) else DataError(f"{where}: {error}") from error

    def _messages(self, messages: list[Message], tools: Tools | None, first: int = 0) -> list[TokenRow]:
        """Messages from `first` on may be trained."""
        if self._job.train_on == "all":
            return [_all_but_first(_whole_ids(self._tokenizer, messages, tools))]
        answers = [i for i in range(first, len(messages)) if messages[i]["role"] == "assistant"]
        if not answers:
            raise DataError("no assistant message to train on; set train_on: all, or remove the row")
        if self._job.train_on == "completion":
            answers = answers[-1:]
        return conversation_rows(self._tokenizer, messages, answers, tools)

    def _prompt_completion(self, row: Row) -> list[TokenRow]:
        prompt, completion = row["prompt"], row["completion"]
        if self._job.prompt_is == "text" and isinstance(prompt, str) and isinstance(completion, str):
            return [self._raw(text_ids(self._tokenizer, prompt), completion_ids(self._tokenizer, prompt, completion))]
        given = _messages(row, "prompt", role="user")
        answer = _messages(row, "completion", role="assistant")
        return self._messages([*given, *answer], _tools(row), first=len(given))

    def _text(self, text: Any) -> list[TokenRow]:
        if self._job.train_on != "all":
            raise DataError(
                f"'text' has no {self._job.train_on} part to train on; set train_on: all, "
                "or give rows with messages or with prompt and completion"
            )
        if not isinstance(text, str):
            raise DataError(f"'text' must be a string, not {type(text).__name__}")
        return [self._raw([], text_ids(self._tokenizer, text))]

    def _raw(self, context: list[int], trained: list[int]) -> TokenRow:
        eos = self._tokenizer.eos_token_id
        if self._job.append_eos and not (trained and trained[-1] in self.end_ids):
            if eos is None:
                raise DataError("the tokenizer has no end token to append; set append_eos: false")
            trained = [*trained, eos]
        if not context or self._job.train_on == "all":
            return _all_but_first([*context, *trained])
        return TokenRow.of(context, trained)


def _whole_ids(tokenizer: PreTrainedTokenizerBase, messages: list[Message], tools: Tools | None) -> list[int]:
    """The whole conversation as the template writes it, without a generation prompt."""
    return encode(tokenizer, render(tokenizer, messages, tools))


def _all_but_first(token_ids: list[int]) -> TokenRow:
    return TokenRow(token_ids, [position > 0 for position in range(len(token_ids))])


def _messages(row: Row, column: str, role: str | None = None) -> list[Message]:
    """The messages of a column: a list, its JSON text, or (with `role`) the text of one message."""
    value = row[column]
    if isinstance(value, str):
        if role is not None:
            return [{"role": role, "content": value}]
        value = _from_json(value, column)
    if not isinstance(value, list) or not value or not all(isinstance(m, dict) and "role" in m for m in value):
        raise DataError(f'\'{column}\' must be a list of messages like {{"role": …, "content": …}}, not {value!r:.80}')
    return value


def _tools(row: Row) -> Tools | None:
    value = row.get("tools")
    return _from_json(value, "tools") if isinstance(value, str) else value


def _from_json(text: str, column: str) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise DataError(f"'{column}' is text but not JSON ({error.msg}): {text!r:.80}") from error
