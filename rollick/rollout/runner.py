"""Carries out a scheduler's commands with a real engine, environments and graders."""

from __future__ import annotations

import logging
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from rollick.data.records import Completion, Episode, Group, Task
from rollick.engines.base import Engine, GenerationRequest, Sampling
from rollick.environments.base import Environment, EnvironmentOptions, Observation, StepResult
from rollick.errors import InterruptedRun, RewardError, WorkerError
from rollick.rewards.base import Abstain, Failed, Score, Verdict
from rollick.rewards.grading import Grader, combine
from rollick.rollout.attempt import Attempt
from rollick.rollout.calls import CallPool
from rollick.rollout.scheduler import (
    AbortEpisodes,
    BatchWanted,
    Command,
    DeliverBatch,
    EpisodeFailed,
    EpisodeGenerated,
    EpisodeScored,
    Event,
    GradeEpisode,
    Scheduler,
    StartEpisode,
    Stop,
    StopRun,
)

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

log = logging.getLogger(__name__)

WAIT_SECONDS = 0.05
"""Longest wait for one source while others may have something."""
WATCH_SECONDS = 0.5
SHOWN_EPISODES = 8
SHOWN_FAILURES = 3
SHOWN_CHARACTERS = 200


@dataclass(frozen=True)
class Progress:
    """How far the batch is. Progress(step=3, finished=12, total=64, sampled_tokens=1800)"""

    step: int
    finished: int
    total: int
    sampled_tokens: int


@dataclass(frozen=True)
class Limits:
    """`max_length`: tokens of the longest prompt and answer together. `episode`: seconds from an attempt's start
    until it counts as failed. `warning`: seconds without progress until a line says what is waited for."""

    max_length: int
    episode: float = 3600.0
    warning: float = 60.0


@dataclass(frozen=True)
class Services:
    """What a batch is run with. `interrupted` is asked between two polls; `progress` is told how far it is."""

    engine: Engine
    grader: Grader
    tokenizer: PreTrainedTokenizerBase
    limits: Limits
    interrupted: Callable[[], bool] = lambda: False
    progress: Callable[[Progress], None] = lambda progress: None
    calls: CallPool = field(default_factory=CallPool)


@dataclass
class _Live:
    """An attempt in the hands of the environment, the engine or the graders (`key` names it there)."""

    attempt: Attempt
    options: EnvironmentOptions
    number: int
    began: float
    phase: Literal["environment", "engine", "grading"] = "environment"
    key: str = ""
    environment: Environment | None = None

    @property
    def id(self) -> str:
        return self.attempt.episode.id


