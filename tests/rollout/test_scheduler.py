"""The scheduler as a state machine: nothing is lost, nothing counts twice, and the log tells all."""

import json
import subprocess
import sys

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from rollick.rollout.events import FINAL_STATES, Transition, event_log, replay
from rollick.rollout.scheduler import (
    AbortEpisodes,
    BatchConsumed,
    BatchWanted,
    DeliverBatch,
    EpisodeFailed,
    EpisodeGenerated,
    EpisodeScored,
    GradeEpisode,
    Scheduler,
    StartEpisode,
    Stop,
    StopRun,
)


def make_scheduler(max_attempts=2, max_failure_rate=1.0, seed=7, purpose="training"):
    log = []
    return Scheduler(seed, max_attempts, max_failure_rate, event_log(log.append), purpose), log


def starts(commands):
    return [command for command in commands if isinstance(command, StartEpisode)]


def finish(scheduler, start, now=1.0):
    scheduler.handle(EpisodeGenerated(start.id, start.attempt), now)
    return scheduler.handle(EpisodeScored(start.id, start.attempt), now)


def test_a_batch_is_delivered_when_its_last_episode_is_scored_and_not_before():
    """Case 53: members of two groups arrive interleaved; no baseline can be computed on half a group."""
    scheduler, _ = make_scheduler()
    episodes = starts(scheduler.handle(BatchWanted(3, 3, ("a", "b"), 2), 0.0))
    assert [(e.id, e.group_id, e.member, e.task) for e in episodes] == [
        ("s3/p0/m0", "s3/p0", 0, "a"),
        ("s3/p0/m1", "s3/p0", 1, "a"),
        ("s3/p1/m0", "s3/p1", 0, "b"),
        ("s3/p1/m1", "s3/p1", 1, "b"),
    ]
    for index in (2, 0, 3):
        assert finish(scheduler, episodes[index]) == []
    assert finish(scheduler, episodes[1]) == [DeliverBatch(3, ("s3/p0", "s3/p1"))]
    assert scheduler.counters["in_flight"] == 4
    assert scheduler.handle(BatchConsumed(3), 2.0) == []
    assert scheduler.counters | {} == {
        "started": 4,
        "consumed": 4,
        "filtered": 0,
        "failed": 0,
        "in_flight": 0,
        "retries": 0,
        "ignored_results": 0,
    }


def test_every_member_has_its_own_seed_and_the_run_seed_decides_them():
    """Case 94: n answers to one prompt are n draws; the same run seed repeats them."""

    def seeds(run_seed, step=0, purpose="training"):
        scheduler, _ = make_scheduler(seed=run_seed, purpose=purpose)
        return [e.seed for e in starts(scheduler.handle(BatchWanted(step, 0, ("a", "a"), 4), 0.0))]

    assert len({*seeds(1), *seeds(2), *seeds(1, step=1), *seeds(1, purpose="evaluation")}) == 4 * 8
    assert seeds(1) == seeds(1)
    assert seeds(1, step=0, purpose="evaluation") == seeds(1, step=9, purpose="evaluation")


def test_a_failed_generation_is_generated_again_with_the_same_seed():
    scheduler, _ = make_scheduler(max_attempts=2)
    [first] = starts(scheduler.handle(BatchWanted(0, 0, ("a",), 1), 0.0))
    [again] = scheduler.handle(EpisodeFailed(first.id, 1, "engine died"), 1.0)
    assert isinstance(again, StartEpisode) and (again.attempt, again.seed) == (2, first.seed)
    assert scheduler.handle(EpisodeFailed(first.id, 2, "engine died"), 2.0) == [DeliverBatch(0, ("s0/p0",))]
    assert scheduler.counters["failed"] == 1 and scheduler.counters["retries"] == 1


