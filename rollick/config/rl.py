"""Settings of `pipeline: rl`."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from rollick.config.base import Settings, nearest, plugin
from rollick.config.job import JobSettings, SamplingSettings, context_problems, warmup_problems

DEFAULT_PRESET = "grpo"
PRESETS = Path(__file__).parent / "presets"


class AlgorithmSettings(Settings):
    """A preset only sets these public options; whatever is written beside it wins."""

    preset: str = DEFAULT_PRESET
    """A file of `rollick/config/presets`: the values that a named algorithm gives to the options below."""
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

    @model_validator(mode="before")
    @classmethod
    def _fill_in_preset(cls, written: Any) -> Any:
        return apply_preset(written) if isinstance(written, dict) else written


def preset_names() -> list[str]:
    return sorted(path.stem for path in PRESETS.glob("*.yaml"))


def read_preset(name: str) -> dict[str, Any]:
    """The options a preset sets. Raises ValueError naming the presets there are."""
    names = preset_names()
    if name not in names:
        near = nearest(str(name), names)
        hint = f"; did you mean '{near}'?" if near else ""
        raise ValueError(f"unknown preset '{name}', there are {', '.join(names)}{hint}")
    return yaml.load((PRESETS / f"{name}.yaml").read_text(encoding="utf-8"), Loader=yaml.SafeLoader) or {}


def apply_preset(algorithm: dict[str, Any]) -> dict[str, Any]:
    """Values of `algorithm.preset` under whatever the job file says beside it.

    apply_preset({"preset": "dr_grpo", "clip_high": 0.28})["advantage_std"]  # "none"
    """
    return {**read_preset(algorithm.get("preset", DEFAULT_PRESET)), **algorithm}


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
    algorithm: AlgorithmSettings = Field(default_factory=AlgorithmSettings)
    rollout: RolloutSettings
    engine: plugin("engines", default_kind="torch") = Field(default_factory=dict)  # type: ignore[valid-type]
    reference: ReferenceSettings = ReferenceSettings()
    evaluation: EvaluationSettings | None = None

    @property
    def samples_per_step(self) -> int:
        return self.rollout.prompts_per_step * self.algorithm.group_size

    @property
    def samples_per_update(self) -> int:
        return self.trainer.samples_per_update or self.samples_per_step

    @property
    def planned_updates(self) -> int:
        """Optimiser updates of the whole job, when no group is filtered."""
        return self.steps * self.algorithm.epochs_per_batch * (self.samples_per_step // self.samples_per_update)

    def problems(self) -> list[str]:
        return [
            *self._batch_problems(),
            *self._sampling_problems(),
            *self._reward_problems(),
            *self._length_problems(),
            *(self._evaluation_problems(self.evaluation) if self.evaluation else []),
        ]

    def unused(self) -> dict[str, str]:
        found = {}
        if not self.algorithm.kl_coef:
            reason = "algorithm.kl_coef is 0, so there is no KL term and no reference model"
            found["algorithm.kl_estimator"] = reason
            found["reference.path"] = reason
        return found

    def _batch_problems(self) -> list[str]:
        found = []
        group_size, samples = self.algorithm.group_size, self.samples_per_step
        if group_size == 1:
            found.append(
                "algorithm.group_size = 1: an answer is compared with its own group, so with one member "
                "every advantage is 0; use 2 or more (8 is usual)"
            )
        if samples % self.samples_per_update:
            near = min(_divisors(samples), key=lambda d: (abs(d - self.samples_per_update), -d))
            found.append(
                f"trainer.samples_per_update = {self.samples_per_update} does not divide the {samples} samples of a "
                f"step (rollout.prompts_per_step {self.rollout.prompts_per_step} × algorithm.group_size "
                f"{group_size}); the nearest that does is {near}"
            )
        else:
            parts = f"steps {self.steps} × {self.planned_updates // self.steps} per step"
            found += warmup_problems(self.trainer.schedule, self.planned_updates, parts)
        return found

    def _sampling_problems(self) -> list[str]:
        rollout = self.rollout
        found = []
        if rollout.temperature == 0:
            found.append(
                "rollout.temperature = 0: greedy answers of a group are all equal and have no log-prob ratio; "
                "train with a temperature above 0 (1.0 is usual) and keep 0 for evaluation.sampling"
            )
        for name, neutral in (("top_p", 1.0), ("top_k", 0), ("min_p", 0.0)):
            value = getattr(rollout, name)
            if value != neutral:
                found.append(
                    f"rollout.{name} = {value}: the trainer scores answers under the full softmax, so cutting the "
                    f"distribution would bias every ratio; leave it at {neutral} in training "
                    "(evaluation.sampling may cut)"
                )
        return found

    def _reward_problems(self) -> list[str]:
        sections = {"environments": self.environments}
        if self.evaluation:
            sections["evaluation.environments"] = self.evaluation.environments
        return [
            f"{section}.{index} ({environment.kind}) has no reward source: its steps pay nothing and its rewards "
            "are empty; add one, for example rewards: [{kind: math}]"
            for section, environments in sections.items()
            for index, environment in enumerate(environments)
            if not environment.rewards and not environment.pays_rewards
        ]

    def _length_problems(self) -> list[str]:
        rollout = self.rollout
        lengths = {"rollout.max_new_tokens": rollout.max_new_tokens}
        if self.evaluation and self.evaluation.max_new_tokens:
            lengths["evaluation.max_new_tokens"] = self.evaluation.max_new_tokens
        return [
            problem
            for name, length in lengths.items()
            for problem in context_problems(
                self.model,
                rollout.max_prompt_tokens + length,
                f"rollout.max_prompt_tokens {rollout.max_prompt_tokens} + {name} {length}",
            )
        ]

    def _evaluation_problems(self, evaluation: EvaluationSettings) -> list[str]:
        samples = evaluation.samples_per_prompt
        found = [
            f"evaluation.pass_at has {k}, but only evaluation.samples_per_prompt = {samples} answers are drawn; "
            f"raise samples_per_prompt to {k} or drop pass@{k}"
            for k in evaluation.pass_at
            if k > samples
        ]
        if evaluation.sampling.temperature == 0 and samples > 1:
            found.append(
                f"evaluation.sampling.temperature = 0 with evaluation.samples_per_prompt = {samples}: greedy answers "
                "are all equal; set a temperature or samples_per_prompt 1"
            )
        return found


def _divisors(number: int) -> list[int]:
    return [d for d in range(1, number + 1) if number % d == 0]
