"""Which episode runs when: a state machine without a clock, without torch and without threads.

Events go in, commands come out: `handle(event, now) -> [command, …]`. The driver carries commands out with real
engines and graders and reports what happened; a test or a simulator does the same with made-up ones.

An episode's life:

    queued → running → generated → scoring → scored → admitted → consumed
               running → queued, scoring → generated     tried again after an infrastructure failure
               any live state → aborted → queued         the run was stopped; a resumed run starts it again
               running, scoring → failed                 no attempt is left
               scored → filtered                         every grader abstained: nothing to train on

Sampling is on-policy: one training batch at a time, all of its groups complete before it is delivered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from rollick.rollout.events import EpisodeState, Tally, Transition
from rollick.state.seeds import derive_seed

Purpose = Literal["training", "evaluation"]
NO_STEP = -1
"""Step and version of a result whose episode is long gone."""
LIVE_STATES: tuple[EpisodeState, ...] = ("queued", "running", "aborted", "generated", "scoring", "scored", "admitted")


@dataclass(frozen=True)
class BatchWanted:
    """The pipeline asks for `group_size` answers to each task, sampled with the weights `version`.

    BatchWanted(step=3, version=3, tasks=("train/17", "train/4"), group_size=8)
    """

    step: int
    version: int
    tasks: tuple[str, ...]
    group_size: int
    purpose: Purpose = "training"


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
    purpose: Purpose = "training"


@dataclass(frozen=True)
class Stop:
    """Nothing more is wanted; live episodes go back to the queue. Stop("interrupted")"""

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
    purpose: Purpose = "training"


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
    failures: int = 0
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
    `record` gets every transition.

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
    ):
        self._run_seed = run_seed
        self._max_attempts = max_attempts
        self._max_failure_rate = max_failure_rate
        self._record = record
        self._tally = Tally()
        self._batches: dict[tuple[Purpose, int], _Batch] = {}
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

    def open_batches(self) -> list[BatchWanted]:
        """What was wanted and not consumed yet; after a restore, what a resumed run should want again."""
        return [batch.wanted for batch in self._batches.values()]

    def state(self) -> dict[str, Any]:
        """JSON-able; the open batches are in it, and a restored scheduler runs them again from the start."""
        return {
            "tally": self._tally.state(),
            "open": [
                {"wanted": asdict(batch.wanted), "episodes": [[e.state, e.attempt] for e in batch.episodes]}
                for batch in self._batches.values()
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from `state()` of the same run seed. Open batches wait until they are wanted again."""
        self._tally = Tally.from_state(state["tally"])
        self._batches.clear()
        self._episodes.clear()
        for saved in state["open"]:
            wanted = BatchWanted(**{**saved["wanted"], "tasks": tuple(saved["wanted"]["tasks"])})
            batch = self._new_batch(wanted)
            for episode, (episode_state, attempt) in zip(batch.episodes, saved["episodes"], strict=True):
                episode.state, episode.attempt = episode_state, attempt

    def _want(self, event: BatchWanted, now: float) -> list[Command]:
        key = (event.purpose, event.step)
        open_batch = self._batches.get(key)
        if open_batch is not None and open_batch.wanted == event:
            return self._restart(open_batch, now)
        if not event.tasks or event.group_size < 1:
            raise ValueError(f"step {event.step}: a batch needs at least one task and one answer per task")
        if any(purpose == event.purpose for purpose, _ in self._batches):
            raise ValueError(f"step {event.step}: an earlier {event.purpose} batch is still open")
        batch = self._new_batch(event)
        for episode in batch.episodes:
            self._log(episode, None, "queued", now)
        return self._start(batch.episodes, now)

    def _new_batch(self, wanted: BatchWanted) -> _Batch:
        prefix = "s" if wanted.purpose == "training" else "e"
        group_ids = tuple(f"{prefix}{wanted.step}/p{index}" for index in range(len(wanted.tasks)))
        batch = _Batch(wanted, group_ids)
        for index, (group_id, task) in enumerate(zip(group_ids, wanted.tasks)):
            for member in range(wanted.group_size):
                seed = self._seed(wanted, index, member)
                batch.episodes.append(_Episode(f"{group_id}/m{member}", group_id, member, task, seed, batch))
        batch.open = len(batch.episodes)
        self._batches[wanted.purpose, wanted.step] = batch
        self._episodes.update((episode.id, episode) for episode in batch.episodes)
        return batch

    def _seed(self, wanted: BatchWanted, index: int, member: int) -> int:
        """Every evaluation draws the same numbers, so that two of them differ by their weights alone."""
        if wanted.purpose == "evaluation":
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

    def _restart(self, batch: _Batch, now: float) -> list[Command]:
        """Run an open batch of a stopped or restored run again: what was generated lived in the old process.
        Attempts count on, so that a late result of the stopped one is told apart."""
        batch.open, batch.delivered = len(batch.episodes), False
        batch.failures.clear()
        for episode in batch.episodes:
            episode.attempt += 1
            episode.failures, episode.abstained = 0, False
            self._back_to_queue(episode, "restarted", now)
        return self._start(batch.episodes, now)

    def _back_to_queue(self, episode: _Episode, reason: str, now: float) -> None:
        if episode.state == "queued":
            return
        if episode.state != "aborted":
            self._move(episode, "aborted", now, reason)
        self._move(episode, "queued", now, reason)

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
        episode.failures += 1
        if event.retry and episode.failures < self._max_attempts:
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
        return [DeliverBatch(batch.wanted.step, batch.group_ids, batch.wanted.purpose)]

    def _consumed(self, event: BatchConsumed, now: float) -> list[Command]:
        batch = self._batches.get((event.purpose, event.step))
        if batch is None or not batch.delivered:
            raise ValueError(f"step {event.step}: there is no delivered {event.purpose} batch to consume")
        for episode in batch.episodes:
            if episode.state == "admitted":
                self._move(episode, "consumed", now)
            del self._episodes[episode.id]
        del self._batches[event.purpose, event.step]
        return []

    def _stop(self, reason: str, now: float) -> list[Command]:
        aborted = []
        for episode in self._episodes.values():
            if episode.state in LIVE_STATES and not episode.batch.delivered:
                if episode.state != "queued":
                    aborted.append(episode.id)
                self._back_to_queue(episode, reason, now)
        return [AbortEpisodes(tuple(aborted))] if aborted else []

    def _expect(self, id: str, attempt: int, state: EpisodeState, now: float) -> _Episode | None:
        """The episode this result is for; None (and counted) when it came late or twice. The first result of the
        current attempt is the one that counts."""
        episode = self._episodes.get(id)
        if episode is not None and episode.state == state and episode.attempt == attempt:
            return episode
        reason = f"late or double result of attempt {attempt} ignored"
        if episode is None:
            self._note(Transition(now, NO_STEP, NO_STEP, id, "consumed", "consumed", reason))
        else:
            self._log(episode, episode.state, episode.state, now, reason)
        return None

    def _too_many_failures(self, batch: _Batch) -> str:
        failed, total = batch.failures.total(), len(batch.episodes)
        reasons = "; ".join(f"{count} × {reason}" for reason, count in batch.failures.most_common())
        return (
            f"{batch.wanted.purpose} batch of step {batch.wanted.step}: {failed} of {total} episodes failed "
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
