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


class SftJob(JobSettings):
    pipeline: Literal["sft"]
    dataset: DatasetSettings
    steps: PositiveInt | None = None
    """Optimiser updates; give this or `epochs`."""
    epochs: PositiveInt | None = None
    samples_per_update: PositiveInt = 32
    max_length: PositiveInt = 2048
    over_long_rows: Literal["truncate", "drop", "refuse"] = "truncate"
    train_on: Literal["assistant", "completion", "all"] = "assistant"
    """assistant: every assistant turn (messages); completion: the last answer; all: every token but the first."""
    prompt_is: Literal["message", "text"] = "message"
    """A `prompt` that is plain text becomes a user's chat message and its `completion` the assistant's, or (text)
    both are raw text, one behind the other. The same words and default as in `kind: tasks` (RL)."""
    append_eos: bool = True
    """Rows of raw text (`text`, or `prompt_is: text`) end with the tokenizer's end token."""
    loss_aggregation: Literal["token_mean", "sequence_mean_token_mean"] = "token_mean"
    evaluation: SftEvaluationSettings | None = None

    def problems(self) -> list[str]:
        found = []
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
