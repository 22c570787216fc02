"""From groups of scored episodes to the rows of a policy update.

Whatever depends on the whole step is computed here, once, before the update: advantages and their whitening, which
rows are trained, the corrections' weights and masks, the tokens that Clip-Cov and KL-Cov select. A loss sees
micro-batches and could not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from rollick.algorithms.advantages.reinforce import rewards_on_last_token
from rollick.algorithms.corrections import (
    divergence_keep,
    kpop_keep,
    m2po_keep,
    mismatch_weights,
    normalized,
    truncated,
    within,
)
from rollick.algorithms.kl import kl_estimate, penalised_rewards
from rollick.algorithms.kl_control import sequence_kl
from rollick.algorithms.mismatch import mismatch_metrics
from rollick.algorithms.normalization import clip_magnitude, whiten
from rollick.algorithms.policy_losses import token_covariance
from rollick.algorithms.segments import segment_mean, segment_sum
from rollick.config.algorithm import AlgorithmSettings
from rollick.data.batch import Batch
from rollick.data.records import Episode, Group
from rollick.pipelines.algorithm_state import AlgorithmState
from rollick.pipelines.reward_shaping import Answers, shape_rewards
from rollick.state.seeds import derive_seed

RewardWeights = Mapping[str, Mapping[str, float]]


@dataclass
class ScoredRows:
    """The rows of every answer that counts: not failed, with a reward and at least one sampled token.

    `batch` is None when there is none. `episodes` are those R answers and `owner` int64[rows] says whose each row is
    (an episode has several where its history was rewritten).
    """

    batch: Batch | None
    episodes: list[Episode]
    owner: Tensor


@dataclass
class PolicyBatch:
    """`batch` holds the rows to train with what the loss reads in its tokens; None when there is nothing to learn
    from. `advantages` maps every scored episode's id to the mean over its tokens."""

    batch: Batch | None
    advantages: dict[str, float]
    metrics: dict[str, float] = field(default_factory=dict)


def _whole_batch_mismatch(answers: Answers, live: Any) -> dict[str, float]:
    """What cannot be added up over micro-batches; known where the old policy was scored before the update."""
    if "old_logprobs" not in live:
        return {}
    found = mismatch_metrics(live["behaviour_logprobs"], live["old_logprobs"], answers.rows, len(answers.domains))
    return {f"mismatch/{name}": found[name] for name in ("effective_sample_size", "prob_diff_max", "prob_correlation")}


def scored_rows(groups: Sequence[Group]) -> ScoredRows:
    """Rows of one step. Episodes that failed, have no reward or sampled no token stay out, also of baselines."""
    episodes = [episode for group in groups for episode in group.episodes if _counts(episode)]
    samples = [(place, sample) for place, episode in enumerate(episodes) for sample in episode.samples()]
    batch = Batch.from_samples([sample for _, sample in samples]) if samples else None
    return ScoredRows(batch, episodes, torch.tensor([place for place, _ in samples], dtype=torch.long))


def _counts(episode: Episode) -> bool:
    return episode.status in ("finished", "truncated") and episode.reward is not None and episode.response_length > 0


