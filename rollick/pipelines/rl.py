"""`pipeline: rl`: a policy learns from the rewards of its own answers.

One step: sample groups of answers, compare each with its group, update the policy, publish the new weights to the
engine and prove that they arrived. RLVR is the case of one-turn environments.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rollick.config.rl import RlJob
from rollick.data.batch import Batch
from rollick.data.records import Group
from rollick.engines.base import EngineContext
from rollick.errors import InterruptedRun
from rollick.models.tokenizer import end_token_ids, load_tokenizer, save_tokenizer
from rollick.pipelines.policy_batch import PolicyBatch, PolicyBatches, ScoredRows, scored_rows
from rollick.pipelines.run_session import Resume, RunSession
from rollick.pipelines.sample_records import sample_records
from rollick.platforms.select import select_platform
from rollick.rewards.grading import Grader
from rollick.rollout.domains import open_domains, rewards_by_domain
from rollick.rollout.driver import Rollouts, make_sampling
from rollick.rollout.hacking_watch import HackingWatch, Labels, watch_metrics
from rollick.rollout.metrics import evaluation_metrics, rollout_metrics
from rollick.runtime.local import LocalRuntime
from rollick.state.clock import StageClock
from rollick.state.jsonl import read_jsonl
from rollick.state.samples import sample_path, write_samples
from rollick.state.seeds import derive_seed
from rollick.training.policy_loss import PolicyLoss
from rollick.training.publish import publish_weights
from rollick.training.trainer import Trainer

COLUMNS = ("reward/mean", "rollout/response_length/mean", "loss", "grad_norm", "mismatch/kl", "seconds/step")


def run(job: RlJob, resume: Resume = None) -> Path:
    """Train to `job.steps`, export the policy, and return the run directory, in whose `export/` the model stands.

    A resumed run makes the batches and ends with the weights of an uninterrupted one. Raises InterruptedRun after
    Ctrl-C (a checkpoint is written) and the errors of `rollick.errors` for what went wrong; metrics, events and
    samples up to then are in the run directory.
    """
    with ExitStack() as stack:
        session = stack.enter_context(RunSession(job, job.steps, COLUMNS, resume))
        pipeline = RlPipeline(job, session, stack)
        pipeline.start()
        while session.step < job.steps:
            groups = pipeline.next_groups()
            rows = scored_rows(groups)
            pipeline.score(rows)
            learning = pipeline.advantages(rows)
            pipeline.update(learning)
            pipeline.publish(version=session.step + 1)
            pipeline.end_step(groups, learning.advantages)
        pipeline.finish()
        return session.run.path


class RlPipeline:
    """The roles of a job and the stages of a step."""

    def __init__(self, job: RlJob, session: RunSession, stack: ExitStack):
        self.job, self.session = job, session
        self.tokenizer = load_tokenizer(job.model)
        self.end_ids = end_token_ids(job.model, self.tokenizer)
        limits = (self.tokenizer, job.rollout.max_prompt_tokens, job.rollout.over_long_prompts)
        domains = open_domains(job.environments, *limits)
        held_out = open_domains(job.evaluation.environments, *limits) if job.evaluation else []
        runtime = stack.enter_context(LocalRuntime())
        seed = derive_seed(job.seed, "trainer")
        self.trainer = Trainer(runtime, job.model, job.trainer, job.planned_updates, seed)
        self.reference = self._load_reference(runtime)
        max_length = longest_episode(job)
        device = select_platform().device_type
        self.engine = job.engine.build(EngineContext(job.model, self.tokenizer, self.end_ids, max_length, device))
        stack.callback(self.engine.close)
        self.grader = stack.enter_context(
            Grader(rewards_by_domain(domains, held_out), timeout=job.rollout.reward_timeout, retries=0)
        )
        self.rollouts = Rollouts(
            self.engine,
            self.grader,
            self.tokenizer,
            domains,
            job.rollout,
            job.algorithm.group_size,
            job.seed,
            max_length,
            record=lambda transition: session.run.events.write(transition.to_row()),
            interrupted=lambda: session.stop.stop_requested,
            progress=lambda now: session.console.doing(f"{now.finished}/{now.total} answers"),
        )
        stack.callback(self.rollouts.close)
        self._held_out = held_out
        self._reward_weights = {d.name: {r.label: r.weight for r in d.options.rewards} for d in domains}
        self.loss = PolicyLoss.from_settings(
            job.algorithm, temperature=job.rollout.temperature, max_new_tokens=job.rollout.max_new_tokens
        )
        self.batches = PolicyBatches(job.algorithm, job.rollout.max_new_tokens, self._reward_weights, job.seed)
        self._watch = self._open_watch()
        self._clock = StageClock()
        self._updates_per_step = job.planned_updates // job.steps

    def start(self) -> None:
        """Restore a checkpoint, give the engine the trainer's weights, and look where the policy stands."""
        if self.session.resumed:
            folder, meta = self.session.resumed
            self.trainer.load(folder)
            self.rollouts.restore(meta["rollouts"])
            self.batches.state.restore(meta["algorithm"])
        self.publish(version=self.session.step)
        if self.job.evaluation and self.job.evaluation.at_start and not self.session.resumed:
            self._evaluate(completed=0)
            self.session.metrics.end_step(0)
        self._clock.restart()

    def next_groups(self) -> list[Group]:
        """Complete groups of this step, sampled with the current weights."""
        step = self.session.step
        with self._clock.stage("rollout"):
            try:
                groups = self.rollouts.next_batch(step, version=step)
            except InterruptedRun:
                raise self.session.interrupt(self.trainer.save, self._meta()) from None
        metrics = rollout_metrics(groups, self._reward_weights)
        if self._watch is not None:
            metrics |= watch_metrics(groups)
            self._look_out(self._watch, metrics, groups)
        self.session.metrics.add(metrics)
        return groups

    def score(self, rows: ScoredRows) -> None:
        """Add the log-probs that the algorithm will need: the old policy's where it is updated more than once or
        compared with the engine, the reference's where there is a KL term."""
        batch, temperature = rows.batch, self.job.rollout.temperature
        if batch is None:
            return
        with self._clock.stage("score"):
            if self._updates_per_step > 1 or self.batches.needs_old_logprobs:
                batch.tokens["old_logprobs"] = self.trainer.logprobs(batch, temperature)[0]
            if self.reference is not None:
                batch.tokens["ref_logprobs"] = self.reference.logprobs(batch, temperature)[0]

    def advantages(self, rows: ScoredRows) -> PolicyBatch:
        """Compare the answers, and choose and weigh what is trained; once for the whole step."""
        learning = self.batches.make(rows, self.session.step)
        self.session.metrics.add(learning.metrics)
        return learning

    def update(self, learning: PolicyBatch) -> None:
        """`epochs_per_batch` passes over the rows, each in the planned number of updates."""
        batch = learning.batch
        if batch is None:
            return
        epochs = range(self.job.algorithm.epochs_per_batch)
        minibatches = [rows for epoch in epochs for rows in self._minibatches(batch, epoch)]
        with self._clock.stage("update"):
            for rows in minibatches:
                self.session.metrics.add(self.trainer.update(batch.select(rows), self.loss).metrics)
        self.session.metrics.add({"updates": len(minibatches)})

    def publish(self, version: int) -> None:
        dtype = getattr(torch, self.job.model.dtype)
        with self._clock.stage("publish"):
            self.session.metrics.add(publish_weights(self.trainer, self.engine, version, dtype))

    def end_step(self, groups: Sequence[Group], advantages: dict[str, float]) -> None:
        """Account for the batch, evaluate and checkpoint where due; raises InterruptedRun after Ctrl-C."""
        session, job, step = self.session, self.job, self.session.step + 1
        self.rollouts.consumed(session.step)
        if job.logging.sample_groups and step % job.logging.sample_every == 0:
            session.run.write_samples(step, sample_records(groups, advantages), job.logging.sample_groups)
        session.metrics.add(self.grader.new_stats())
        last = step == job.steps
        if job.evaluation and (last or (job.evaluation.every and step % job.evaluation.every == 0)):
            self._evaluate(completed=step)
        session.metrics.add(self._clock.metrics())
        session.end_step()
        if last or session.due(job.checkpoint.every):
            session.save(self.trainer.save, self._meta())
        if session.stop.stop_requested and not last:
            raise session.interrupt(self.trainer.save, self._meta())
        self._clock.restart()

    def finish(self) -> None:
        self.trainer.export(self.session.run.export)
        save_tokenizer(self.session.run.export, self.tokenizer, self.end_ids)
        self.session.console.note(f"the model is in {self.session.run.export}")

    def _evaluate(self, completed: int) -> None:
        """Ask every held-out task; on Ctrl-C the evaluation is given up and the step is not."""
        settings = self.job.evaluation
        if settings is None:
            return
        sampling = make_sampling(settings.sampling, settings.max_new_tokens or self.job.rollout.max_new_tokens)
        try:
            with self._clock.stage("evaluation"):
                groups = self.rollouts.evaluate(
                    completed, completed, self._held_out, sampling, settings.samples_per_prompt
                )
        except InterruptedRun:
            self.session.console.note(f"the evaluation after step {completed} was interrupted and left out")
            return
        metrics = evaluation_metrics(groups, settings.success_reward, settings.pass_at)
        self.session.metrics.add(metrics)
        shown = ", ".join(f"{name} {value:.3f}" for name, value in metrics.items() if name.endswith("/accuracy"))
        self.session.console.note(f"evaluation after step {completed}: {shown}")
        write_samples(self.session.run.evaluation, completed, sample_records(groups), len(groups))

    def _minibatches(self, batch: Batch, epoch: int) -> list[list[int]]:
        """Rows of each update, drawn without replacement, groups in random order and as whole as the sizes allow;
        as many updates as planned whatever the number of rows, so that the learning rate depends on the step alone."""
        groups = batch.rows["group"].numpy()
        seed = derive_seed(self.job.seed, "minibatches", self.session.step, epoch)
        places = np.random.default_rng(seed).permutation(groups.max() + 1)
        updates = self._updates_per_step // self.job.algorithm.epochs_per_batch
        by_group = np.argsort(places[groups], kind="stable")
        return [rows.tolist() for rows in np.array_split(by_group, updates) if len(rows)]

    def _open_watch(self) -> HackingWatch | None:
        """The watch for reward hacking, knowing the steps before a resumed one."""
        settings = self.job.logging.hacking_watch
        if settings is None:
            return None
        labels = Labels.of(reward for environment in self.job.environments for reward in environment.rewards)
        return HackingWatch(settings, labels, history=read_jsonl(self.session.run.metrics.path))

    def _look_out(self, watch: HackingWatch, metrics: dict[str, float], groups: Sequence[Group]) -> None:
        """Say which alarms go on, with samples to read: of those that are written, where any are."""
        session, logging = self.session, self.job.logging
        step = session.step + 1
        written = logging.sample_groups > 0 and step % logging.sample_every == 0
        shown = groups[: logging.sample_groups] if written else groups
        place = str(sample_path(session.run.samples, step)) if written else "the events of the run"
        for alarm, ids in watch.look(metrics, shown):
            session.console.note(alarm.sentence(step, ids, place))
            session.run.events.write({"step": session.step, "alarm": alarm.name, "samples": ids})
        metrics.update(watch.metrics)

    def _load_reference(self, runtime: LocalRuntime) -> Trainer | None:
        """The frozen model of the KL term, loaded only when there is one."""
        job = self.job
        if not job.algorithm.kl_coef:
            return None
        model = job.model.model_copy(update={"path": job.reference.path or job.model.path})
        return Trainer(runtime, model, job.trainer, job.planned_updates, role="reference", trainable=False)

    def _meta(self) -> dict[str, Any]:
        return {"rollouts": self.rollouts.state(), "algorithm": self.batches.state.state()}


def longest_episode(job: RlJob) -> int:
    """Tokens of the longest prompt and answer together, in training and evaluation."""
    evaluated = (job.evaluation.max_new_tokens or 0) if job.evaluation else 0
    return job.rollout.max_prompt_tokens + max(job.rollout.max_new_tokens, evaluated)