class BatchRun:
    """One batch, from its tasks to complete groups.

    While the engine generates, finished answers are graded; environments that may block run in threads. What
    fails or takes too long becomes a failed episode with its reason, never a reward of 0.
    """

    def __init__(
        self,
        services: Services,
        scheduler: Scheduler,
        wanted: BatchWanted,
        tasks: Sequence[tuple[Task, EnvironmentOptions]],
        sampling: Sampling,
    ):
        self._services = services
        self._engine, self._grader, self._calls = services.engine, services.grader, services.calls
        self._scheduler = scheduler
        self._wanted = wanted
        self._tasks = tasks
        self._sampling = sampling
        self._total = len(tasks) * wanted.group_size
        self._live: dict[str, _Live] = {}
        self._done: dict[str, Episode] = {}
        self._delivered: DeliverBatch | None = None
        self._sampled_tokens = 0
        self._last_progress = self._last_watch = time.monotonic()

    def groups(self) -> list[Group]:
        """Run it. Groups come in the order of the tasks, members in order.

        Raises RewardError when too many episodes fail, InterruptedRun when the run was asked to stop, WorkerError
        when the engine does not serve the weights that are wanted.
        """
        if self._engine.version != self._wanted.version:
            raise WorkerError(
                f"step {self._wanted.step} wants answers of weights {self._wanted.version}, but the engine serves "
                f"version {self._engine.version}; publish the weights first"
            )
        try:
            self._send(self._wanted)
            while self._delivered is None:
                self._advance()
        finally:
            self._abort(list(self._live))  # after an error, nothing of this batch may answer into a later one
        members = range(self._wanted.group_size)
        return [
            Group(group_id, task, [self._done[f"{group_id}/m{member}"] for member in members])
            for group_id, (task, _) in zip(self._delivered.group_ids, self._tasks, strict=True)
        ]

    def _advance(self) -> None:
        if self._services.interrupted():
            self._send(Stop("interrupted"))
            raise InterruptedRun(
                f"interrupted in step {self._wanted.step} with {len(self._done)} of {self._total} episodes done; "
                "a resumed run makes this batch again"
            )
        phases = {live.phase for live in self._live.values()}
        for key, completion in self._engine.poll(WAIT_SECONDS):
            self._take_completion(key, completion)
        for key, outcome in self._calls.poll(WAIT_SECONDS if phases == {"environment"} else 0.0):
            self._take_call(key, outcome)
        for id, verdicts in self._grader.poll(WAIT_SECONDS if phases == {"grading"} else 0.0):
            self._take_verdicts(id, verdicts)
        self._watch()
        self._services.progress(Progress(self._wanted.step, len(self._done), self._total, self._sampled_tokens))

    def _send(self, event: Event) -> None:
        for command in self._scheduler.handle(event, time.time()):
            self._carry_out(command)

    def _carry_out(self, command: Command) -> None:
        match command:
            case StartEpisode():
                self._start(command)
            case GradeEpisode():
                self._grade(command)
            case AbortEpisodes():
                self._abort(command.ids)
            case DeliverBatch():
                self._delivered = command
            case StopRun():
                raise RewardError(f"{command.reason}{self._failed_examples()}")

    # -- environment ----------------------------------------------------------------------------------------------

    def _start(self, start: StartEpisode) -> None:
        self._done.pop(start.id, None)
        task, options = self._tasks[int(start.group_id.rpartition("/p")[2])]
        attempt = Attempt(start, task, self._services.tokenizer, self._sampling, self._services.limits.max_length)
        live = self._live[start.id] = _Live(attempt, options, start.attempt, time.monotonic())

        def reset() -> Observation:
            live.environment = options.environment()
            return live.environment.reset(task, start.seed)

        self._call(live, reset)

    def _call(self, live: _Live, function: Callable[[], Any]) -> None:
        live.phase, live.key = "environment", live.attempt.request_id
        call = self._calls.run if live.options.runs_inline else self._calls.submit
        call(live.key, function)

    def _take_call(self, key: str, outcome: Any) -> None:
        live = self._find(key)
        if live is None:
            if isinstance(outcome, Exception):
                log.warning("environment of %s raised %r after its episode had ended", key, outcome)
            return
        match outcome:
            case Observation():
                request = live.attempt.open(outcome)
            case StepResult():
                request = live.attempt.answer(outcome)
            case Exception():
                self._fail(live, f"environment raised {type(outcome).__name__}: {outcome!s:.300}{_place(outcome)}")
                return
            case _:
                self._fail(live, f"environment returned {outcome!r:.100}, which is no Observation or StepResult")
                return
        self._ask(live, request)

    def _ask(self, live: _Live, request: GenerationRequest | None) -> None:
        """Hand the next request to the engine, or the finished episode to the graders."""
        if request is not None:
            live.phase, live.key = "engine", request.id
            self._engine.submit(request)
        elif live.attempt.episode.status == "failed":
            self._fail(live, live.attempt.episode.reason)
        else:
            self._generated(live)

    # -- engine ---------------------------------------------------------------------------------------------------

    def _take_completion(self, key: str, completion: Completion) -> None:
        live = self._find(key)
        if live is None:
            return
        if completion.finish_reason == "abort":
            self._fail(live, "the engine aborted the request")
            return
        if set(completion.versions) - {self._wanted.version}:
            raise WorkerError(
                f"episode {live.id}: the engine answered with weights {sorted(set(completion.versions))}, but step "
                f"{self._wanted.step} wants version {self._wanted.version} alone"
            )
        self._sampled_tokens += len(completion.token_ids)
        if not live.attempt.take(completion):
            self._generated(live)
            return
        environment, text = live.environment, live.attempt.episode.response_text
        assert environment is not None
        self._call(live, lambda: environment.step(text))

    def _generated(self, live: _Live) -> None:
        self._close_environment(live)
        self._last_progress = time.monotonic()
        self._send(EpisodeGenerated(live.id, live.number))

    # -- graders --------------------------------------------------------------------------------------------------

    def _grade(self, command: GradeEpisode) -> None:
        self._done.pop(command.id, None)
        live = self._live[command.id]
        live.phase, live.key, live.number, live.began = "grading", command.id, command.attempt, time.monotonic()
        self._grader.submit(live.attempt.episode)

    def _take_verdicts(self, id: str, verdicts: dict[str, Verdict]) -> None:
        live = self._live.get(id)
        if live is None or live.phase != "grading":
            return
        episode = live.attempt.episode
        verdict = combine(verdicts, self._grader.rewards[episode.task.domain])
        if isinstance(verdict, Failed):
            self._fail(live, verdict.reason)
            return
        if isinstance(verdict, Score):
            episode.reward = verdict.value + sum(turn.reward for turn in episode.turns)
            episode.reward_parts = dict(verdict.parts)
        self._done[id] = episode
        del self._live[id]
        self._last_progress = time.monotonic()
        self._send(EpisodeScored(id, live.number, abstained=isinstance(verdict, Abstain)))

    # -- failures -------------------------------------------------------------------------------------------------

    def _fail(self, live: _Live, reason: str) -> None:
        """Tell the scheduler. Until it says to try again, the episode counts as failed."""
        self._last_progress = time.monotonic()
        self._done[live.id] = replace(live.attempt.episode, status="failed", reason=reason, reward=None)
        if live.phase != "grading":
            self._close_environment(live)
            del self._live[live.id]
        self._send(EpisodeFailed(live.id, live.number, reason))
        if live.id in self._done:
            self._live.pop(live.id, None)

    def _failed_examples(self) -> str:
        """The first episodes that failed, one line each: id, task, reason, and the end of what was said."""
        failed = sorted((e for e in self._done.values() if e.status == "failed"), key=lambda episode: episode.id)
        lines = [
            f"\n  {e.id} (task {e.task.id}): {e.reason:.300}; answer: {e.response_text[-SHOWN_CHARACTERS:]!r}"
            for e in failed[:SHOWN_FAILURES]
        ]
        return "".join(lines)

    def _watch(self) -> None:
        """Fail what is over its limit; say what is waited for when nothing moves."""
        now = time.monotonic()
        if now - self._last_watch < min(WATCH_SECONDS, self._services.limits.warning):
            return
        self._last_watch = now
        for live in list(self._live.values()):
            if now - live.began > self._services.limits.episode:
                self._withdraw([live])
                self._fail(live, f"no result after {self._services.limits.episode:g} s (waiting for {live.phase})")
        if self._live and now - self._last_progress > self._services.limits.warning:
            log.warning("%s", self._describe_waiting(now))
            self._last_progress = now

    def _describe_waiting(self, now: float) -> str:
        oldest = sorted(self._live.values(), key=lambda live: live.began)
        shown = ", ".join(f"{live.id} ({live.phase}, {now - live.began:.0f} s)" for live in oldest[:SHOWN_EPISODES])
        more = f" and {len(oldest) - SHOWN_EPISODES} more" if len(oldest) > SHOWN_EPISODES else ""
        return (
            f"step {self._wanted.step}: nothing finished for {self._services.limits.warning:g} s; waiting for "
            f"{len(oldest)} of {self._total} episodes: {shown}{more}"
        )

    def _abort(self, ids: Iterable[str]) -> None:
        gone = [self._live.pop(id) for id in ids if id in self._live]
        self._withdraw(gone)
        for live in gone:
            self._close_environment(live)

    def _withdraw(self, gone: Sequence[_Live]) -> None:
        """Take these back from whoever works on them; partial answers are dropped."""
        if not gone:
            return
        self._engine.abort([live.key for live in gone if live.phase == "engine"])
        self._grader.cancel([live.id for live in gone if live.phase == "grading"])
        for live in gone:
            if live.phase == "environment":
                self._calls.give_up(live.key)

    def _close_environment(self, live: _Live) -> None:
        environment, live.environment = live.environment, None
        if environment is None:
            return
        call = self._calls.run if live.options.runs_inline else self._calls.submit
        call(f"{live.attempt.request_id} (close)", environment.close)

    def _find(self, key: str) -> _Live | None:
        live = self._live.get(key.rpartition("@")[0])
        return live if live is not None and live.key == key else None


def _place(error: Exception) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
