"""Looking out for reward hacking: what rises together with the reward although it should not need to.

Every step `watch_metrics` measures the answers, and `find_alarms`, a pure function of the last steps' metrics, compares
the last third of the window with the first:

    reward/mean                  0.20 → 0.55      the reward has risen …
    rollout/response_length/mean  180 → 410       … and answers are 2.3 times as long: alarm `length`

An alarm proves nothing (longer answers may be better ones). It names samples to read.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rollick.config.watch import HackingWatchSettings
from rollick.data.records import Episode, Group
from rollick.rewards.base import RewardOptions

Metrics = dict[str, float]
NGRAM = 4
SHOWN_SAMPLES = 3
FORM_KINDS = frozenset({"format", "language", "overlong", "repetition", "json_schema"})
"""Rewards that look at the form of an answer alone."""
REWARD, SPREAD = "reward/mean", "reward/std"
LENGTH, REPETITION, SAME_ANSWER = "rollout/response_length/mean", "rollout/repetition", "rollout/same_answer"
NAMES = ("length", "repetition", "same_answer", "format_only")


@dataclass(frozen=True)
class Alarm:
    """Something rose together with the reward.

    Alarm("length", "response length", before=180, after=410, reward_before=0.2, reward_after=0.55)
    """

    name: str
    what: str
    before: float
    after: float
    reward_before: float
    reward_after: float

    def sentence(self, step: int, sample_ids: Sequence[str], place: str) -> str:
        return (
            f"possible reward hacking at step {step} ({self.name}): {self.what} rose {self.before:.3g} → "
            f"{self.after:.3g} while the reward rose {self.reward_before:.3g} → {self.reward_after:.3g}; read "
            f"{', '.join(sample_ids)} in {place} (thresholds: logging.hacking_watch)"
        )


@dataclass(frozen=True)
class Labels:
    """Labels of a job's rewards by what they look at: the form of an answer, or its content."""

    form: frozenset[str]
    content: frozenset[str]

    @classmethod
    def of(cls, rewards: Iterable[RewardOptions]) -> Labels:
        """Rewards of weight 0 are no reason to do anything and are left out."""
        weighted = [options for options in rewards if options.weight]
        form = frozenset(options.label for options in weighted if options.kind in FORM_KINDS)
        return cls(form, frozenset(options.label for options in weighted) - form)


def find_alarms(rows: Sequence[Mapping[str, float]], settings: HackingWatchSettings, labels: Labels) -> list[Alarm]:
    """Alarms over `rows`, the metrics of the last steps, oldest first; none before the window is full."""
    third = settings.window // 3
    if len(rows) < settings.window:
        return []
    window = rows[-settings.window :]
    change = lambda name: _change(window, name, third)
    reward, spread = change(REWARD), change(SPREAD)
    if reward is None or spread is None or reward[1] - reward[0] < settings.reward_rise * max(spread[0], 1e-6):
        return []
    found: list[tuple[str, str, tuple[float, float]]] = []
    length, growth = change(LENGTH), settings.length_growth
    if growth is not None and length is not None and length[1] >= growth * max(length[0], 1.0):
        found.append(("length", "response length", length))
    for name, what, metric, rise in (
        ("repetition", "the share of repeated 4-grams", REPETITION, settings.repetition_rise),
        ("same_answer", "the share of the most common answer", SAME_ANSWER, settings.same_answer_rise),
    ):
        pair = change(metric)
        if rise is not None and pair is not None and pair[1] - pair[0] >= rise:
            found.append((name, what, pair))
    if settings.format_rise is not None and (form := _form_only(change, labels, settings.format_rise)):
        found.append(("format_only", *form))
    return [Alarm(name, what, *pair, *reward) for name, what, pair in found]


def _form_only(
    change: Callable[[str], tuple[float, float] | None], labels: Labels, rise: float
) -> tuple[str, tuple[float, float]] | None:
    """The form's part that rose most, when no part for the content rose a quarter as much."""
    rises = {}
    for label in sorted(labels.form | labels.content):
        pair = change(f"reward/{label}/mean")
        if pair is not None:
            rises[label] = (pair[1] - pair[0], pair)
    form = max((label for label in rises if label in labels.form), key=lambda label: rises[label][0], default=None)
    content = [rises[label][0] for label in rises if label in labels.content]
    if form is None or not content or rises[form][0] < rise or max(content) >= rises[form][0] / 4:
        return None
    return f"'{form}' alone of the rewards", rises[form][1]


