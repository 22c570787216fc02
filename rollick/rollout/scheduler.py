"""Which episode runs when: a state machine without a clock, without torch and without threads.

Events go in, commands come out: `handle(event, now) -> [command, …]`. The driver carries commands out with real
engines and graders and reports what happened; a test or a simulator does the same with made-up ones.

An episode's life:

    queued → running → generated → scoring → scored → admitted → consumed
               running → queued, scoring → generated     tried again after an infrastructure failure
               any of these → aborted                    the run was stopped; a resumed one makes the batch again
               running, scoring → failed                 no attempt is left
               scored → filtered                         every grader abstained: nothing to train on

Sampling is on-policy: one batch at a time, all of its groups complete before it is delivered, and a state to
resume from lies between two batches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from rollick.rollout.events import EpisodeState, Tally, Transition
from rollick.state.seeds import derive_seed

Purpose = Literal["training", "evaluation"]
NO_STEP = -1
"""Step and version before the first batch."""
SHOWN_REASONS = 5
OPEN_STATES: tuple[EpisodeState, ...] = ("queued", "running", "generated", "scoring", "scored")


@dataclass(frozen=True)
class BatchWanted:
    """The pipeline asks for `group_size` answers to each task, sampled with the weights `version`.

    BatchWanted(step=3, version=3, tasks=("train/17", "train/4"), group_size=8)
    """

    step: int
    version: int
    tasks: tuple[str, ...]
    group_size: int


@dataclass(frozen=True)
class EpisodeGenerated:
    """The environment is done with this attempt; graders may look at it. EpisodeGenerated("s3/p0/m1", attempt=1)"""

    id: str
    attempt: int


@dataclass(frozen=True)
class EpisodeFailed:
    """Engine, environment or graders failed; the answer itself was not judged. `retry` False gives up at once.

    EpisodeFailed("s3/p0/m1", attempt=1, reason="math: timeout after 5 s", retry=True)
    """

    id: str
    attempt: int
    reason: str
    retry: bool = True


@dataclass(frozen=True)
class EpisodeScored:
    """Graders are done. `abstained`: none of them had anything to say. EpisodeScored("s3/p0/m1", attempt=1)"""

    id: str
    attempt: int
    abstained: bool = False


@dataclass(frozen=True)
class BatchConsumed:
    """The delivered batch was trained on (or reported): its episodes are done. BatchConsumed(step=3)"""

    step: int


@dataclass(frozen=True)
class Stop:
    """Nothing more is wanted; what was not delivered is aborted. Stop("interrupted")"""

    reason: str


Event = BatchWanted | EpisodeGenerated | EpisodeFailed | EpisodeScored | BatchConsumed | Stop


@dataclass(frozen=True)
class StartEpisode:
    """Run one attempt from the start. Attempts of an episode share its seed: what failed is not sampled away.

    StartEpisode("s3/p0/m1", "s3/p0", member=1, task="train/17", seed=8539443541235431798, attempt=1)
    """

    id: str
    group_id: str
    member: int
    task: str
    seed: int
    attempt: int


@dataclass(frozen=True)
class GradeEpisode:
    """Hand the finished attempt to the graders. GradeEpisode("s3/p0/m1", attempt=1)"""

    id: str
    attempt: int


@dataclass(frozen=True)
class AbortEpisodes:
    """Stop working on these and forget them. AbortEpisodes(("s3/p0/m1",))"""

    ids: tuple[str, ...]


@dataclass(frozen=True)
class DeliverBatch:
    """All groups of the batch are complete. DeliverBatch(step=3, group_ids=("s3/p0", "s3/p1"))"""

    step: int
    group_ids: tuple[str, ...]


@dataclass(frozen=True)
class StopRun:
    """The run must not go on. StopRun("step 3: 5 of 16 episodes failed …")"""

    reason: str


Command = StartEpisode | GradeEpisode | AbortEpisodes | DeliverBatch | StopRun


@dataclass
class _Episode:
    id: str
    group_id: str
    member: int
    task: str
    seed: int
    batch: _Batch
    state: EpisodeState = "queued"
    attempt: int = 1
    abstained: bool = False


@dataclass
class _Batch:
    """One wanted batch; `open` counts its episodes that are neither scored nor failed."""

    wanted: BatchWanted
    group_ids: tuple[str, ...]
    episodes: list[_Episode] = field(default_factory=list)
    open: int = 0
    failures: Counter[str] = field(default_factory=Counter)
    delivered: bool = False


class Scheduler:
    """Deterministic: equal events in equal order give equal commands and an equal event log.

    `max_failure_rate` is the share of a batch's episodes that may fail for good; one more stops the run.
    `record` gets every transition. An evaluation has a scheduler of its own: other ids, and the same draws every
    time, so that two evaluations differ by their weights alone.

        scheduler = Scheduler(run_seed=7, max_attempts=2, max_failure_rate=0.25)
        [start] = scheduler.handle(BatchWanted(0, 0, ("train/0",), group_size=1), now=0.0)
        scheduler.handle(EpisodeGenerated(start.id, attempt=1), now=1.0)  # [GradeEpisode("s0/p0/m0", attempt=1)]
        scheduler.handle(EpisodeScored(start.id, attempt=1), now=2.0)     # [DeliverBatch(0, ("s0/p0",))]
        scheduler.handle(BatchConsumed(0), now=3.0)                       # []
    """

    def __init__(
        self,
        run_seed: int,
        max_attempts: int,
        max_failure_rate: float,
        record: Callable[[Transition], None] = lambda transition: None,
        purpose: Purpose = "training",
    ):
        self._run_seed = run_seed
        self._max_attempts = max_attempts
        self._max_failure_rate = max_failure_rate
        self._record = record
        self._purpose = purpose
        self._tally = Tally()
        self._batch: _Batch | None = None
        self._latest = BatchWanted(NO_STEP, NO_STEP, (), 0)
        self._episodes: dict[str, _Episode] = {}

    def handle(self, event: Event, now: float) -> list[Command]:
        """Take note of `event` at time `now` (seconds; only logged) and say what to do next.

        Raises ValueError for events that no correct driver sends: a batch without tasks, a second training batch
        while one is open, a batch consumed before it was delivered.
        """
        match event:
            case BatchWanted():
                return self._want(event, now)
            case EpisodeGenerated():
                return self._generated(event, now)
            case EpisodeFailed():
                return self._failed(event, now)
            case EpisodeScored():
                return self._scored(event, now)
            case BatchConsumed():
                return self._consumed(event, now)
            case Stop():
                return self._stop(event.reason, now)

    @property
    def counters(self) -> dict[str, int]:
        """started = consumed + filtered + failed + in_flight, and beside them retries and ignored_results."""
        return self._tally.counters()

    def state(self) -> dict[str, Any]:
        """JSON-able. Raises ValueError while a batch is open."""
        if self._batch is not None:
            raise ValueError(f"the batch of step {self._batch.wanted.step} is open; a state lies between batches")
        return {"tally": self._tally.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Continue counting from `state()`; an open batch is forgotten."""
        self._tally = Tally.from_state(state["tally"])
        self._batch = None
        self._episodes.clear()

    def _want(self, event: BatchWanted, now: float) -> list[Command]:
        if not event.tasks or event.group_size < 1:
            raise ValueError(f"step {event.step}: a batch needs at least one task and one answer per task")
        if self._batch is not None:
            raise ValueError(f"step {event.step}: the batch of step {self._batch.wanted.step} is still open")
        self._latest = event
        self._batch = batch = self._new_batch(event)
        for episode in batch.episodes:
            self._log(episode, None, "queued", now)
        return self._start(batch.episodes, now)

    def _new_batch(self, wanted: BatchWanted) -> _Batch:
        prefix = "s" if self._purpose == "training" else "e"
        group_ids = tuple(f"{prefix}{wanted.step}/p{index}" for index in range(len(wanted.tasks)))
        batch = _Batch(wanted, group_ids)
        for index, (group_id, task) in enumerate(zip(group_ids, wanted.tasks)):
            for member in range(wanted.group_size):
                seed = self._seed(wanted, index, member)
                batch.episodes.append(_Episode(f"{group_id}/m{member}", group_id, member, task, seed, batch))
        batch.open = len(batch.episodes)
        self._episodes.update((episode.id, episode) for episode in batch.episodes)
        return batch

    def _seed(self, wanted: BatchWanted, index: int, member: int) -> int:
        if self._purpose == "evaluation":
            return derive_seed(self._run_seed, "evaluation", index, member)
        return derive_seed(self._run_seed, "episode", wanted.step, index, member)

    def _start(self, episodes: Iterable[_Episode], now: float) -> list[Command]:
        commands: list[Command] = []
        for episode in episodes:
            self._move(episode, "running", now)
            commands.append(
                StartEpisode(episode.id, episode.group_id, episode.member, episode.task, episode.seed, episode.attempt)
            )
        return commands

    def _generated(self, event: EpisodeGenerated, now: float) -> list[Command]:
        episode = self._expect(event.id, event.attempt, "running", now)
        if episode is None:
            return []
        self._move(episode, "generated", now)
        self._move(episode, "scoring", now)
        return [GradeEpisode(episode.id, episode.attempt)]

    def _scored(self, event: EpisodeScored, now: float) -> list[Command]:
        episode = self._expect(event.id, event.attempt, "scoring", now)
        if episode is None:
            return []
        episode.abstained = event.abstained
        self._move(episode, "scored", now)
        return self._settle(episode.batch, now)

    def _failed(self, event: EpisodeFailed, now: float) -> list[Command]:
        episode = self._episodes.get(event.id)
        phase: EpisodeState = "scoring" if episode is not None and episode.state == "scoring" else "running"
        episode = self._expect(event.id, event.attempt, phase, now)
        if episode is None:
            return []
        if event.retry and episode.attempt < self._max_attempts:
            return self._retry(episode, event.reason, now)
        self._move(episode, "failed", now, event.reason)
        batch = episode.batch
        batch.failures[event.reason] += 1
        if batch.failures.total() > self._max_failure_rate * len(batch.episodes):
            reason = self._too_many_failures(batch)
            return [*self._stop(reason, now), StopRun(reason)]
        return self._settle(batch, now)

    def _retry(self, episode: _Episode, reason: str, now: float) -> list[Command]:
        """A failed grading is graded again, a failed generation is generated again."""
        episode.attempt += 1
        if episode.state == "running":
            self._move(episode, "queued", now, reason)
            return self._start([episode], now)
        self._move(episode, "generated", now, reason)
        self._move(episode, "scoring", now)
        return [GradeEpisode(episode.id, episode.attempt)]

    def _settle(self, batch: _Batch, now: float) -> list[Command]:
        """One more episode has its result; with the last one the batch is delivered."""
        batch.open -= 1
        if batch.open:
            return []
        batch.delivered = True
        for episode in batch.episodes:
            if episode.state == "failed":
                continue
            if episode.abstained:
                self._move(episode, "filtered", now, "every grader abstained")
            else:
                self._move(episode, "admitted", now)
        return [DeliverBatch(batch.wanted.step, batch.group_ids)]

    def _consumed(self, event: BatchConsumed, now: float) -> list[Command]:
        batch = self._batch
        if batch is None or not batch.delivered or batch.wanted.step != event.step:
            raise ValueError(f"step {event.step}: there is no delivered batch to consume")
        for episode in batch.episodes:
            if episode.state == "admitted":
                self._move(episode, "consumed", now)
            del self._episodes[episode.id]
        self._batch = None
        return []

    def _stop(self, reason: str, now: float) -> list[Command]:
        aborted = [episode for episode in self._episodes.values() if episode.state in OPEN_STATES]
        for episode in aborted:
            self._move(episode, "aborted", now, reason)
        return [AbortEpisodes(tuple(episode.id for episode in aborted))] if aborted else []

    def _expect(self, id: str, attempt: int, state: EpisodeState, now: float) -> _Episode | None:
        """The episode this result is for; None (and counted) when it came late or twice. The first result of the
        current attempt is the one that counts."""
        episode = self._episodes.get(id)
        if episode is not None and episode.state == state and episode.attempt == attempt:
            return episode
        reason = f"late or double result of attempt {attempt} ignored"
        if episode is None:
            latest = self._latest
            self._note(Transition(now, latest.step, latest.version, id, "consumed", "consumed", reason))
        else:
            self._log(episode, episode.state, episode.state, now, reason)
        return None

    def _too_many_failures(self, batch: _Batch) -> str:
        failed, total = batch.failures.total(), len(batch.episodes)
        common = batch.failures.most_common(SHOWN_REASONS)
        reasons = "; ".join(f"{count} × {reason}" for reason, count in common)
        if len(batch.failures) > len(common):
            reasons += f"; and {len(batch.failures) - len(common)} other reasons"
        return (
            f"{self._purpose} batch of step {batch.wanted.step}: {failed} of {total} episodes failed "
            f"({failed / total:.0%}, rollout.max_failure_rate is {self._max_failure_rate:.0%}): {reasons}"
        )

    def _move(self, episode: _Episode, target: EpisodeState, now: float, reason: str = "") -> None:
        source, episode.state = episode.state, target
        self._log(episode, source, target, now, reason)

    def _log(
        self, episode: _Episode, source: EpisodeState | None, target: EpisodeState, now: float, reason: str = ""
    ) -> None:
        wanted = episode.batch.wanted
        self._note(Transition(now, wanted.step, wanted.version, episode.id, source, target, reason))

    def _note(self, transition: Transition) -> None:
        self._tally.add(transition)
        self._record(transition)
