"""The token-level records that travel through a job.

What was sampled is what is trained: ids, log-probs, weight versions and loss mask stay together from the
engine to the optimiser. Nothing here is padded; rows are ragged, and padding is born only inside a backend.

A completed example, used in the docstrings below. The prompt has ids `[5, 6, 7]`, the policy at weight version 4
answers `[9, 2]` where 2 is its end token, and a grader pays 1.0:

    completion = Completion([9, 2], [-0.7, -0.1], [0.0, 0.0], [4, 4], "stop", stopped_by=2)
    turn = Turn(prompt_ids=[5, 6, 7], completion=completion)
    episode = Episode(id="g0/1", group_id="g0", member=1, task=task, seed=11, turns=[turn], reward=1.0)
    [sample] = episode.samples()
    sample.token_ids          # [5, 6, 7, 9, 2]
    sample.loss_mask          # [0, 0, 0, 1, 1]
    sample.behaviour_logprobs # [0, 0, 0, -0.7, -0.1]
    sample.versions           # [-1, -1, -1, 4, 4]
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

FinishReason = Literal["stop", "length", "abort"]
EpisodeStatus = Literal["running", "finished", "truncated", "failed"]

NO_VERSION = -1
"""The weight version of a token that no policy sampled (prompt, tool output)."""


@dataclass
class Completion:
    """What an engine returns for one request. All lists have one entry per sampled token.

    `logprobs` are under the temperature-scaled full softmax. Where top-p/top-k/min-p cut it, `kept_logmass` is
    the log of the probability mass that was kept (0.0 where nothing was cut), so the log-prob of the truncated
    distribution is `logprobs - kept_logmass`. Greedy tokens (temperature 0) are scored at temperature 1.

    Probabilities .55, .25, .15, .05 with top_p 0.75 keep the first two; sampling the first token gives
    logprob log(.55) = -0.5978 and kept_logmass log(.8) = -0.2231; the truncated log-prob is -0.3747.

    `stopped_by` is the end token id or the stop string that ended it (None unless finish_reason is "stop").
    Ids are the sampled ones: a stop string never cuts the last token.
    """

    token_ids: list[int]
    logprobs: list[float]
    kept_logmass: list[float]
    versions: list[int]
    finish_reason: FinishReason
    stopped_by: int | str | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.token_ids), len(self.logprobs), len(self.kept_logmass), len(self.versions)}
        if len(lengths) != 1:
            raise ValueError(
                f"a completion needs one log-prob, kept mass and version per token, got {len(self.token_ids)} ids, "
                f"{len(self.logprobs)} log-probs, {len(self.kept_logmass)} kept masses, {len(self.versions)} versions"
            )


Message = dict[str, Any]
"""An OpenAI-style chat message: {"role": "user", "content": "…"} and optional further keys."""


@dataclass(frozen=True)
class Task:
    """One problem to solve: what an environment resets to.

    `id` is stable across runs (dataset name and row); `domain` names the environment it came from;
    `ground_truth` and `extra` are for graders only and never enter the prompt.

        Task("train/17", "arithmetic", prompt=[{"role": "user", "content": "3+4="}], ground_truth="7")
    """

    id: str
    domain: str
    prompt: list[Message] | str
    ground_truth: Any = None
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass
class Turn:
    """The full context that was given (`prompt_ids`), what the policy said, and what the environment replied.

    `observation` holds the environment's messages after this completion (empty after the last turn);
    `response_text` is the completion decoded for people and graders, special tokens removed.
    """

    prompt_ids: list[int]
    completion: Completion
    response_text: str = ""
    observation: list[Message] = field(default_factory=list)
    reward: float = 0.0


@dataclass
class Episode:
    """One attempt at a task, from reset to the end.

    `reward` is the weighted sum of `reward_parts` (raw, unweighted values by reward name) plus the environment's
    own turn rewards; it is None until scored and stays None when every grader abstained (such an episode is
    excluded from baselines and training). `truncated` means that the answer was cut by a length or turn limit.
    """

    id: str
    group_id: str
    member: int
    task: Task
    seed: int
    turns: list[Turn] = field(default_factory=list)
    status: EpisodeStatus = "running"
    reason: str = ""
    reward: float | None = None
    reward_parts: dict[str, float] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def truncated(self) -> bool:
        return self.status == "truncated"

    @property
    def response_text(self) -> str:
        """The policy's last words, the text graders read."""
        return self.turns[-1].response_text if self.turns else ""

    @property
    def response_length(self) -> int:
        """Tokens sampled over all turns."""
        return sum(len(turn.completion.token_ids) for turn in self.turns)

    def samples(self) -> list[Sample]:
        """Trainable rows. Turns whose prompt extends everything before it share a row; a rewritten history
        starts a new one (`id` gets a suffix `#1`, `#2`, …)."""
        rows: list[Sample] = []
        for turn in self.turns:
            context = turn.prompt_ids
            if rows and _is_prefix(rows[-1].token_ids, context):
                rows[-1].extend(context[len(rows[-1].token_ids) :], turn.completion)
                continue
            row = Sample.empty(self, suffix=f"#{len(rows)}" if rows else "")
            row.extend(context, turn.completion)
            rows.append(row)
        return rows


