"""From groups of scored episodes to the rows of a policy update."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rollick.algorithms.advantages.grpo import grpo_advantages
from rollick.config.rl import AlgorithmSettings
from rollick.data.batch import Batch
from rollick.data.records import Episode, Group, Sample


@dataclass
class PolicyBatch:
    """`batch` holds the rows with at least one trained token, `advantages` added to its tokens; None when there
    is nothing to learn from. `advantages` maps every episode id to its advantage (0.0 where it has none)."""

    batch: Batch | None
    advantages: dict[str, float]


def build_policy_batch(groups: Sequence[Group], algorithm: AlgorithmSettings) -> PolicyBatch:
    """Rows and advantages of one step.

    Episodes that failed, have no reward or sampled no token stay out of their group's statistics. Truncated
    answers count in them; with `truncated_answers: mask` they carry no loss. Baselines are keyed by group.
    """
    episodes = [episode for group in groups for episode in group.episodes]
    advantages = _episode_advantages(episodes, algorithm)
    samples = [sample for episode in episodes if _counts(episode) for sample in _rows(episode, algorithm)]
    samples = [sample for sample in samples if sample.loss_mask.any()]
    if not samples:
        return PolicyBatch(None, advantages)
    batch = Batch.from_samples(samples)
    per_row = torch.tensor([advantages[_episode_id(sample)] for sample in samples])
    spread = per_row[batch.row_index()]
    batch.tokens["advantages"] = torch.where(batch.tokens["loss_mask"], spread, 0.0)
    return PolicyBatch(batch, advantages)


def _counts(episode: Episode) -> bool:
    return episode.status in ("finished", "truncated") and episode.reward is not None and episode.response_length > 0


def _episode_advantages(episodes: Sequence[Episode], algorithm: AlgorithmSettings) -> dict[str, float]:
    index: dict[str, int] = {}
    groups = torch.tensor([index.setdefault(episode.group_id, len(index)) for episode in episodes])
    rewards = torch.tensor([episode.reward or 0.0 for episode in episodes], dtype=torch.float64)
    valid = torch.tensor([_counts(episode) for episode in episodes])
    values = grpo_advantages(rewards, groups, valid, advantage_std=algorithm.advantage_std)
    return dict(zip((episode.id for episode in episodes), values.tolist()))


def _rows(episode: Episode, algorithm: AlgorithmSettings) -> list[Sample]:
    samples = episode.samples()
    if episode.truncated and algorithm.truncated_answers == "mask":
        for sample in samples:
            sample.loss_mask = sample.loss_mask & False
    return samples


def _episode_id(sample: Sample) -> str:
    return sample.id.partition("#")[0]
