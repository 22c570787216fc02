"""Settings of `pipeline: rl`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, PositiveFloat, PositiveInt

from rollick.config.algorithm import AlgorithmSettings
from rollick.config.base import Settings, plugin
from rollick.config.job import JobSettings, SamplingSettings, context_problems, warmup_problems
from rollick.config.watch import HackingWatchSettings


class RolloutSettings(SamplingSettings):
    prompts_per_step: PositiveInt
    """Prompts of a step; each gets algorithm.group_size answers."""
    max_prompt_tokens: PositiveInt = 1024
    """Longest prompt in tokens, chat template included."""
    over_long_prompts: Literal["refuse", "drop"] = "refuse"
    """Stop at a prompt that is longer, or leave it out and say how many were."""
    max_new_tokens: PositiveInt = 256
    """Longest answer in tokens."""
    staleness: float = Field(0, ge=0, le=0)
    """0 = on-policy, the one setting there is today."""
    reward_timeout: PositiveFloat = 120.0
    """Seconds a grader may take over one answer before it counts as failed."""
    episode_timeout: PositiveFloat = 3600.0
    """Seconds from its start until an answer that is still missing counts as failed (waiting for a slot included)."""
    stall_warning: PositiveFloat = 60.0
    """Seconds without any finished answer until a line says which episodes are waited for."""
    max_failure_rate: float = Field(0.25, ge=0, le=1)
    """Share of a step's episodes whose graders or environment may fail before the run stops."""
    max_attempts: PositiveInt = 2
    """Times an episode is tried when its environment or graders fail."""


class EvaluationSampling(SamplingSettings):
    temperature: float = Field(0.0, ge=0)
    """Divides the logits; 0 takes the likeliest token."""


class EvaluationSettings(Settings):
    every: PositiveInt | None = None
    """Steps; left out, only after the last."""
    at_start: bool = True
    """Also before the first step, so that there is something to compare with."""
    environments: list[plugin("environments")] = Field(min_length=1)  # type: ignore[valid-type]
    """Its own tasks; every task is asked each time."""
    sampling: EvaluationSampling = EvaluationSampling()
    max_new_tokens: PositiveInt | None = None
    """Left out: the rollout's."""
    samples_per_prompt: PositiveInt = 1
    """Answers per prompt, for avg@n and pass@k."""
    pass_at: tuple[PositiveInt, ...] = ()
    """Report pass@k for these k (each at most samples_per_prompt)."""
    success_reward: float = 1.0
    """An answer counts as solved when its reward reaches this."""


class ReferenceSettings(Settings):
    path: str | None = None
    """Left out: the model the run starts from."""


class LoggingSettings(Settings):
    sample_groups: int = Field(4, ge=0)
    """Groups of a step whose samples are written to `samples/`; 0 writes none."""
    sample_every: PositiveInt = 1
    """Steps from one file of samples to the next."""
    hacking_watch: HackingWatchSettings | None = HackingWatchSettings()
    """Alarms when something suspicious rises together with the reward; null turns them off."""


class RlJob(JobSettings):
    pipeline: Literal["rl"]
    """What to run; decides which other keys there are."""
    steps: PositiveInt
    """Training steps: answers to prompts_per_step prompts, and the updates on them."""
    environments: list[plugin("environments")] = Field(min_length=1)  # type: ignore[valid-type]
    """Where tasks come from; prompts are drawn from them by weight."""
    algorithm: AlgorithmSettings = Field(default_factory=AlgorithmSettings)
    rollout: RolloutSettings
    engine: plugin("engines", default_kind="torch") = Field(default_factory=dict)  # type: ignore[valid-type]
    """What generates the answers."""
    reference: ReferenceSettings = ReferenceSettings()
    evaluation: EvaluationSettings | None = None
    logging: LoggingSettings = LoggingSettings()

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
            *super().problems(),
            *self.algorithm.problems(),
            *self._batch_problems(),
            *self._sampling_problems(),
            *self._reward_problems(),
            *self._length_problems(),
            *(self._evaluation_problems(self.evaluation) if self.evaluation else []),
        ]

    def unused(self) -> dict[str, str]:
        found = self.algorithm.unused()
        if not self.algorithm.kl_coef:
            found["reference.path"] = "algorithm.kl_coef is 0, so there is no KL term and no reference model"
        return found

    def _batch_problems(self) -> list[str]:
        found = []
        group_size, samples = self.algorithm.group_size, self.samples_per_step
        if group_size == 1 and self.algorithm.compares_answers:
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