def test_a_failed_grading_is_graded_again_without_a_new_answer():
    scheduler, _ = make_scheduler(max_attempts=3)
    [start] = starts(scheduler.handle(BatchWanted(0, 0, ("a",), 1), 0.0))
    assert scheduler.handle(EpisodeGenerated(start.id, 1), 1.0) == [GradeEpisode(start.id, 1)]
    assert scheduler.handle(EpisodeFailed(start.id, 1, "grader died"), 2.0) == [GradeEpisode(start.id, 2)]
    assert scheduler.handle(EpisodeScored(start.id, 2), 3.0) == [DeliverBatch(0, ("s0/p0",))]


def test_a_failure_that_cannot_be_retried_is_final_at_once():
    scheduler, _ = make_scheduler(max_attempts=5)
    [start] = starts(scheduler.handle(BatchWanted(0, 0, ("a",), 1), 0.0))
    assert scheduler.handle(EpisodeFailed(start.id, 1, "no such tool", retry=False), 1.0) == [
        DeliverBatch(0, ("s0/p0",))
    ]


def test_one_result_per_episode_whatever_comes_late_or_twice():
    """Case 132: the first attempt reports after the second was given out, and the second reports twice."""
    scheduler, log = make_scheduler()
    [first] = starts(scheduler.handle(BatchWanted(0, 0, ("a",), 1), 0.0))
    scheduler.handle(EpisodeFailed(first.id, 1, "timeout"), 1.0)
    assert scheduler.handle(EpisodeGenerated(first.id, 1), 2.0) == []
    assert scheduler.handle(EpisodeGenerated(first.id, 2), 3.0) == [GradeEpisode(first.id, 2)]
    assert scheduler.handle(EpisodeGenerated(first.id, 2), 3.5) == []
    assert scheduler.handle(EpisodeScored(first.id, 2), 4.0) == [DeliverBatch(0, ("s0/p0",))]
    assert scheduler.handle(EpisodeScored(first.id, 2), 4.5) == []
    scheduler.handle(BatchConsumed(0), 5.0)
    assert scheduler.handle(EpisodeFailed(first.id, 1, "late"), 6.0) == []
    assert scheduler.counters["ignored_results"] == 4 and scheduler.counters["consumed"] == 1
    assert replay(log).counters() == scheduler.counters


def test_too_many_failures_stop_the_run_with_the_reasons():
    scheduler, _ = make_scheduler(max_attempts=1, max_failure_rate=0.25)
    episodes = starts(scheduler.handle(BatchWanted(2, 2, ("a", "b"), 4), 0.0))
    assert scheduler.handle(EpisodeFailed(episodes[0].id, 1, "math: timeout after 5 s"), 1.0) == []
    assert scheduler.handle(EpisodeFailed(episodes[1].id, 1, "math: timeout after 5 s"), 1.0) == []
    abort, stop = scheduler.handle(EpisodeFailed(episodes[2].id, 1, "sandbox: disk full"), 2.0)
    assert abort == AbortEpisodes(tuple(e.id for e in episodes[3:]))
    assert isinstance(stop, StopRun)
    assert stop.reason == (
        "training batch of step 2: 3 of 8 episodes failed (38%, rollout.max_failure_rate is 25%): "
        "2 × math: timeout after 5 s; 1 × sandbox: disk full"
    )


def test_abstained_episodes_are_filtered_not_consumed():
    scheduler, _ = make_scheduler()
    first, second = starts(scheduler.handle(BatchWanted(0, 0, ("a",), 2), 0.0))
    finish(scheduler, first)
    scheduler.handle(EpisodeGenerated(second.id, 1), 1.0)
    scheduler.handle(EpisodeScored(second.id, 1, abstained=True), 1.0)
    scheduler.handle(BatchConsumed(0), 2.0)
    assert (scheduler.counters["consumed"], scheduler.counters["filtered"]) == (1, 1)