class PolicyBatches:
    """Makes the update's batch of each step; `state` is what it remembers between steps.

    batches = PolicyBatches(job.algorithm, max_new_tokens=64, reward_weights={"sums": {"math": 1.0}}, seed=7)
    rows = scored_rows(groups)          # then log-probs are added to rows.batch where `needs_old_logprobs`
    learning = batches.make(rows, step=0)
    """

    def __init__(
        self,
        algorithm: AlgorithmSettings,
        max_new_tokens: int = 1,
        reward_weights: RewardWeights | None = None,
        seed: int = 0,
    ):
        self.state = AlgorithmState(algorithm)
        self._algorithm = algorithm
        self._max_new_tokens = max_new_tokens
        self._reward_weights = reward_weights or {}
        self._seed = seed

    @property
    def needs_old_logprobs(self) -> bool:
        """Whether the trainer's log-probs must be known before the first update of a step."""
        algorithm = self._algorithm
        kl = algorithm.kl_coef > 0 and (algorithm.kl_placement == "reward" or self.state.steers_kl)
        return kl or _corrects(algorithm) or algorithm.part("selection") is not None

    def make(self, rows: ScoredRows, step: int = 0) -> PolicyBatch:
        """Advantages, the rows to train, and what else the loss reads; `rows.batch` has its log-probs already."""
        if rows.batch is None:
            return PolicyBatch(None, {})
        algorithm = self._algorithm
        live = rows.batch.tokens[rows.batch.tokens["loss_mask"]]
        answers = _answers(rows, live)
        rewards = shape_rewards(answers, algorithm, self.state, self._max_new_tokens)
        token_rewards, metrics = self._token_rewards(rewards, answers, live)
        metrics |= _whole_batch_mismatch(answers, live)
        advantages = self._advantages(token_rewards, answers, rows.episodes)
        _put(rows.batch, "advantages", advantages.float())
        if self.state.steers_kl and algorithm.kl_placement == "loss":
            coefs = self._kl_coefs(answers)
            metrics["kl/coef"] = float(coefs.mean())
            _put(rows.batch, "kl_coef", coefs.float())
        if algorithm.kl_coef and "old_logprobs" in live:
            self._observe_kl(answers, live)
        means = segment_mean(advantages, answers.rows, len(rewards))
        by_episode = dict(zip((episode.id for episode in rows.episodes), means.tolist()))
        keep = self._keep(answers)
        metrics["rows/left_out"] = float((~keep).double().mean())
        batch = _take(rows.batch, keep[rows.owner])
        if batch is not None:
            _correct(batch, algorithm)
            _select(batch, algorithm, derive_seed(self._seed, "selection", step))
        return PolicyBatch(batch, by_episode, metrics)

    def _token_rewards(self, rewards: Tensor, answers: Answers, live: Any) -> tuple[Tensor, dict[str, float]]:
        """[M]: the reward on the last token of each answer; minus coef · KL on each, where the KL is in the reward."""
        on_tokens = rewards_on_last_token(rewards, answers.rows)
        algorithm = self._algorithm
        if not (algorithm.kl_coef and algorithm.kl_placement == "reward"):
            return on_tokens, {}
        old, ref = live["old_logprobs"].double(), live["ref_logprobs"].double()
        penalty = penalised_rewards(torch.zeros_like(old), old, ref, coef=1.0, estimator=algorithm.kl_estimator)
        coefs = self._kl_coefs(answers)
        metrics = {"kl/reference": float((old - ref).mean()), "kl/coef": float(coefs.mean())}
        return on_tokens + coefs * penalty, metrics

    def _kl_coefs(self, answers: Answers) -> Tensor:
        """float64[M]: the controller's coefficient of each token's domain."""
        per_answer = torch.tensor([self.state.kl_coef(domain) for domain in answers.domains], dtype=torch.float64)
        return per_answer[answers.rows]

    def _observe_kl(self, answers: Answers, live: Any) -> None:
        """Tell the controllers how far the policy is; their next coefficient is for the next step."""
        token_kl = kl_estimate(live["old_logprobs"], live["ref_logprobs"], self._algorithm.kl_estimator).double()
        for domain in sorted(set(answers.domains)):
            here = torch.tensor([name == domain for name in answers.domains])
            picked = here[answers.rows]
            kl = sequence_kl(token_kl[picked], answers.rows[picked], len(here))
            self.state.observe_kl(domain, kl, int(here.sum()))

    def _advantages(self, token_rewards: Tensor, answers: Answers, episodes: Sequence[Episode]) -> Tensor:
        """float64[M]."""
        algorithm = self._algorithm
        part = algorithm.part("advantage")
        assert part is not None  # every algorithm has an advantage
        given = {
            "rewards": segment_sum(token_rewards, answers.rows, len(answers.rewards)),
            "groups": answers.groups,
            "valid": answers.valid,
            "lengths": answers.lengths,
            "token_rewards": token_rewards,
            "rows": answers.rows,
        }
        if "reward_parts" in part.inputs:
            given["reward_parts"], given["reward_weights"] = _reward_parts(episodes, self._reward_weights)
        values = part.load()(*(given[name] for name in part.inputs), **algorithm.options_of(part))
        if values.shape not in (token_rewards.shape, answers.rewards.shape):
            raise ValueError(
                f"advantage {part.name} gives one value per answer ({len(answers.rewards)}) or per token "
                f"({len(token_rewards)}), not {tuple(values.shape)}"
            )
        values = values.detach().double()
        if "rows" not in part.inputs:
            values = values[answers.rows]
        if algorithm.whiten_advantages:
            values = whiten(values)
        return values if algorithm.advantage_clip is None else clip_magnitude(values, algorithm.advantage_clip)

    def _keep(self, answers: Answers) -> Tensor:
        """bool[R]: answers that are trained."""
        keep = answers.valid
        if self._algorithm.truncated_answers == "mask":
            keep = ~answers.truncated
        part = self._algorithm.part("sample_filter")
        if part is None:
            return keep
        given = {name: getattr(answers, name) for name in part.inputs}
        return keep & part.load()(*given.values(), **self._algorithm.options_of(part))


