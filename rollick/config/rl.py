"""Settings of `pipeline: rl`."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field, PositiveFloat, PositiveInt

from rollick.config.base import Settings, plugin
from rollick.config.job import JobSettings, SamplingSettings


class AlgorithmSettings(Settings):
    """A preset only sets these public options; whatever is written beside it wins."""

    preset: str = "grpo"
    group_size: PositiveInt = 8
    """Answers per prompt."""
    advantage_std: Literal["group", "none"] = "group"
    """Divide by the group's standard deviation (GRPO) or not (Dr.GRPO)."""
    clip_low: float = Field(0.2, ge=0, lt=1)
    clip_high: float = Field(0.2, ge=0)
    dual_clip: float | None = Field(None, gt=1)
    kl_coef: float = Field(0.0, ge=0)
    """Weight of the KL to the reference in the loss; 0 loads no reference."""
    kl_estimator: Literal["k1", "k2", "k3"] = "k3"
    entropy_coef: float = Field(0.0, ge=0)
    loss_aggregation: Literal[
        "token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "sequence_mean_token_sum_norm"
    ] = "token_mean"
    epochs_per_batch: PositiveInt = 1
    truncated_answers: Literal["train", "mask"] = "train"
    """mask: answers cut by a limit keep their place in the group's statistics but carry no loss."""


class RolloutSettings(SamplingSettings):
    prompts_per_step: PositiveInt
    max_prompt_tokens: PositiveInt = 1024
    over_long_prompts: Literal["refuse", "drop"] = "refuse"
    max_new_tokens: PositiveInt = 256
    staleness: float = Field(0, ge=0, le=0)
    """0 = on-policy, the one setting there is today."""
    reward_timeout: PositiveFloat = 120.0
    """Seconds an episode's graders may take together before it counts as failed."""
    max_failure_rate: float = Field(0.25, ge=0, le=1)
    """Share of a step's episodes whose graders or environment may fail before the run stops."""
    max_attempts: PositiveInt = 2
    """Times an episode is tried when its environment or graders fail."""


class EvaluationSettings(Settings):
    every: PositiveInt | None = None
    at_start: bool = True
    environments: list[plugin("environments")] = Field(min_length=1)  # type: ignore[valid-type]
    sampling: SamplingSettings = SamplingSettings(temperature=0.0)
    max_new_tokens: PositiveInt | None = None
    """Left out: the rollout's."""
    samples_per_prompt: PositiveInt = 1
    pass_at: tuple[PositiveInt, ...] = ()
    """Report pass@k for these k (each at most samples_per_prompt)."""
    success_reward: float = 1.0
    """An answer counts as solved when its reward reaches this."""


class ReferenceSettings(Settings):
    path: str | None = None
    """Left out: the model the run starts from."""


class RlJob(JobSettings):
    pipeline: Literal["rl"]
    steps: PositiveInt
    environments: list[plugin("environments")] = Field(min_length=1)  # type: ignore[valid-type]
    algorithm: AlgorithmSettings = AlgorithmSettings()
    rollout: RolloutSettings
    engine: plugin("engines") = Field(default_factory=lambda: {"kind": "torch"})  # type: ignore[valid-type]
    reference: ReferenceSettings = ReferenceSettings()
    evaluation: EvaluationSettings | None = None

    def problems(self) -> list[str]:
        """Relations between settings that no single field can check; every violation, with its numbers."""
        return []


def apply_preset(algorithm: dict[str, Any]) -> dict[str, Any]:
    """Values of `algorithm.preset` under whatever the job file says beside it."""
    return algorithm