def test_a_stopped_batch_is_aborted_and_made_again_with_the_same_ids_and_seeds():
    """Case 121: a run interrupted inside a batch resumes at the boundary before it."""
    scheduler, _ = make_scheduler()
    boundary = json.loads(json.dumps(scheduler.state()))
    wanted = BatchWanted(4, 4, ("a", "b"), 2)
    before = starts(scheduler.handle(wanted, 0.0))
    finish(scheduler, before[0])
    assert scheduler.handle(Stop("interrupted"), 1.0) == [AbortEpisodes(tuple(e.id for e in before))]
    assert scheduler.handle(EpisodeGenerated(before[1].id, 1), 2.0) == []
    assert scheduler.counters["in_flight"] == 4

    resumed, log = make_scheduler()
    resumed.restore(boundary)
    after = starts(resumed.handle(wanted, 2.0))
    assert after == before
    assert [finish(resumed, e) for e in after][-1] == [DeliverBatch(4, ("s4/p0", "s4/p1"))]
    assert replay(log).counters() == resumed.counters


def test_a_state_lies_between_batches():
    scheduler, _ = make_scheduler()
    [start] = starts(scheduler.handle(BatchWanted(0, 0, ("a",), 1), 0.0))
    with pytest.raises(ValueError, match="step 0 is open"):
        scheduler.state()
    finish(scheduler, start)
    scheduler.handle(BatchConsumed(0), 2.0)
    other, _ = make_scheduler()
    other.restore(json.loads(json.dumps(scheduler.state())))
    assert other.counters == scheduler.counters and other.counters["consumed"] == 1


def test_consumed_episodes_are_forgotten():
    scheduler, _ = make_scheduler()
    for step in range(3):
        [start] = starts(scheduler.handle(BatchWanted(step, step, ("a",), 1), 0.0))
        finish(scheduler, start)
        scheduler.handle(BatchConsumed(step), 2.0)
    assert not scheduler._episodes and scheduler.counters["consumed"] == 3


def test_the_scheduler_needs_neither_torch_nor_ray():
    code = "import sys, rollick.rollout.scheduler as s; print({'torch', 'ray', 'numpy', 'asyncio'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "set()"


def test_wrong_orders_of_the_driver_are_refused():
    scheduler, _ = make_scheduler()
    with pytest.raises(ValueError, match="at least one task"):
        scheduler.handle(BatchWanted(0, 0, (), 1), 0.0)
    scheduler.handle(BatchWanted(0, 0, ("a",), 1), 0.0)
    with pytest.raises(ValueError, match="still open"):
        scheduler.handle(BatchWanted(1, 1, ("a",), 1), 0.0)
    with pytest.raises(ValueError, match="no delivered batch"):
        scheduler.handle(BatchConsumed(0), 0.0)


