"""From finished episodes to verdicts, and from verdicts to one reward.

    grader = Grader({"arithmetic": [MathOptions(kind="math")]}, workers=2, timeout=120.0)
    grader.submit(episode)
    for episode_id, verdicts in grader.poll(timeout=1.0):       # {"math": Score(1.0)}
        reward = combine(verdicts, grader.rewards["arithmetic"])

The shape is the Engine's: submit, poll, cancel. Each episode comes back once, whole, under its own id.
"""

from __future__ import annotations

import math
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from rollick.data.records import Episode
from rollick.errors import ConfigError
from rollick.rewards.base import Abstain, Failed, Reward, RewardOptions, Score, Verdict
from rollick.rewards.pool import Lost, WorkerPool
from rollick.rewards.worker import grade


@dataclass
class _Waiting:
    """An episode some of whose verdicts are missing; `attempts` counts the pool calls made per label."""

    episode: Episode
    options: Sequence[RewardOptions]
    since: float
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)

    def missing(self) -> list[str]:
        return [options.label for options in self.options if options.label not in self.verdicts]


class Grader:
    """Grades episodes by the rewards of their domain (`episode.task.domain`).

    `timeout` bounds one call of one reward in seconds, from the moment a worker takes it (a reward's own `timeout`
    may be shorter). A call whose worker died or ran out of time is tried `retries` more times before it is Failed.
    Rewards that need no isolation run in this process, inside `submit`.

    Raises ConfigError when a reward cannot be built or two rewards of a domain share a label.
    """

    def __init__(
        self,
        rewards_by_domain: Mapping[str, Sequence[RewardOptions]],
        workers: int = 2,
        timeout: float = 120.0,
        retries: int = 1,
    ):
        self.rewards = {domain: list(rewards) for domain, rewards in rewards_by_domain.items()}
        self._timeout = timeout
        self._retries = retries
        self._local: dict[tuple[str, str], Reward] = {}
        self._pooled: dict[tuple[str, str], int] = {}
        self._counts: Counter[str] = Counter()
        self._waiting: dict[str, _Waiting] = {}
        self._done: deque[tuple[str, dict[str, Verdict]]] = deque()
        isolated: list[RewardOptions] = []
        for domain, rewards in self.rewards.items():
            _refuse_equal_labels(domain, rewards)
            for options in rewards:
                reward = options.build()
                if options.runs_isolated:
                    self._pooled[domain, options.label] = len(isolated)
                    isolated.append(options)
                else:
                    self._local[domain, options.label] = reward
        self._pool = WorkerPool(isolated, workers) if isolated else None

    def submit(self, episode: Episode) -> None:
        """Queue an episode. Raises ValueError when its domain is unknown or its id is in flight already."""
        domain = episode.task.domain
        if domain not in self.rewards:
            raise ValueError(f"episode {episode.id}: no rewards for domain '{domain}' (known: {sorted(self.rewards)})")
        if episode.id in self._waiting:
            raise ValueError(f"episode {episode.id} is being graded already")
        waiting = _Waiting(episode, self.rewards[domain], time.monotonic())
        self._waiting[episode.id] = waiting
        for options in waiting.options:
            local = self._local.get((domain, options.label))
            if local is None:
                self._call(waiting, options)
            else:
                self._take(waiting, options.label, grade(local, options.label, episode))
        self._finish_if_whole(waiting)

    def poll(self, timeout: float | None = None) -> list[tuple[str, dict[str, Verdict]]]:
        """(episode id, verdict by label) of the episodes whose graders have all answered, waiting up to `timeout`
        seconds for the first. Returns [] at once when nothing is being graded."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._done and self._waiting and self._pool is not None:
            left = None if deadline is None else deadline - time.monotonic()
            outcomes = self._pool.poll(left if left is None else max(0.0, left))
            if not outcomes:
                break
            for (episode_id, label), outcome in outcomes:
                self._settle(episode_id, label, outcome)
        ready = list(self._done)
        self._done.clear()
        return ready

    def cancel(self, episode_ids: Iterable[str]) -> None:
        """Forget these episodes; running calls are killed. Ids that are not in flight are ignored."""
        ids = set(episode_ids)
        self._done = deque(item for item in self._done if item[0] not in ids)
        dropped = [self._waiting.pop(episode_id) for episode_id in ids & self._waiting.keys()]
        if self._pool is not None:
            self._pool.cancel((waiting.episode.id, label) for waiting in dropped for label in waiting.missing())

    def pending(self) -> list[tuple[str, str, float]]:
        """(episode id, reward label, seconds since submit) of every verdict that is waited for, oldest first."""
        now = time.monotonic()
        ages = [
            (episode_id, label, now - waiting.since)
            for episode_id, waiting in self._waiting.items()
            for label in waiting.missing()
        ]
        return sorted(ages, key=lambda item: -item[2])

    def stats(self) -> dict[str, float]:
        """Counters since the start: `reward/<label>/{graded,failed,abstained,retried}`."""
        labels = {options.label for rewards in self.rewards.values() for options in rewards}
        kinds = ("graded", "failed", "abstained", "retried")
        names = [f"reward/{label}/{kind}" for label in sorted(labels) for kind in kinds]
        return {name: float(self._counts[name]) for name in names}

    def close(self) -> None:
        """End the worker processes; safe to call twice."""
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _call(self, waiting: _Waiting, options: RewardOptions) -> None:
        assert self._pool is not None
        episode, label = waiting.episode, options.label
        waiting.attempts[label] += 1
        index = self._pooled[episode.task.domain, label]
        try:
            self._pool.submit((episode.id, label), index, episode, min(options.timeout or math.inf, self._timeout))
        except (TypeError, AttributeError) as error:
            reason = f"reward '{label}': the episode cannot be sent to a worker process: {error}"
            self._take(waiting, label, Failed(reason))

    def _settle(self, episode_id: str, label: str, outcome: Verdict | Lost) -> None:
        waiting = self._waiting.get(episode_id)
        if waiting is None:
            return
        options = next(one for one in waiting.options if one.label == label)
        verdict = self._verdict(options, outcome) if isinstance(outcome, Lost) else outcome
        if isinstance(outcome, Lost) and isinstance(verdict, Failed) and waiting.attempts[label] <= self._retries:
            self._counts[f"reward/{label}/retried"] += 1
            self._call(waiting, options)
        else:
            self._take(waiting, label, verdict)
        self._finish_if_whole(waiting)

    def _verdict(self, options: RewardOptions, lost: Lost) -> Verdict:
        if lost.cause == "timeout":
            return options.on_timeout(min(options.timeout or math.inf, self._timeout))
        return Failed(f"reward '{options.label}': {lost.reason}")

    def _take(self, waiting: _Waiting, label: str, verdict: Verdict) -> None:
        waiting.verdicts[label] = verdict
        outcome = {Score: "graded", Failed: "failed", Abstain: "abstained"}[type(verdict)]
        self._counts[f"reward/{label}/{outcome}"] += 1

    def _finish_if_whole(self, waiting: _Waiting) -> None:
        if waiting.missing():
            return
        del self._waiting[waiting.episode.id]
        ordered = {options.label: waiting.verdicts[options.label] for options in waiting.options}
        self._done.append((waiting.episode.id, ordered))


def _refuse_equal_labels(domain: str, rewards: Sequence[RewardOptions]) -> None:
    repeated = [label for label, count in Counter(options.label for options in rewards).items() if count > 1]
    if repeated:
        raise ConfigError(f"environment '{domain}': two rewards are called '{repeated[0]}'; give each its own `name`")


def combine(verdicts: Mapping[str, Verdict], options: Sequence[RewardOptions]) -> Verdict:
    """One reward from all: the weighted sum of the values. Parts are the raw, unweighted values by label, and each
    grader's own parts as `<label>/<part>`.

    One Failed makes the whole Failed, since a sum without it would be a different reward. An Abstain contributes
    nothing; when all abstain, so does the whole. Without graders the sum is 0: only the environment's own turn
    rewards count.

        combine({"math": Score(1.0), "brevity": Score(0.4)}, [math with weight 1, brevity with weight 0.5])
        # Score(1.2, {"math": 1.0, "brevity": 0.4})
    """
    failed = [verdict.reason for verdict in verdicts.values() if isinstance(verdict, Failed)]
    if failed:
        return Failed("; ".join(failed))
    total, parts = 0.0, {}
    for one in options:
        verdict = verdicts[one.label]
        if not isinstance(verdict, Score):
            continue
        total += one.weight * verdict.value
        parts[one.label] = verdict.value
        parts.update({f"{one.label}/{name}": value for name, value in verdict.parts.items()})
    if options and not parts:
        return Abstain("; ".join(v.reason for v in verdicts.values() if isinstance(v, Abstain)))
    if not math.isfinite(total):
        return Failed(f"the weighted sum of {parts} is {total}; lower the weights or the values")
    return Score(total, parts)
