"""Settings of `pipeline: sft`."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from rollick.config.base import Settings
from rollick.config.job import DatasetSettings, JobSettings, context_problems, warmup_problems


class SftEvaluationSettings(Settings):
    every: PositiveInt | None = None
    """Updates; left out, only at the end."""
    dataset: DatasetSettings
    """Rows that are never trained on."""


class SftJob(JobSettings):
    pipeline: Literal["sft"]
    """What to run; decides which other keys there are."""
    dataset: DatasetSettings
    """Rows with `messages`, with `prompt` and `completion`, or with `text`."""
    steps: PositiveInt | None = None
    """Optimiser updates; give this or `epochs`."""
    epochs: PositiveInt | None = None
    """Passes over the dataset; give this or `steps`."""
    samples_per_update: PositiveInt = 32
    """Rows per optimiser update."""
    max_length: PositiveInt = 2048
    """Longest row in tokens."""
    over_long_rows: Literal["truncate", "drop", "refuse"] = "truncate"
    """What happens to a longer row; how many there were is reported."""
    train_on: Literal["assistant", "completion", "all"] = "assistant"
    """assistant: every assistant turn (messages); completion: the last answer; all: every token but the first."""
    prompt_is: Literal["message", "text"] = "message"
    """A `prompt` that is plain text becomes a user's chat message and its `completion` the assistant's, or (text)
    both are raw text, one behind the other. The same words and default as in `kind: tasks` (RL)."""
    append_eos: bool = True
    """Rows of raw text (`text`, or `prompt_is: text`) end with the tokenizer's end token."""
    loss_aggregation: Literal["token_mean", "sequence_mean_token_mean"] = "token_mean"
    """Every trained token weighs alike, or every row does."""
    evaluation: SftEvaluationSettings | None = None

    def problems(self) -> list[str]:
        found = super().problems()
        if (self.steps is None) == (self.epochs is None):
            found.append(
                f"steps ({self.steps}) and epochs ({self.epochs}): give exactly one of them, "
                "steps counts optimiser updates and epochs counts passes over the dataset"
            )
        elif self.steps is not None:
            found += warmup_problems(self.trainer.schedule, self.steps, f"steps = {self.steps}")
        if self.max_length < 2:
            found.append(f"max_length = {self.max_length}: a row needs 2 tokens or more, the first is never trained")
        return found + context_problems(self.model, self.max_length, "max_length")

    def unused(self) -> dict[str, str]:
        return {"trainer.samples_per_update": "pipeline sft reads samples_per_update at the top level of the job"}
