"""Settings of `pipeline: sft`."""

from __future__ import annotations

from typing import Literal

from pydantic import PositiveInt

from rollick.config.base import Settings
from rollick.config.job import DatasetSettings, JobSettings


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
    append_eos: bool = True
    """Plain-text and prompt/completion rows end with the tokenizer's end token."""
    loss_aggregation: Literal["token_mean", "sequence_mean_token_mean"] = "token_mean"
    evaluation: SftEvaluationSettings | None = None
