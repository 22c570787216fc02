"""From finished episodes to verdicts, and from verdicts to one reward.

    grader = Grader({"arithmetic": [MathOptions(kind="math")]}, workers=2, timeout=120.0)
    grader.submit(episode)
    for episode_id, verdicts in grader.poll(timeout=1.0):       # {"math": Score(1.0)}
        reward = combine(verdicts, grader.rewards["arithmetic"])

The shape is the Engine's: submit, poll, cancel. Each episode comes back once, whole, under its own id.
"""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rollick.data.records import Episode
from rollick.errors import ConfigError
from rollick.rewards.base import Abstain, Failed, Reward, RewardOptions, Score, Verdict
from rollick.rewards.cache import VerdictCache, content_key
from rollick.rewards.gates import counted_value, gate_problems, is_gated
from rollick.rewards.lanes import Lane, ProcessLane
from rollick.rewards.pool import Lost, WorkerPool
from rollick.rewards.worker import grade

SLICE_SECONDS = 0.01
"""Longest wait for one source while another may have something."""
AFTER_THE_CALL = {"weight", "clip", "gate", "gate_at", "task_tags", "cache"}
"""Options that say what becomes of a verdict, or when it is asked for, and nothing about the verdict."""


@dataclass
class _Waiting:
    """An episode some of whose verdicts are missing; `attempts` counts the calls made elsewhere per label, `keys`
    are the contents under which verdicts will be remembered."""

    episode: Episode
    options: Sequence[RewardOptions]
    since: float
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    attempts: Counter[str] = field(default_factory=Counter)
    keys: dict[str, str] = field(default_factory=dict)

    def missing(self) -> list[str]:
        return [options.label for options in self.options if options.label not in self.verdicts]


