"""Groups of episodes as the records that a run directory keeps."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from rollick.data.records import Episode, Group, Sample
from rollick.state.samples import SampleRecord


def sample_records(groups: Sequence[Group], advantages: Mapping[str, float] | None = None) -> Iterator[SampleRecord]:
    """One record per row of every episode, failed ones included; `advantages` by episode id (training only)."""
    for group in groups:
        for episode in group.episodes:
            advantage = None if advantages is None else advantages.get(episode.id, 0.0)
            rows = episode.samples() or [Sample.empty(episode)]
            for row in rows:
                yield _record(episode, row, advantage)


def _record(episode: Episode, row: Sample, advantage: float | None) -> SampleRecord:
    return SampleRecord(
        id=row.id,
        group_id=row.group_id,
        task_id=row.task_id,
        domain=row.domain,
        prompt=_prompt_text(episode),
        response="\n".join(turn.response_text for turn in episode.turns),
        token_ids=row.token_ids.tolist(),
        loss_mask=row.loss_mask.tolist(),
        behaviour_logprobs=row.behaviour_logprobs.tolist(),
        versions=row.versions.tolist(),
        advantages=None if advantage is None else [advantage if live else 0.0 for live in row.loss_mask],
        reward=episode.reward,
        reward_parts=episode.reward_parts,
        status=episode.status,
        reason=episode.reason,
        ground_truth=episode.task.ground_truth,
    )


def _prompt_text(episode: Episode) -> str:
    prompt = episode.task.prompt
    if isinstance(prompt, str):
        return prompt
    return "\n".join(f"{message['role']}: {message.get('content') or ''}" for message in prompt)
