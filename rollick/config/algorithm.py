"""`algorithm:` of a job: the parts that are composed and the options that they read."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import (
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    ValidationInfo,
    field_validator,
    model_validator,
)

from rollick.config.algorithm_parts import REQUIRED, Part, find_part, selection_of
from rollick.config.base import Settings, nearest

DEFAULT_PRESET = "grpo"
PRESETS = Path(__file__).parent / "presets"
Scope = Literal["none", "group", "batch", "running"]
Level = Literal["none", "token", "geometric", "sequence"]

ALWAYS = frozenset(
    {"preset", "group_size", "advantage", "policy_loss", "sample_filter", "loss_aggregation", "epochs_per_batch"}
    | {"truncated_answers", "entropy_coef", "kl_coef", "reward_mean", "reward_std", "reward_clip", "options"}
    | {"overlong_buffer", "length_reward", "repetition_penalty", "whiten_advantages", "advantage_clip"}
    | {"correction_weight", "correction_mask", "kl_rejection", "kpop_limit", "opsm_limit", "m2po_limit"}
)
"""Options that every algorithm reads; the others belong to a part or to one of these."""


class AlgorithmSettings(Settings):
    """A preset only sets these public options; whatever is written beside it wins. An option with the default null
    belongs to some losses or advantages, which have defaults of their own."""

    preset: str = DEFAULT_PRESET
    """A file of `rollick/config/presets`: the values that a named algorithm gives to the options below."""
    group_size: PositiveInt = 8
    """Answers per prompt."""
    advantage: str = "grpo"
    """The estimator, `rollick algorithms parts` lists them; or package.module:function of your own."""
    policy_loss: str = "ppo"
    """The loss of each token, likewise."""
    sample_filter: str = "none"
    """Which scored answers are trained; others keep their place in the group's statistics. Likewise, or none."""
    loss_aggregation: Literal[
        "token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "sequence_mean_token_sum_norm"
    ] = "token_mean"
    """How token losses add up: each token, each sequence, or (norm) each token over max_new_tokens weighs alike."""
    epochs_per_batch: PositiveInt = 1
    """Passes over the samples of a step."""
    truncated_answers: Literal["train", "mask"] = "train"
    """mask: answers cut by a limit keep their place in the group's statistics but carry no loss."""
    entropy_coef: NonNegativeFloat = 0.0
    """Weight of an entropy bonus in the loss."""

    overlong_buffer: float | None = Field(None, gt=0, le=1)
    """DAPO's soft penalty: the reward falls over this last share of max_new_tokens; null leaves it out."""
    overlong_factor: PositiveFloat = 1.0
    """The penalty at max_new_tokens."""
    length_reward: NonNegativeFloat = 0.0
    """Weight of Kimi k1.5's reward for short answers among those of a group."""
    repetition_penalty: NonNegativeFloat = 0.0
    """Taken from the reward of an answer that repeats one n-gram only; in proportion for others."""
    repetition_ngram: PositiveInt = 3
    """Tokens of such an n-gram."""
    success_reward: float | None = None
    """An answer is right when its reward reaches this (length_reward, raft); left out, 1."""
    reward_mean: Scope = "none"
    """What is subtracted from rewards before the advantage: the mean of the group, the batch, or all so far."""
    reward_std: Scope = "none"
    """What they are divided by."""
    reward_clip: PositiveFloat | None = None
    """Rewards are then held within ± this."""

    advantage_std: Literal["group", "none"] | None = None
    """Divide by the group's standard deviation (GRPO) or not (Dr.GRPO)."""
    advantage_eps: NonNegativeFloat | None = None
    """Added to that deviation."""
    gamma: float | None = Field(None, gt=0, le=1)
    """Discount per token."""
    unbiased_variance: bool | None = None
    """Divide the variance of REINFORCE++'s whitening by n - 1, not n."""
    opmd_baseline: Literal["mean", "log_mean_exp"] | None = None
    """The group's mean, or tau·log of the mean of exp(reward / tau)."""
    tau: PositiveFloat | None = None
    """Strength of the pull to the old policy (kimi, opmd) and temperature of the log_mean_exp baseline."""
    raft_select: Literal["correct", "best"] | None = None
    """Learn from answers that reach success_reward, or from the best of each group."""
    whiten_advantages: bool = False
    """Mean 0 and deviation 1 over all tokens of the step."""
    advantage_clip: PositiveFloat | None = None
    """Advantages are held within ± this."""

    difficulty_low: float | None = None
    """Keep prompts whose mean reward is above this…"""
    difficulty_high: float | None = None
    """…and below this."""
    uncertainty_fraction: float | None = Field(None, gt=0, le=1)
    """Share of the prompts that is kept."""
    uncertainty_keep_groups: Literal["highest", "lowest"] | None = None
    """Those whose rewards spread most, or least."""

    clip_low: float | None = Field(None, ge=0, lt=1)
    """The ratio of new to old probability is clipped below 1 - clip_low."""
    clip_high: NonNegativeFloat | None = None
    """…and above 1 + clip_high. Larger than clip_low leaves more room for unlikely tokens (DAPO)."""
    dual_clip: float | None = Field(None, gt=1)
    """Bound the loss of negative advantages at this ratio; null does not."""
    weight_low: NonNegativeFloat | None = None
    """Smallest importance weight (cispo, tis)."""
    weight_high: PositiveFloat | None = None
    """Largest importance weight."""
    weight_cap: PositiveFloat | None = None
    """Largest weight (decoupled_ppo: of the behaviour policy, null does not bound it; dppo)."""
    mask_clip: tuple[NonNegativeFloat, NonNegativeFloat] | None = None
    """CISPO's unified mask: no gradient where PPO's clip [low, high] would stop it."""
    log_clip_low: NonNegativeFloat | None = None
    """GMPO clips log-ratios below minus this…"""
    log_clip_high: NonNegativeFloat | None = None
    """…and above this."""
    tau_positive: PositiveFloat | None = None
    """SAPO's gate for advantages above 0…"""
    tau_negative: PositiveFloat | None = None
    """…and for others: larger closes faster."""
    ratio_level: Literal["trajectory", "token"] | None = None
    """TOPR's ratio: of the whole answer or of each token."""
    negative_range: tuple[NonNegativeFloat, NonNegativeFloat] | None = None
    """TOPR clips the ratio of answers with A < 0 to this."""
    positive_range: tuple[NonNegativeFloat, NonNegativeFloat] | None = None
    """…and of others to this; null takes 1 instead of a ratio."""
    positive_weight: NonNegativeFloat | None = None
    """TOPR's weight of answers with A ≥ 0…"""
    negative_weight: NonNegativeFloat | None = None
    """…and of others."""
    dro_beta: PositiveFloat | None = None
    """DRO's pull to the old policy."""
    divergence: Literal["tv", "kl"] | None = None
    """DPPO's distance of a token's probability from the old one."""
    divergence_low: NonNegativeFloat | None = None
    """How far a token with A < 0 may move down…"""
    divergence_high: NonNegativeFloat | None = None
    """…and one with A > 0 up."""
    cov_fraction: float | None = Field(None, gt=0, le=1)
    """Share of the tokens that Clip-Cov or KL-Cov select by covariance of log-prob and advantage."""
    cov_low: float | None = None
    """Clip-Cov selects among tokens with a covariance above this…"""
    cov_high: float | None = None
    """…and below this."""
    cov_penalty: NonNegativeFloat | None = None
    """Weight of KL-Cov's penalty on the selected tokens."""
    mask_low: float | None = Field(None, ge=0, le=1)
    """SAO trains no token whose ratio is below 1 - mask_low…"""
    mask_high: NonNegativeFloat | None = None
    """…or above 1 + mask_high."""

    kl_coef: NonNegativeFloat = 0.0
    """Weight of the KL to the reference; 0 loads no reference."""
    kl_estimator: Literal["k1", "abs", "k2", "k3"] = "k3"
    """How the KL is estimated from one sampled token; only with kl_coef above 0."""
    kl_placement: Literal["loss", "reward"] = "loss"
    """reward: taken from the reward of each token before the advantage, without gradient."""
    kl_straight_through: bool = False
    """In the loss: the value of the estimator with the gradient of k2, which is that of KL(policy‖reference)."""
    kl_off_policy: bool = False
    """In the loss: times the importance ratio, unbiased where tokens come from an older policy (DeepSeek-V3.2)."""
    kl_target: PositiveFloat | None = None
    """Steer kl_coef, per domain, so that the KL per token meets this; null keeps it."""
    kl_horizon: PositiveInt = 10_000
    """Answers over which the steering takes effect."""

    correction_weight: Level = "none"
    """Weigh tokens by trainer over engine probability: each token, or the mean (geometric) or whole of its answer."""
    correction_weight_cap: PositiveFloat | None = 2.0
    """Largest such weight (TIS); null does not bound it."""
    correction_weight_normalized: bool = False
    """Scale these weights to a mean of 1 over the step."""
    correction_mask: Level = "none"
    """Leave out tokens or answers for which that weight is outside of correction_range (MIS, IcePop, Geo-RS)."""
    correction_range: tuple[NonNegativeFloat, PositiveFloat] = (0.5, 5.0)
    """[low, high] of correction_mask."""
    kl_rejection: Literal["none", "k1", "k2", "k3"] = "none"
    """Leave out what this estimate of KL(engine‖trainer) puts outside of kl_rejection_range."""
    kl_rejection_level: Literal["token", "sequence_sum", "sequence_mean", "sequence_max"] = "token"
    """Of each token, or over its answer."""
    kl_rejection_range: tuple[float, float] | None = None
    """[low, high] of kl_rejection."""
    kpop_limit: PositiveFloat | None = None
    """KPop: leave out tokens whose Bernoulli KL between engine and trainer exceeds this (2.0 in AReaL)."""
    opsm_limit: PositiveFloat | None = None
    """OPSM: leave out answers with A < 0 that have become less likely by this mean log-ratio (DeepSeek-V3.2)."""
    m2po_limit: PositiveFloat | None = None
    """M2PO: leave out the most drifted tokens until the mean squared log-ratio of the rest is below this."""

    options: dict[str, Any] = Field(default_factory=dict)
    """Keyword options of a loss, advantage or filter of your own."""

    @model_validator(mode="before")
    @classmethod
    def _fill_in(cls, written: Any) -> Any:
        """The preset under what is written, and under both the defaults of the composed parts."""
        if not isinstance(written, dict):
            return written
        values = apply_preset(written)
        for part in _named_parts(values):
            for name, default in part.options.items():
                if name in cls.model_fields and values.get(name) is None and default is not REQUIRED:
                    values[name] = default
        return values

    @field_validator("advantage", "policy_loss", "sample_filter")
    @classmethod
    def _known(cls, name: str, info: ValidationInfo) -> str:
        if name != "none" or info.field_name != "sample_filter":
            find_part(str(info.field_name), name)
        return name

    def part(self, family: str) -> Part | None:
        """The composed part of a family of `algorithm_parts`; None where there is none."""
        if family == "selection":
            return selection_of(find_part("policy_loss", self.policy_loss))
        name = getattr(self, family)
        return None if name == "none" else find_part(family, name)

    def parts(self) -> list[Part]:
        found = (self.part(family) for family in ("advantage", "policy_loss", "selection", "sample_filter"))
        return [part for part in found if part]

    @property
    def compares_answers(self) -> bool:
        """Whether an answer's advantage comes from the others of its group, so that one alone teaches nothing."""
        part = find_part("advantage", self.advantage)
        return "groups" in part.inputs and part.name != "raft"

    def options_of(self, part: Part) -> dict[str, Any]:
        """Values of the options that a part reads, to be given to its function."""
        own = {name for name in part.options if name not in type(self).model_fields}
        values = {name: getattr(self, name) for name in part.options if name not in own}
        return values | {name: value for name, value in self.options.items() if name in own}

    def reads(self) -> set[str]:
        """The options of this class that have an effect on the composed algorithm."""
        names = set(ALWAYS)
        for part in self.parts():
            names |= part.options.keys() & type(self).model_fields.keys()
        names |= {name for name, needed in self._dependent() if needed}
        return names

    def _dependent(self) -> Iterator[tuple[str, bool]]:
        """Options that are read only beside another one."""
        in_loss = bool(self.kl_coef) and self.kl_placement == "loss"
        yield from (
            ("overlong_factor", self.overlong_buffer is not None),
            ("success_reward", bool(self.length_reward)),
            ("repetition_ngram", bool(self.repetition_penalty)),
            ("kl_estimator", bool(self.kl_coef)),
            ("kl_placement", bool(self.kl_coef)),
            ("kl_target", bool(self.kl_coef)),
            ("kl_horizon", bool(self.kl_coef) and self.kl_target is not None),
            ("kl_straight_through", in_loss),
            ("kl_off_policy", in_loss),
            ("correction_weight_cap", self.correction_weight != "none"),
            ("correction_weight_normalized", self.correction_weight != "none"),
            ("correction_range", self.correction_mask != "none"),
            ("kl_rejection_level", self.kl_rejection != "none"),
            ("kl_rejection_range", self.kl_rejection != "none"),
        )

    def unused(self) -> dict[str, str]:
        """Options that this composition does not read, and why."""
        reads = self.reads()
        parts = ", ".join(f"{part.family} {part.name}" for part in self.parts())
        reason = f"{parts} do not read it; they read {', '.join(sorted(reads - {'preset', 'options'}))}"
        kl = "algorithm.kl_coef is 0, so there is no KL term and no reference model"
        return {
            f"algorithm.{name}": kl
            if name.startswith("kl_") and "rejection" not in name and not self.kl_coef
            else reason
            for name in type(self).model_fields
            if name not in reads
        }

    def problems(self) -> list[str]:
        found = []
        parts = self.parts()
        known = {name: part for part in parts for name in part.options}
        for name in self.options:
            if name not in known or name in type(self).model_fields:
                where = "stands beside it, not under options" if name in known else "is read by no composed part"
                found.append(f"algorithm.options.{name} {where}; they read {', '.join(known) or 'no options'}")
        for name, part in known.items():
            value = getattr(self, name, None) if name in type(self).model_fields else self.options.get(name)
            if part.options[name] is REQUIRED and value is None:
                found.append(f"algorithm.{name} is missing: {part.family} {part.name} has no default for it")
        if self.kl_rejection != "none" and self.kl_rejection_range is None:
            found.append("algorithm.kl_rejection_range is missing: [low, high] outside of which a token is left out")
        return found + list(self._range_problems())

    def _range_problems(self) -> Iterator[str]:
        pairs = {name: getattr(self, name) for name in ("negative_range", "positive_range", "correction_range")}
        pairs |= {"kl_rejection_range": self.kl_rejection_range}
        for low, high in (
            ("weight_low", "weight_high"),
            ("difficulty_low", "difficulty_high"),
            ("cov_low", "cov_high"),
        ):
            if getattr(self, low) is not None and getattr(self, high) is not None:
                pairs[f"{low}, {high}"] = (getattr(self, low), getattr(self, high))
        for name, pair in pairs.items():
            if pair is not None and pair[0] > pair[1]:
                yield f"algorithm.{name} = {list(pair)}: the first must not exceed the second"


def _named_parts(values: dict[str, Any]) -> list[Part]:
    """The parts that raw values name; names that are wrong are left for their field to refuse."""
    found: list[Part | None] = []
    for family in ("advantage", "policy_loss", "sample_filter"):
        name = values.get(family, AlgorithmSettings.model_fields[family].default)
        try:
            part = find_part(family, str(name))
            found += [part, selection_of(part)] if family == "policy_loss" else [part]
        except ValueError:
            continue
    return [part for part in found if part]


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