def _answers(rows: ScoredRows, live: Any) -> Answers:
    assert rows.batch is not None
    index: dict[str, int] = {}
    mask = rows.batch.tokens["loss_mask"]
    of_token = rows.owner[rows.batch.row_index()][mask]
    return Answers(
        rewards=torch.tensor([episode.reward for episode in rows.episodes], dtype=torch.float64),
        groups=torch.tensor([index.setdefault(episode.group_id, len(index)) for episode in rows.episodes]),
        lengths=torch.bincount(of_token, minlength=len(rows.episodes)),
        truncated=torch.tensor([episode.truncated for episode in rows.episodes]),
        domains=[episode.task.domain for episode in rows.episodes],
        rows=of_token,
        token_ids=live["token_ids"],
    )


def _reward_parts(episodes: Sequence[Episode], weights: RewardWeights) -> tuple[Tensor, Tensor]:
    """[K, R] and [K]: every reward of every domain, NaN where an episode has it not."""
    keys = sorted({(episode.task.domain, name) for episode in episodes for name in episode.reward_parts})
    parts = [
        [e.reward_parts.get(name, torch.nan) if e.task.domain == domain else torch.nan for e in episodes]
        for domain, name in keys
    ]
    if not keys:
        raise ValueError("advantage gdpo normalises rewards one by one, but the episodes have no named rewards")
    scale = [weights.get(domain, {}).get(name, 1.0) for domain, name in keys]
    return torch.tensor(parts, dtype=torch.float64), torch.tensor(scale, dtype=torch.float64)


def _take(batch: Batch, keep: Tensor) -> Batch | None:
    if bool(keep.all()):
        return batch
    return batch.select(keep.nonzero().flatten().tolist()) if bool(keep.any()) else None


def _put(batch: Batch, name: str, values: Tensor) -> None:
    """Add values [M] of live tokens to the batch [N], with 0 (False) elsewhere."""
    mask = batch.tokens["loss_mask"]
    whole = torch.zeros(len(mask), dtype=values.dtype)
    whole[mask] = values
    batch.tokens[name] = whole


def _corrects(algorithm: AlgorithmSettings) -> bool:
    levels = (algorithm.correction_weight, algorithm.correction_mask, algorithm.kl_rejection)
    return any(level != "none" for level in levels) or bool(algorithm.kpop_limit or algorithm.m2po_limit)


def _correct(batch: Batch, algorithm: AlgorithmSettings) -> None:
    """Weights and masks against the difference between engine and trainer; denominators stay what they are."""
    if not _corrects(algorithm):
        return
    mask = batch.tokens["loss_mask"]
    old, behaviour = batch.tokens["old_logprobs"][mask], batch.tokens["behaviour_logprobs"][mask]
    rows, count = batch.row_index()[mask], batch.num_rows
    if algorithm.correction_weight != "none":
        weights = mismatch_weights(old, behaviour, rows, count, level=algorithm.correction_weight)
        if algorithm.correction_weight_cap is not None:
            weights = truncated(weights, algorithm.correction_weight_cap)
        _put(batch, "correction_weights", normalized(weights) if algorithm.correction_weight_normalized else weights)
    keeps = []
    if algorithm.correction_mask != "none":
        weights = mismatch_weights(old, behaviour, rows, count, level=algorithm.correction_mask)
        keeps.append(within(weights, *algorithm.correction_range))
    if algorithm.kl_rejection != "none" and algorithm.kl_rejection_range is not None:
        low, high = algorithm.kl_rejection_range
        options = {"estimator": algorithm.kl_rejection, "level": algorithm.kl_rejection_level}
        keeps.append(divergence_keep(old, behaviour, rows, count, **options, low=low, high=high))  # type: ignore[arg-type]
    if algorithm.kpop_limit is not None:
        keeps.append(kpop_keep(old, behaviour, limit=algorithm.kpop_limit))
    if algorithm.m2po_limit is not None:
        keeps.append(m2po_keep(old, behaviour, limit=algorithm.m2po_limit))
    if keeps:
        _put(batch, "correction_keep", torch.stack(keeps).all(0))


def _select(batch: Batch, algorithm: AlgorithmSettings, seed: int) -> None:
    """The tokens that a loss treats apart, by the selection that stands beside it."""
    part = algorithm.part("selection")
    if part is None:
        return
    mask = batch.tokens["loss_mask"]
    given = {
        "covariance": token_covariance(batch.tokens["old_logprobs"][mask], batch.tokens["advantages"][mask]),
        "generator": torch.Generator().manual_seed(seed),
    }
    chosen = part.load()(*(given[name] for name in part.inputs), **algorithm.options_of(part))
    _put(batch, "selected", chosen)
