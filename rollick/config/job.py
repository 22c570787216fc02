"""Settings of the parts that all pipelines share. Sizes are said in what they count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from rollick.config.base import Settings, plugin

BetaFloat = Annotated[float, Field(ge=0, lt=1)]
DType = Literal["float32", "bfloat16", "float16", "float64"]


class ModelSettings(Settings):
    path: str
    """A Hugging Face folder, or a hub name where there is a network."""
    revision: str | None = None
    """Branch, tag or commit of a hub name."""
    tokenizer: str | None = None
    """Folder of the tokenizer when it is not the model's."""
    chat_template: str | None = None
    """A Jinja template file that replaces the tokenizer's own."""
    dtype: DType = "float32"
    """Of the computation. Master weights and optimiser state are always float32 (float64 when this is)."""
    attention: Literal["auto", "sdpa", "eager", "flash_attention_2"] = "auto"
    """auto: the fastest that this machine and model allow."""
    trust_remote_code: bool = False
    """Run Python code that comes with the model."""


class DatasetSettings(Settings):
    path: str
    """A .jsonl, .json, .parquet or .csv file, a folder saved by `datasets`, or a hub name where there is a network."""
    split: str | None = None
    """The split of a dataset that has several, as `train`."""
    limit: PositiveInt | None = None
    """Use only the first rows."""
    columns: dict[str, str] = Field(default_factory=dict)
    """Rename columns: `{ground_truth: answer}` reads ground_truth from the column `answer`."""


class SamplingSettings(Settings):
    temperature: float = Field(1.0, ge=0)
    """Divides the logits; 0 takes the likeliest token (evaluation only)."""
    top_p: float = Field(1.0, gt=0, le=1)
    """Keep the smallest set of tokens whose probability reaches this; 1 keeps all (training needs 1)."""
    top_k: int = Field(0, ge=0)
    """Keep this many likeliest tokens; 0 keeps all (training needs 0)."""
    min_p: float = Field(0.0, ge=0, lt=1)
    """Keep tokens at least this many times as likely as the likeliest; 0 keeps all (training needs 0)."""
    stop: tuple[str, ...] = ()
    """Texts that end an answer, besides the model's end tokens."""


class ScheduleSettings(Settings):
    """The learning rate of update u = 1, 2, …: peak · min(1, u / warmup) and then the decay to `min_ratio`."""

    kind: Literal["constant", "linear", "cosine"] = "constant"
    """Shape of the decay after the warm-up."""
    warmup_updates: int = Field(0, ge=0)
    """Updates until the peak: with 4, the first four use 1/4, 2/4, 3/4 and 4/4 of it."""
    min_ratio: float = Field(0.0, ge=0, le=1)
    """Share of the peak that the last update of a linear or cosine decay uses."""


class TrainerSettings(Settings):
    backend: Literal["fsdp"] = "fsdp"
    """fsdp: PyTorch FSDP2, from one process to many."""
    learning_rate: PositiveFloat = 1e-6
    """Peak of the schedule."""
    schedule: ScheduleSettings = ScheduleSettings()
    weight_decay: float = Field(0.0, ge=0)
    """Decoupled, as in AdamW."""
    betas: tuple[BetaFloat, BetaFloat] = (0.9, 0.999)
    """Decay of AdamW's running mean and of its running square."""
    eps: PositiveFloat = 1e-8
    """Added to AdamW's denominator."""
    max_grad_norm: PositiveFloat | None = 1.0
    """Gradients with a larger global norm are scaled down to it; null clips nothing."""
    samples_per_update: PositiveInt | None = None
    """Rows per optimiser update; left out, all rows of a step make one update (RL)."""
    tokens_per_micro_batch: PositiveInt = 8192
    """Tokens of one forward and backward pass. Bounds memory and never changes the gradient."""
    packing: Literal["auto", "packed", "padded"] = "auto"
    """packed: rows end to end, isolated by position ids; padded: rows of similar length side by side."""
    activation_checkpointing: bool = False
    """Recompute activations in the backward pass: less memory, about a third more time."""
    cpu_offload: bool = False
    """Keep weights and optimiser state in host memory."""


class CheckpointSettings(Settings):
    every: PositiveInt | None = None
    """Steps; left out, only at the end and on Ctrl-C."""
    keep_last: PositiveInt = 2
    """Whole checkpoints that stay; older ones go after a new one is whole."""


class JobSettings(Settings):
    """Keys of every job file, whatever its pipeline."""

    pipeline: str
    """What to run; decides which other keys there are."""
    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")
    """The run's name and its directory's: letters, digits, dots, dashes and underscores."""
    seed: int = Field(0, ge=0, lt=2**63)
    """All randomness of the run derives from it."""
    output_dir: Path = Path("runs")
    """The run directory is `<output_dir>/<name>`."""
    model: ModelSettings
    trainer: TrainerSettings = TrainerSettings()
    checkpoint: CheckpointSettings = CheckpointSettings()
    trackers: list[plugin("trackers")] = Field(default_factory=list)  # type: ignore[valid-type]
    """Where metrics go besides `metrics.jsonl`: `tensorboard`, or `{kind: …, required: true}`."""

    def problems(self) -> list[str]:
        """Relations between settings that no single field can check; every violation, with its numbers."""
        if self.model.dtype == "float16":
            return ["model.dtype = float16: gradients underflow without loss scaling; train in bfloat16 or float32"]
        return []

    def unused(self) -> dict[str, str]:
        """Options that the rest of the job leaves without effect, and why; writing one is an error."""
        return {}


def context_problems(model: ModelSettings, needed: int, parts: str) -> list[str]:
    """`needed` tokens against the model's context, where its config can be read without loading anything."""
    limit = model_context(model)
    if limit is None or needed <= limit:
        return []
    return [f"{parts} = {needed} tokens do not fit the {limit} tokens of context of {model.path}; lower one of them"]


def model_context(model: ModelSettings) -> int | None:
    """Positions a local Hugging Face folder declares; None for a hub name or a config that does not say."""
    try:
        config = json.loads((Path(model.path).expanduser() / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None  # loading the model says precisely what is wrong with the folder
    for section in (config, config.get("text_config") or {}):
        if isinstance(section.get("max_position_embeddings"), int):
            return int(section["max_position_embeddings"])
    return None


def warmup_problems(schedule: ScheduleSettings, planned_updates: int, parts: str) -> list[str]:
    if schedule.warmup_updates <= planned_updates:
        return []
    return [
        f"trainer.schedule.warmup_updates = {schedule.warmup_updates} is more than the {planned_updates} updates "
        f"of this job ({parts}); the learning rate would never reach its peak"
    ]
