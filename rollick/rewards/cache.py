"""Verdicts remembered by content (`cache: true`): what was graded once is not graded again."""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from typing import Any

from rollick.data.records import Episode
from rollick.rewards.base import Failed, RewardOptions, Verdict

CACHE_ENTRIES = 100_000
"""Verdicts kept, the least recently used go first; some 50 MB."""


def content_key(options: RewardOptions, episode: Episode) -> str:
    """SHA-256 over everything a grader may read: its options, the task (prompt, ground truth, extra columns) and what
    was said, with its length in tokens and whether it was cut. Ids and seeds do not count."""
    task = episode.task
    content = [
        type(options).__module__,
        options.model_dump(mode="json"),
        task.prompt,
        task.ground_truth,
        task.extra,
        [[turn.response_text, turn.observation, turn.reward] for turn in episode.turns],
        episode.response_length,
        episode.status,
    ]
    return hashlib.sha256(json.dumps(content, sort_keys=True, default=_text_of).encode()).hexdigest()


def _text_of(value: Any) -> Any:
    return value.tolist() if hasattr(value, "tolist") else repr(value)


class VerdictCache:
    """The last `entries` verdicts. A failure is never remembered, since trying again may help."""

    def __init__(self, entries: int = CACHE_ENTRIES):
        self._entries = entries
        self._verdicts: OrderedDict[str, Verdict] = OrderedDict()

    def __len__(self) -> int:
        return len(self._verdicts)

    def get(self, key: str) -> Verdict | None:
        verdict = self._verdicts.get(key)
        if verdict is not None:
            self._verdicts.move_to_end(key)
        return verdict

    def put(self, key: str, verdict: Verdict) -> None:
        if isinstance(verdict, Failed):
            return
        self._verdicts[key] = verdict
        self._verdicts.move_to_end(key)
        while len(self._verdicts) > self._entries:
            self._verdicts.popitem(last=False)
