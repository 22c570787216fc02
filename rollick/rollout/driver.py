"""What a pipeline sees of rollouts: ask for the next batch, get complete, graded groups."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal

from rollick.config.job import SamplingSettings
from rollick.config.rl import RolloutSettings
from rollick.data.records import Group, Task
from rollick.data.sampler import MixedSampler
from rollick.engines.base import Engine, Sampling
from rollick.environments.base import EnvironmentOptions
from rollick.rewards.grading import Grader
from rollick.rollout.domains import Domain
from rollick.rollout.events import Transition
from rollick.rollout.runner import BatchRun, Limits, Progress, Services
from rollick.rollout.scheduler import BatchConsumed, BatchWanted, Scheduler
from rollick.state.seeds import derive_seed

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


class Rollouts:
    """Samples tasks, generates and grades their answers; on-policy.

    domains = open_domains(job.environments, tokenizer, max_prompt_tokens=1024, over_long_prompts="refuse")
    grader = Grader(rewards_by_domain(domains), timeout=job.rollout.reward_timeout, retries=0)
    rollouts = Rollouts(engine, grader, tokenizer, domains, job.rollout, group_size=8, seed=7, max_length=1280)
    groups = rollouts.next_batch(step=0, version=0)   # prompts_per_step groups of 8 episodes
    rollouts.consumed(0)                              # after the update: `state()` now lies behind this batch

    The same seed gives the same tasks and the same seed to every episode, whatever ran before; so a run resumed
    from `state()` makes the batches that the uninterrupted one would have made. The grader makes no retries of its
    own here: what fails is tried again by `rollout.max_attempts`.
    """

    def __init__(
        self,
        engine: Engine,
        grader: Grader,
        tokenizer: PreTrainedTokenizerBase,
        domains: Sequence[Domain],
        settings: RolloutSettings,
        group_size: int,
        seed: int,
        max_length: int,
        record: Callable[[Transition], None] = lambda transition: None,
        interrupted: Callable[[], bool] = lambda: False,
        progress: Callable[[Progress], None] = lambda progress: None,
    ):
        limits = Limits(max_length, settings.episode_timeout, settings.stall_warning)
        self._services = Services(engine, grader, tokenizer, limits, interrupted, progress)
        self._domains = list(domains)
        self._settings = settings
        self._group_size = group_size
        self._seed = seed
        self._scheduler = self._new_scheduler(record)
        weights = [domain.options.weight for domain in self._domains]
        self._sampler = MixedSampler([len(domain) for domain in self._domains], weights, derive_seed(seed, "tasks"))
        self._boundary = self._snapshot()

    def next_batch(self, step: int, version: int) -> list[Group]:
        """`prompts_per_step` complete groups sampled with the weights `version`; waits until the last is graded.

        Failed episodes stay in their group with status "failed" and their reason. Raises RewardError when more
        than `rollout.max_failure_rate` of them fail, InterruptedRun on Ctrl-C, WorkerError when the engine serves
        other weights.
        """
        draws = [(self._domains[source], row) for source, _, row in self._sampler.next(self._settings.prompts_per_step)]
        tasks = [(domain.task(row), domain.options) for domain, row in draws]
        sampling = make_sampling(self._settings, self._settings.max_new_tokens)
        return self._run(self._scheduler, step, version, tasks, self._group_size, sampling)

    def consumed(self, step: int) -> None:
        """The batch of `step` was trained on; until this is said, `state()` is the one before it."""
        self._scheduler.handle(BatchConsumed(step), time.time())
        self._boundary = self._snapshot()

    def evaluate(
        self,
        step: int,
        version: int,
        domains: Sequence[Domain],
        sampling: Sampling,
        samples_per_prompt: int,
    ) -> list[Group]:
        """A group of `samples_per_prompt` answers for every task of `domains`, each task once.

        Draws depend on the run's seed and the task's place only, so evaluations are comparable; nothing here moves
        the training's tasks, seeds or counters. Raises what `next_batch` raises.
        """
        tasks = [(domain.task(i), domain.options) for domain in domains for i in range(len(domain))]
        scheduler = self._new_scheduler(lambda transition: None, "evaluation")
        return self._run(scheduler, step, version, tasks, samples_per_prompt, sampling)

    @property
    def counters(self) -> dict[str, int]:
        """Training episodes: started = consumed + filtered + failed + in_flight; retries; ignored_results."""
        return self._scheduler.counters

    def state(self) -> dict[str, Any]:
        """JSON-able; as of the end of the last consumed batch. A batch that was under way is made again."""
        return self._boundary

    def restore(self, state: dict[str, Any]) -> None:
        """Continue behind the last consumed batch of `state()`. Raises DataError when the tasks are others."""
        self._scheduler.restore(state["scheduler"])
        self._sampler.restore(state["tasks"])
        self._boundary = self._snapshot()

    def close(self) -> None:
        """Engine and grader belong to the caller and stay open."""
        self._services.calls.close()

    def _run(
        self,
        scheduler: Scheduler,
        step: int,
        version: int,
        tasks: Sequence[tuple[Task, EnvironmentOptions]],
        group_size: int,
        sampling: Sampling,
    ) -> list[Group]:
        wanted = BatchWanted(step, version, tuple(task.id for task, _ in tasks), group_size)
        return BatchRun(self._services, scheduler, wanted, tasks, sampling).groups()

    def _new_scheduler(
        self, record: Callable[[Transition], None], purpose: Literal["training", "evaluation"] = "training"
    ) -> Scheduler:
        settings = self._settings
        return Scheduler(self._seed, settings.max_attempts, settings.max_failure_rate, record, purpose)

    def _snapshot(self) -> dict[str, Any]:
        return {"scheduler": self._scheduler.state(), "tasks": self._sampler.state()}


def make_sampling(settings: SamplingSettings, max_new_tokens: int) -> Sampling:
    """The engine's parameters from a job's: all of them, so that none is dropped on the way."""
    return Sampling(
        temperature=settings.temperature,
        top_p=settings.top_p,
        top_k=settings.top_k,
        min_p=settings.min_p,
        max_new_tokens=max_new_tokens,
        stop=settings.stop,
    )