class Grader:
    """Grades episodes by the rewards of their domain (`episode.task.domain`).

    `timeout` bounds one call of one reward in seconds, from the moment a worker takes it (a reward's own `timeout`
    may be shorter). A call whose worker died or ran out of time is tried `retries` more times before it is Failed.
    Rewards that need no isolation run in this process, inside `submit`; those that wait for a service or a model
    have a lane each (`rollick.rewards.lanes`).

    Raises ConfigError when a reward cannot be built, two rewards of a domain share a label, or a gate names none.
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
        self._lanes: dict[tuple[str, str], Lane] = {}
        self._lanes_by_options: dict[tuple[str, str], Lane] = {}
        self._lane_ready = threading.Event()
        self._cache = VerdictCache()
        self._counts: Counter[str] = Counter()
        self._reported: dict[str, float] = {}
        self._waiting: dict[str, _Waiting] = {}
        self._done: deque[tuple[str, dict[str, Verdict]]] = deque()
        isolated: list[RewardOptions] = []
        for domain, rewards in self.rewards.items():
            _refuse_equal_labels(domain, rewards)
            if problems := gate_problems(rewards):
                raise ConfigError([f"environment '{domain}': {problem}" for problem in problems])
            for options in rewards:
                reward: Any = options.build()
                if options.batching is not None:
                    self._lanes[domain, options.label] = self._lane(reward, options)
                elif options.runs_isolated:
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
            if not options.applies_to(episode.task):
                waiting.verdicts[options.label] = Abstain(f"only for tasks tagged {' or '.join(options.task_tags)}")
            elif not self._remembered(waiting, options):
                self._grade(waiting, options)
        self._finish_if_whole(waiting)

    def _remembered(self, waiting: _Waiting, options: RewardOptions) -> bool:
        if not options.cache:
            return False
        key = waiting.keys[options.label] = content_key(options, waiting.episode)
        verdict = self._cache.get(key)
        if verdict is None:
            return False
        self._counts[f"reward/{options.label}/cache_hits"] += 1
        self._take(waiting, options.label, verdict)
        return True

    def _grade(self, waiting: _Waiting, options: RewardOptions) -> None:
        local = self._local.get((waiting.episode.task.domain, options.label))
        if local is None:
            self._call(waiting, options)
        else:
            self._take(waiting, options.label, grade(local, options.label, waiting.episode))

    def poll(self, timeout: float | None = None) -> list[tuple[str, dict[str, Verdict]]]:
        """(episode id, verdict by label) of the episodes whose graders have all answered, waiting up to `timeout`
        seconds for the first. Returns [] at once when nothing is being graded."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while not self._done and self._waiting and (self._pool is not None or self._lanes):
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            outcomes = self._outcomes(left)
            for (episode_id, label), outcome in outcomes:
                self._settle(episode_id, label, outcome)
            if left == 0.0 or not (outcomes or self._lanes):
                break
        ready = list(self._done)
        self._done.clear()
        return ready

    def cancel(self, episode_ids: Iterable[str]) -> None:
        """Forget these episodes; running calls are killed. Ids that are not in flight are ignored."""
        ids = set(episode_ids)
        self._done = deque(item for item in self._done if item[0] not in ids)
        dropped = [self._waiting.pop(episode_id) for episode_id in ids & self._waiting.keys()]
        for lane in self._lanes_by_options.values():
            lane.cancel(waiting.episode.id for waiting in dropped)
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
        """Counters since the start: `reward/<label>/{graded,failed,abstained,retried}`, `cache_hits` where there is a
        cache, and what a reward counts itself (tokens, requests, cost)."""
        counts: Counter[str] = Counter(self._counts)
        for (label, _), lane in self._lanes_by_options.items():
            for name, value in lane.stats().items():
                counts[f"reward/{label}/{name}"] += value  # type: ignore[assignment]
        found = {}
        for options in {options.label: options for rewards in self.rewards.values() for options in rewards}.values():
            kinds = ("graded", "failed", "abstained", "retried", *(("cache_hits",) if options.cache else ()))
            found.update(
                {f"reward/{options.label}/{kind}": float(counts[f"reward/{options.label}/{kind}"]) for kind in kinds}
            )
        return dict(sorted({**{name: float(value) for name, value in counts.items()}, **found}.items()))

    def new_stats(self) -> dict[str, float]:
        """What `stats` counted since the last call, for the metrics of a step."""
        now = self.stats()
        grown = {name: value - self._reported.get(name, 0.0) for name, value in now.items()}
        self._reported = now
        return grown

    def close(self) -> None:
        """End the worker processes; safe to call twice."""
        for lane in self._lanes_by_options.values():
            lane.close()
        if self._pool is not None:
            self._pool.close()

    def __enter__(self) -> Grader:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()

    def _limit(self, options: RewardOptions) -> float:
        return min(options.timeout or math.inf, self._timeout)

    def _lane(self, reward: Any, options: RewardOptions) -> Lane:
        """One lane for equal rewards of several domains: one model, one rate limit."""
        key = (options.label, options.model_dump_json(exclude=AFTER_THE_CALL))
        if key not in self._lanes_by_options:
            self._lanes_by_options[key] = self._open_lane(reward, options)
        return self._lanes_by_options[key]

    def _open_lane(self, reward: Any, options: RewardOptions) -> Lane:
        assert options.batching is not None
        limit = self._limit(options)
        if options.batching.own_process:
            return ProcessLane(options, options.batching, limit)
        return Lane(reward, options.label, options.batching, limit, self._lane_ready.set)

    def _outcomes(self, seconds: float | None) -> list[tuple[tuple[str, str], Verdict | Lost]]:
        """What workers and lanes have settled, waiting up to `seconds`, in slices where there are lanes."""
        if not self._lanes:
            return [] if self._pool is None else self._pool.poll(seconds)  # type: ignore[return-value]
        self._lane_ready.clear()
        settled = [((id, label), out) for (label, _), lane in self._lanes_by_options.items() for id, out in lane.poll()]
        pause = 0.0 if settled else SLICE_SECONDS if seconds is None else min(seconds, SLICE_SECONDS)
        if self._pool is not None:
            return settled + self._pool.poll(pause)  # type: ignore[operator]
        self._lane_ready.wait(pause)
        return settled

    def _call(self, waiting: _Waiting, options: RewardOptions) -> None:
        episode, label = waiting.episode, options.label
        waiting.attempts[label] += 1
        lane = self._lanes.get((episode.task.domain, label))
        if lane is not None:
            lane.submit(episode)
            return
        assert self._pool is not None
        index = self._pooled[episode.task.domain, label]
        try:
            self._pool.submit((episode.id, label), index, episode, self._limit(options))
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
            return options.on_timeout(self._limit(options))
        return Failed(f"reward '{options.label}': {lost.reason}")

    def _take(self, waiting: _Waiting, label: str, verdict: Verdict) -> None:
        waiting.verdicts[label] = verdict
        if label in waiting.keys:
            self._cache.put(waiting.keys[label], verdict)
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
    """One reward from all: the weighted sum of the values, clipped and gated as their options say. Parts are the raw,
    unweighted values by label, each grader's own parts as `<label>/<part>`, and `<label>/gated` where there is a gate.

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
        total += one.weight * counted_value(one, verdict, verdicts)
        parts[one.label] = verdict.value
        if one.gate is not None:
            parts[f"{one.label}/gated"] = float(is_gated(one, verdicts))
        parts.update({f"{one.label}/{name}": value for name, value in verdict.parts.items()})
    if options and not parts:
        return Abstain("; ".join(v.reason for v in verdicts.values() if isinstance(v, Abstain)))
    if not math.isfinite(total):
        return Failed(f"the weighted sum of {parts} is {total}; lower the weights or the values")
    return Score(total, parts)
