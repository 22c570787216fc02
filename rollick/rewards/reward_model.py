"""`kind: reward_model`: a trained reward model's score, from a process of its own that loads it once.

    {kind: reward_model, path: models/my-rm}                       a sequence classifier: its score
    {kind: reward_model, path: models/my-rm, apply: sigmoid}       the same between 0 and 1
    {kind: reward_model, path: models/qwen3-4b, mode: yes_no}      a language model: P(yes) / (P(yes) + P(no))

A conversation (prompt and answer) goes through the chat template of the reward model's own tokenizer. Rows of similar
length share a forward pass; a score never depends on the rows beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator

from rollick.config.job import DType, ModelSettings
from rollick.data.records import Episode
from rollick.errors import DataError
from rollick.rewards.base import Batching, Failed, RewardOptions, Score, Verdict

if TYPE_CHECKING:
    from torch import Tensor
    from transformers import PreTrainedTokenizerBase

DEFAULT_QUESTION = "Is the answer correct? Reply yes or no."


class RewardModel:
    """Light until `load`, which the worker process calls once."""

    def __init__(self, options: Options):
        self.name = options.label
        self._options = options
        folder = Path(options.path)
        if not (folder / "config.json").is_file():
            raise DataError(f"reward '{self.name}': '{options.path}' is no Hugging Face model folder (no config.json)")

    def load(self) -> None:
        import torch

        from rollick.models.heads import HeadOptions
        from rollick.models.load import load_causal_lm, load_sequence_classifier
        from rollick.models.tokenizer import load_tokenizer

        options = self._options
        settings = ModelSettings(path=options.path, tokenizer=options.tokenizer, dtype=options.dtype)
        self._device = options.device
        if options.device == "auto":
            self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._tokenizer: PreTrainedTokenizerBase = load_tokenizer(settings)
        self._model: Any
        if options.mode == "yes_no":
            self._model = load_causal_lm(settings, device=self._device)
            self._head = HeadOptions.from_config(self._model.config.get_text_config())
            self._answer_ids = [answer_token(self._tokenizer, word) for word in (options.yes, options.no)]
            return
        self._model = load_sequence_classifier(settings, device=self._device)
        labels = self._model.config.num_labels
        if options.output >= labels:
            raise DataError(f"reward '{self.name}': output {options.output}, but '{options.path}' has {labels} outputs")

    def score_batch(self, episodes: Sequence[Episode]) -> list[Verdict]:
        rows = [self._token_ids(episode) for episode in episodes]
        limit = self._options.max_length
        verdicts: list[Verdict] = [
            Failed(f"reward '{self.name}': {len(row)} tokens, reward_model.max_length is {limit}") for row in rows
        ]
        fitting = [index for index, row in enumerate(rows) if 0 < len(row) <= limit]
        for batch in batches_by_length(fitting, rows, self._options.tokens_per_batch):
            for index, value in zip(batch, self._values([rows[index] for index in batch])):
                verdicts[index] = Score(value)
        return verdicts

    def _token_ids(self, episode: Episode) -> list[int]:
        from rollick.models.chat import encode, prompt_ids, render, text_ids

        task, tokenizer = episode.task, self._tokenizer
        if self._options.mode == "yes_no":
            return prompt_ids(tokenizer, [{"role": "user", "content": self._question(episode)}])
        if isinstance(task.prompt, str):
            return text_ids(tokenizer, task.prompt + episode.response_text)
        answer = {"role": "assistant", "content": episode.response_text}
        return encode(tokenizer, render(tokenizer, [*task.prompt, answer]))

    def _question(self, episode: Episode) -> str:
        """The work as one JSON document, so that the answer stays a quotation."""
        task = episode.task
        work = {"question": task.prompt, "answer": episode.response_text}
        if task.ground_truth is not None:
            work["reference"] = task.ground_truth
        return json.dumps(work, ensure_ascii=False, default=str).replace("<", "\\u003c") + "\n" + self._options.question

    def _values(self, rows: list[list[int]]) -> list[float]:
        import torch

        with torch.inference_mode():
            scores = self._scores(rows).float()
            if self._options.mode == "yes_no":
                return torch.softmax(scores, -1)[:, 0].tolist()
            if self._options.apply == "softmax":
                scores = torch.softmax(scores, -1)
            elif self._options.apply == "sigmoid":
                scores = torch.sigmoid(scores)
            return scores[:, self._options.output].tolist()

    def _scores(self, rows: list[list[int]]) -> Tensor:
        """[rows, outputs]: the head at each row's last token (a decoder), or the classifier's logits (an encoder)."""
        import torch

        width = max(map(len, rows))
        ids = torch.zeros(len(rows), width, dtype=torch.long)
        mask = torch.zeros_like(ids)
        for number, row in enumerate(rows):
            ids[number, : len(row)] = torch.tensor(row)
            mask[number, : len(row)] = 1
        ids, mask = ids.to(self._device), mask.to(self._device)
        decoder_head = self._options.mode != "yes_no" and getattr(self._model, "score", None)
        if not decoder_head and self._options.mode != "yes_no":
            return self._model(input_ids=ids, attention_mask=mask).logits
        hidden = self._model.base_model(input_ids=ids, attention_mask=mask).last_hidden_state
        last = torch.tensor([self._last_position(row) for row in rows], device=hidden.device)
        states = hidden[torch.arange(len(rows), device=hidden.device), last]
        if decoder_head:
            return decoder_head(states)
        logits = self._model.get_output_embeddings()(states)[:, self._answer_ids].float() * self._head.scale
        cap = self._head.softcap
        return logits if cap is None else cap * torch.tanh(logits / cap)

    def _last_position(self, row: list[int]) -> int:
        """Where transformers reads the score of this row alone: its last token that is not the pad token (which may
        be its end token as well)."""
        pad = self._model.config.get_text_config().pad_token_id
        if self._options.mode == "yes_no" or pad is None:
            return len(row) - 1
        return max((position for position, token in enumerate(row) if token != pad), default=0)


def answer_token(tokenizer: PreTrainedTokenizerBase, word: str) -> int:
    """The id of an answer that is one token. Raises DataError when it is several."""
    ids = tokenizer(word, add_special_tokens=False)["input_ids"]
    if len(ids) != 1:
        raise DataError(
            f"'{word}' is {len(ids)} tokens of '{tokenizer.name_or_path}'; choose a yes and no of one token"
        )
    return int(ids[0])


def batches_by_length(indices: Sequence[int], rows: Sequence[Sequence[int]], tokens: int) -> Iterator[list[int]]:
    """Rows of similar length together, each batch at most `tokens` padded tokens (or one row).

    list(batches_by_length([0, 1, 2], ["aaaa", "b", "ccc"], tokens=8))  # [[0, 2], [1]]
    """
    batch: list[int] = []
    for index in sorted(indices, key=lambda index: -len(rows[index])):
        if batch and len(rows[batch[0]]) * (len(batch) + 1) > tokens:
            yield batch
            batch = []
        batch.append(index)
    if batch:
        yield batch


class Options(RewardOptions):
    kind: Literal["reward_model"] = "reward_model"
    path: str
    """Hugging Face folder of a sequence classifier, or (yes_no) of a language model."""
    mode: Literal["score", "yes_no"] = "score"
    """score: the classifier's output; yes_no: the probability that a language model says yes."""
    tokenizer: str | None = None
    """Folder of the tokenizer when it is not the model's."""
    dtype: DType = "float32"
    """Of weights and computation."""
    device: str = "auto"
    """auto: the GPU when there is one; or as torch names it, `cpu` or `cuda:1`."""
    output: NonNegativeInt = 0
    """Which of several outputs of a classifier is the reward."""
    apply: Literal["none", "sigmoid", "softmax"] = "none"
    """What is done to a classifier's outputs before that one is taken."""
    question: str = DEFAULT_QUESTION
    """Asked after question, answer and reference (yes_no)."""
    yes: str = "yes"
    """The answer whose probability counts (yes_no); one token."""
    no: str = "no"
    """The other answer (yes_no); one token."""
    max_length: PositiveInt = 4096
    """Tokens of prompt and answer; a longer one is a failure, since a cut answer would have another score."""
    batch_size: PositiveInt = 64
    """Most answers of one call."""
    tokens_per_batch: PositiveInt = 16384
    """Padded tokens of one forward pass; bounds memory."""
    start_seconds: PositiveFloat = 600.0
    """Time the model has to load."""

    @model_validator(mode="after")
    def _options_belong_to_the_mode(self) -> Options:
        of_other = ("question", "yes", "no") if self.mode == "score" else ("output", "apply")
        for name in of_other:
            if getattr(self, name) != type(self).model_fields[name].default:
                raise ValueError(f"{name} has no effect with mode: {self.mode}; remove it")
        return self

    @property
    def batching(self) -> Batching:
        return Batching(self.batch_size, own_process=True, start_seconds=self.start_seconds)

    def preload(self) -> None:
        import torch  # noqa: F401
        import transformers  # noqa: F401

    def build(self) -> RewardModel:
        return RewardModel(self)