def _is_prefix(token_ids: np.ndarray, context: list[int]) -> bool:
    return len(context) > len(token_ids) and bool(np.array_equal(token_ids, context[: len(token_ids)]))


@dataclass
class Sample:
    """One trainable row of T tokens (the worked example stands at the top of this module).

    token_ids int64[T] · loss_mask bool[T] (True = sampled by the policy and trained on; never at position 0) ·
    behaviour_logprobs float32[T] (engine's log-prob of that token; 0 where not sampled) · kept_logmass
    float32[T] · versions int64[T] (`NO_VERSION` where not sampled) · segments: (start, end) of every contiguous
    sampled stretch, one per turn.

    Log-probs are aligned with tokens: entry t scores token t given tokens < t.
    """

    id: str
    group_id: str
    task_id: str
    domain: str
    token_ids: np.ndarray
    loss_mask: np.ndarray
    behaviour_logprobs: np.ndarray
    kept_logmass: np.ndarray
    versions: np.ndarray
    segments: list[tuple[int, int]]
    reward: float | None
    truncated: bool

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def response_length(self) -> int:
        """Tokens the policy sampled, whatever the loss mask says."""
        return sum(end - start for start, end in self.segments)

    @classmethod
    def empty(cls, episode: Episode, suffix: str = "") -> Sample:
        return cls(
            id=episode.id + suffix,
            group_id=episode.group_id,
            task_id=episode.task.id,
            domain=episode.task.domain,
            token_ids=np.zeros(0, np.int64),
            loss_mask=np.zeros(0, bool),
            behaviour_logprobs=np.zeros(0, np.float32),
            kept_logmass=np.zeros(0, np.float32),
            versions=np.zeros(0, np.int64),
            segments=[],
            reward=episode.reward,
            truncated=episode.truncated,
        )

    def extend(self, given_ids: list[int], completion: Completion) -> None:
        """Append tokens that were given and the tokens that were then sampled."""
        given, sampled = len(given_ids), len(completion.token_ids)
        start = len(self) + given
        if start == 0 and sampled:
            raise ValueError(f"sample {self.id}: a completion needs at least one prompt token before it")
        zeros = np.zeros(given, np.float32)
        self.token_ids = np.concatenate([self.token_ids, np.asarray(given_ids + completion.token_ids, np.int64)])
        self.loss_mask = np.concatenate([self.loss_mask, np.zeros(given, bool), np.ones(sampled, bool)])
        self.behaviour_logprobs = np.concatenate(
            [self.behaviour_logprobs, zeros, np.asarray(completion.logprobs, np.float32)]
        )
        self.kept_logmass = np.concatenate([self.kept_logmass, zeros, np.asarray(completion.kept_logmass, np.float32)])
        self.versions = np.concatenate(
            [self.versions, np.full(given, NO_VERSION, np.int64), np.asarray(completion.versions, np.int64)]
        )
        if sampled:
            self.segments.append((start, start + sampled))


@dataclass
class Group:
    """All episodes of one task that were started together; baselines are computed over it, keyed by `id`.

    Group("s3/p5", task, episodes=[...8 of them...])
    """

    id: str
    task: Task
    episodes: list[Episode]

    @property
    def scored(self) -> list[Episode]:
        """Episodes that may enter baselines: neither failed nor without a reward."""
        return [e for e in self.episodes if e.status in ("finished", "truncated") and e.reward is not None]