class SchedulerWorld(RuleBasedStateMachine):
    """A driver that answers in any order, fails, repeats itself, stops and restarts. What it knows by itself
    (`running`, `grading`, results it gave) is compared with what the scheduler counts."""

    def __init__(self):
        super().__init__()
        self.log = []
        self.scheduler = Scheduler(1, 2, 0.6, event_log(self.log.append))
        self.step = 0
        self.now = 0.0
        self.running = {}
        self.grading = {}
        self.done = {}
        self.created = 0
        self.delivered = None
        self.wanted = None
        self.boundary = None
        self.past = []

    def carry_out(self, commands):
        for command in commands:
            match command:
                case StartEpisode():
                    assert command.id not in self.running and command.id not in self.grading
                    self.running[command.id] = command.attempt
                case GradeEpisode():
                    assert command.id not in self.grading
                    self.grading[command.id] = command.attempt
                case AbortEpisodes():
                    for id in command.ids:
                        self.running.pop(id, None)
                        self.grading.pop(id, None)
                        self.done.pop(id, None)
                case DeliverBatch():
                    assert self.delivered is None and not self.running and not self.grading
                    members = {f"{g}/m{m}" for g in command.group_ids for m in range(self.wanted.group_size)}
                    assert members == set(self.done)
                    self.delivered = command
                case StopRun():
                    failed = sum(result == "failed" for result in self.done.values())
                    assert failed > 0 and not self.running and not self.grading

    def send(self, event):
        self.now += 1.0
        self.carry_out(self.scheduler.handle(event, self.now))

    @precondition(lambda self: self.wanted is None)
    @rule(prompts=st.integers(1, 3), group_size=st.integers(1, 3))
    def want(self, prompts, group_size):
        self.boundary = json.loads(json.dumps(self.scheduler.state()))
        self.wanted = BatchWanted(self.step, self.step, tuple(f"t{i}" for i in range(prompts)), group_size)
        self.created += prompts * group_size
        self.send(self.wanted)

    @precondition(lambda self: self.running)
    @rule(data=st.data())
    def generate(self, data):
        id = data.draw(st.sampled_from(sorted(self.running)))
        self.past.append(EpisodeGenerated(id, self.running[id]))
        self.send(EpisodeGenerated(id, self.running.pop(id)))

    @precondition(lambda self: self.grading)
    @rule(data=st.data(), abstained=st.booleans())
    def score(self, data, abstained):
        id = data.draw(st.sampled_from(sorted(self.grading)))
        self.done[id] = "filtered" if abstained else "scored"
        self.past.append(EpisodeScored(id, self.grading[id]))
        self.send(EpisodeScored(id, self.grading.pop(id), abstained))

    @precondition(lambda self: self.running or self.grading)
    @rule(data=st.data(), retry=st.booleans())
    def fail(self, data, retry):
        id = data.draw(st.sampled_from(sorted({**self.running, **self.grading})))
        attempt = self.running.pop(id, None) or self.grading.pop(id)
        self.past.append(EpisodeFailed(id, attempt, "boom", retry))
        self.done[id] = "failed"
        self.send(EpisodeFailed(id, attempt, "boom", retry))
        if id in self.running or id in self.grading:
            del self.done[id]

    @precondition(lambda self: self.past)
    @rule(data=st.data())
    def repeat_an_old_result(self, data):
        before = self.scheduler.counters
        self.send(data.draw(st.sampled_from(self.past)))
        assert self.scheduler.counters == before | {"ignored_results": before["ignored_results"] + 1}

    @precondition(lambda self: self.delivered)
    @rule()
    def consume(self):
        consumed = self.scheduler.counters["consumed"]
        self.send(BatchConsumed(self.step))
        assert self.scheduler.counters["consumed"] - consumed == list(self.done.values()).count("scored")
        self.delivered, self.wanted, self.step = None, None, self.step + 1
        self.done.clear()

    @precondition(lambda self: self.wanted is None)
    @rule()
    def resume(self):
        """kill -9 between two batches, then a new process from the saved state."""
        state = json.loads(json.dumps(self.scheduler.state()))
        self.scheduler = Scheduler(1, 2, 0.6, event_log(self.log.append))
        self.scheduler.restore(state)

    @precondition(lambda self: self.wanted)
    @rule()
    def interrupt_and_resume(self):
        """Ctrl-C inside a batch: the new process starts at the boundary before it, with the log cut there."""
        self.send(Stop("interrupted"))
        assert self.delivered or not (self.running or self.grading)
        self.scheduler = Scheduler(1, 2, 0.6, event_log(self.log.append))
        self.scheduler.restore(self.boundary)
        self.log[:] = [row for row in self.log if row["step"] < self.step]
        for results in (self.running, self.grading, self.done):
            results.clear()
        self.created -= len(self.wanted.tasks) * self.wanted.group_size
        self.delivered, self.wanted = None, None
        self.past = []

    @invariant()
    def counters_hold_and_the_log_rebuilds_them(self):
        counters = self.scheduler.counters
        assert counters["started"] == self.created
        assert counters["started"] == sum(counters[name] for name in (*FINAL_STATES, "in_flight"))
        assert replay(self.log).counters() == counters

    @invariant()
    def the_log_is_a_life_of_each_episode(self):
        states = {}
        for row in self.log:
            transition = Transition.from_row(row)
            if transition.source != transition.target:
                assert transition.source in (states.get(transition.episode), None)
                states[transition.episode] = transition.target


SchedulerWorld.TestCase.settings = settings(max_examples=100, stateful_step_count=60, deadline=None)
TestSchedulerWorld = SchedulerWorld.TestCase