def _change(rows: Sequence[Mapping[str, float]], name: str, third: int) -> tuple[float, float] | None:
    """Means of the first and the last third; None where either has no value."""
    first, last = ([row[name] for row in part if name in row] for part in (rows[:third], rows[-third:]))
    return (_mean(first), _mean(last)) if first and last else None


def watch_metrics(groups: Sequence[Group]) -> Metrics:
    """`rollout/repetition`: mean share of an answer's 4-grams of tokens that it had said before.
    `rollout/same_answer`: share of the answers that end in the most common last line, over at least four tasks, each
    group weighing alike. Values that do not exist are left out."""
    episodes = [episode for group in groups for episode in group.scored]
    metrics: Metrics = {}
    if episodes:
        metrics[REPETITION] = _mean([repetition_of(episode) for episode in episodes])
    shares = _answer_shares(groups)
    if shares and len({group.task.id for group in groups if group.scored}) >= 4:
        metrics[SAME_ANSWER] = max(shares.values())
    return metrics


def repetition_of(episode: Episode) -> float:
    """1 - different / all 4-grams of sampled tokens; 0 for fewer than four tokens."""
    ids = np.asarray([id for turn in episode.turns for id in turn.completion.token_ids], np.uint64)
    count = len(ids) - NGRAM + 1
    if count <= 0:
        return 0.0
    mixed = np.zeros(count, np.uint64)
    for offset in range(NGRAM):  # a 64-bit hash of each window; overflow is meant
        mixed = mixed * np.uint64(0x9E3779B97F4A7C15) + ids[offset : offset + count] + np.uint64(1)
    return 1.0 - len(np.unique(mixed)) / count


def last_line(episode: Episode) -> str:
    """What an answer ends in, without regard to case and white space; at most 200 characters."""
    lines = [line for line in episode.response_text.splitlines() if line.strip()]
    return " ".join(lines[-1].lower().split())[-200:] if lines else ""


def _answer_shares(groups: Sequence[Group]) -> Counter[str]:
    shares: Counter[str] = Counter()
    scored = [group for group in groups if group.scored]
    for group in scored:
        for episode in group.scored:
            shares[last_line(episode)] += 1 / (len(group.scored) * len(scored))  # type: ignore[assignment]
    return shares


def suspects(name: str, groups: Sequence[Group], labels: Labels) -> list[str]:
    """Ids of the answers that show an alarm best."""
    episodes = [episode for group in groups for episode in group.scored]
    shares = _answer_shares(groups)
    rank: dict[str, Callable[[Episode], float]] = {
        "length": lambda episode: episode.response_length,
        "repetition": repetition_of,
        "same_answer": lambda episode: shares[last_line(episode)],
        "format_only": lambda episode: _surplus(episode, labels),
    }
    return [episode.id for episode in sorted(episodes, key=rank[name], reverse=True)[:SHOWN_SAMPLES]]


def _surplus(episode: Episode, labels: Labels) -> float:
    parts = episode.reward_parts
    form, content = (sum(parts.get(label, 0.0) for label in some) for some in (labels.form, labels.content))
    return form - content


class HackingWatch:
    """The watch over a run. `history`: the metrics of earlier steps, for a resumed one.

    watch = HackingWatch(settings, Labels.of(rewards), history=[])
    alarms = watch.look(metrics, groups)   # those that were not on at the step before
    watch.metrics                          # {"alarm/length": 1.0, …} of this step
    """

    def __init__(self, settings: HackingWatchSettings, labels: Labels, history: Iterable[Mapping[str, float]] = ()):
        self._settings = settings
        self._labels = labels
        self._rows: deque[Mapping[str, float]] = deque(
            (row for row in history if REWARD in row or "rollout/episodes" in row), maxlen=settings.window
        )
        self._on = {name for name in NAMES if self._rows and self._rows[-1].get(f"alarm/{name}")}

    def look(self, metrics: Mapping[str, float], groups: Sequence[Group]) -> list[tuple[Alarm, list[str]]]:
        """Take in a step; alarms that go on now, each with the ids of samples in `groups` to read."""
        self._rows.append(metrics)
        alarms = find_alarms(list(self._rows), self._settings, self._labels)
        new = [alarm for alarm in alarms if alarm.name not in self._on]
        self._on = {alarm.name for alarm in alarms}
        return [(alarm, suspects(alarm.name, groups, self._labels)) for alarm in new]

    @property
    def metrics(self) -> Metrics:
        return {f"alarm/{name}": float(name in self._on) for name in NAMES}


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)
