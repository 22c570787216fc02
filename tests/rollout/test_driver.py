"""Rollouts from tasks to graded groups, with a scripted engine."""

import json
import logging
import random
import time

import pytest

from rollick.data.records import Completion
from rollick.engines.base import Sampling
from rollick.environments.base import Observation
from rollick.errors import InterruptedRun, RewardError, WorkerError
from rollick.models.chat import prompt_ids, render
from rollick.rewards.base import Abstain, Failed, Score
from rollick.rollout.domains import open_domains
from rollick.rollout.events import replay
from tests.models.tiny import CHATML, tiny_tokenizer
from tests.rollout.fakes import (
    END,
    TOKENIZER,
    Breaking,
    Counting,
    FakeOptions,
    Hanging,
    ScriptedEngine,
    ThreadedOptions,
    completion,
    ids_of,
    make_rollouts,
)

MATCH = [{"kind": "match"}]


class FakeGrader:
    """Judges by `judge(episode)`, in an order of its own."""

    def __init__(self, judge, domains=("sums",)):
        self.rewards = {domain: FakeOptions(rewards=MATCH).rewards for domain in domains}
        self.judge = judge
        self.queue = []
        self.submitted = []
        self.polls_while_waiting = 0

    def submit(self, episode):
        self.submitted.append(episode.id)
        self.queue.append(episode)

    def poll(self, timeout=None):
        self.polls_while_waiting += not self.queue
        verdicts = [(e.id, {"match": self.judge(e)}) for e in self.queue]
        self.queue = []
        return [(id, v) for id, v in verdicts if v["match"] is not None]

    def cancel(self, ids):
        self.queue = [e for e in self.queue if e.id not in ids]


def rewards_of(groups):
    return [[episode.reward for episode in group.episodes] for group in groups]


def flat(groups):
    return [episode for group in groups for episode in group.episodes]


def test_a_batch_is_whole_groups_of_graded_episodes():
    engine = ScriptedEngine(lambda request: "4" if request.seed % 2 else "5")
    log = []
    rollouts = make_rollouts(engine, [FakeOptions(rewards=MATCH)], log=log, group_size=4)
    groups = rollouts.next_batch(0, 0)
    rollouts.consumed(0)
    assert [group.id for group in groups] == ["s0/p0", "s0/p1", "s0/p2"]
    for episode in flat(groups):
        right = episode.response_text == episode.task.ground_truth
        assert (episode.status, episode.reward, episode.reward_parts) == ("finished", right, {"match": float(right)})
        [turn] = episode.turns
        assert turn.prompt_ids == prompt_ids(TOKENIZER, episode.task.prompt)
        assert turn.completion.token_ids == [*ids_of(episode.response_text), END]
    assert rollouts.counters["consumed"] == 12 and rollouts.counters["in_flight"] == 0
    assert replay(log).counters() == rollouts.counters


def test_groups_do_not_depend_on_the_order_in_which_answers_arrive():
    """Case 53: answers of several prompts come interleaved, one by one."""

    def run(order):
        engine = ScriptedEngine(lambda request: str(request.seed % 7))
        engine.order = order
        return make_rollouts(engine, [FakeOptions(rewards=MATCH)], group_size=4).next_batch(0, 0)

    shuffled = random.Random(0)
    one_by_one = lambda ids: shuffled.sample(ids, min(1, len(ids)))
    assert run(one_by_one) == run(lambda ids: ids)


def test_members_share_the_prompt_and_differ_in_their_seed():
    """Case 94, and the prompt of a group is computed once."""
    engine = ScriptedEngine()
    make_rollouts(engine, group_size=4).next_batch(0, 0)
    assert len({request.seed for request in engine.requests}) == 12
    by_group = {request.prefix_key: set() for request in engine.requests}
    for request in engine.requests:
        by_group[request.prefix_key].add(request.prompt_ids)
    assert list(map(len, by_group.values())) == [1, 1, 1]


def test_training_and_evaluation_sampling_reach_the_engine_as_written():
    """Case 95: the caller's temperature is the one that is used; evaluation's own applies to evaluation only."""
    engine = ScriptedEngine()
    rollouts = make_rollouts(engine, temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, stop=("\n",), max_new_tokens=9)
    domains = open_domains([FakeOptions()], TOKENIZER, 100, "refuse")
    rollouts.evaluate(0, 0, domains, Sampling(temperature=0.0, max_new_tokens=3), 1)
    assert {request.sampling for request in engine.requests} == {Sampling(temperature=0.0, max_new_tokens=3)}
    engine.requests.clear()
    rollouts.next_batch(0, 0)
    assert {request.sampling for request in engine.requests} == {
        Sampling(temperature=0.7, top_p=0.9, top_k=5, min_p=0.1, stop=("\n",), max_new_tokens=9)
    }


def test_an_answer_cut_by_its_length_is_truncated_and_still_graded():
    """Cases 4 and 92: the flag comes from the engine's finish reason, whatever the environment returns."""
    engine = ScriptedEngine(lambda request: completion("12", reason="length"))
    [episode] = flat(make_rollouts(engine, [FakeOptions(rewards=MATCH)], None, 1, prompts_per_step=1).next_batch(0, 0))
    assert episode.truncated and episode.reason == "length" and episode.reward == 0.0
    [sample] = episode.samples()
    assert sample.truncated and sample.loss_mask.sum() == len(ids_of("12"))


def test_several_end_tokens_finish_an_answer_and_are_trained():
    """Cases 92 and 93: answers 5 6 7 and 5 6 2 end by either end token, 5 6 9 9 is cut."""
    answers = iter([([5, 6, 7], "stop", 7), ([5, 6, 2], "stop", 2), ([5, 6, 9, 9], "length", None)])

    def reply(request):
        ids, reason, end = next(answers)
        return Completion(ids, [0.0] * len(ids), [0.0] * len(ids), [0] * len(ids), reason, end)

    groups = make_rollouts(ScriptedEngine(reply), group_size=3, prompts_per_step=1).next_batch(0, 0)
    episodes = flat(groups)
    assert [episode.response_length for episode in episodes] == [3, 3, 4]
    assert [episode.truncated for episode in episodes] == [False, False, True]
    for episode, last in zip(episodes, (7, 2, 9)):
        [sample] = episode.samples()
        assert sample.token_ids[-1] == last and sample.loss_mask[-1]


def test_a_grader_that_fails_once_is_asked_again_about_the_same_answer():
    engine = ScriptedEngine()
    tries = {}

    def judge(episode):
        tries[episode.id] = tries.get(episode.id, 0) + 1
        return Failed("worker died") if tries[episode.id] == 1 else Score(0.5)

    rollouts = make_rollouts(engine, grader=FakeGrader(judge))
    assert rewards_of(rollouts.next_batch(0, 0)) == [[0.5, 0.5]] * 3
    assert len(engine.requests) == 6 and rollouts.counters["retries"] == 6


def test_failed_episodes_stay_in_their_group_without_a_reward():
    judge = lambda episode: Failed("timeout after 5 s") if episode.member == 1 else Score(1.0)
    rollouts = make_rollouts(ScriptedEngine(), grader=FakeGrader(judge), max_failure_rate=0.5)
    groups = rollouts.next_batch(0, 0)
    rollouts.consumed(0)
    for group in groups:
        assert [episode.status for episode in group.episodes] == ["finished", "failed"]
        assert group.episodes[1].reason == "timeout after 5 s" and group.episodes[1].reward is None
        assert group.scored == group.episodes[:1]
    assert (rollouts.counters["consumed"], rollouts.counters["failed"]) == (3, 3)


def test_too_many_failures_stop_the_run_and_say_why():
    judge = lambda episode: Failed("math: timeout after 5 s")
    rollouts = make_rollouts(ScriptedEngine(), grader=FakeGrader(judge), max_failure_rate=0.25)
    with pytest.raises(RewardError, match=r"2 of 6 episodes failed \(33%.* 2 × math: timeout after 5 s") as stopped:
        rollouts.next_batch(0, 0)
    _, *shown = str(stopped.value).splitlines()
    assert [line.split(" ")[2:5] for line in shown] == [
        ["s0/p0/m0", "(task", "sums/0):"],
        ["s0/p0/m1", "(task", "sums/0):"],
    ]
    assert all("math: timeout after 5 s; answer: '" in line for line in shown)


def test_episodes_on_which_every_grader_abstains_have_no_reward():
    judge = lambda episode: Abstain("no ground truth") if episode.member else Score(1.0)
    rollouts = make_rollouts(ScriptedEngine(), grader=FakeGrader(judge))
    groups = rollouts.next_batch(0, 0)
    rollouts.consumed(0)
    assert rewards_of(groups) == [[1.0, None]] * 3
    assert (rollouts.counters["consumed"], rollouts.counters["filtered"]) == (3, 3)


def test_grading_overlaps_with_generation():
    """The first answers are graded while the engine still has the others."""
    engine = ScriptedEngine()
    engine.order = lambda ids: ids[:1]
    graded_early = []
    grader = FakeGrader(lambda episode: graded_early.append(bool(engine.waiting)) or Score(1.0))
    make_rollouts(engine, grader=grader).next_batch(0, 0)
    assert graded_early == [True] * 5 + [False]


def test_an_environment_that_raises_is_a_failure_with_its_place():
    rollouts = make_rollouts(ScriptedEngine(), [FakeOptions(make=Breaking)], max_failure_rate=1.0)
    episodes = flat(rollouts.next_batch(0, 0))
    assert {episode.status for episode in episodes} == {"failed"}
    assert episodes[0].reason.startswith("environment raised OSError: connection lost (fakes.py:")
    assert rollouts.counters["retries"] == 6


def test_an_environment_that_pays_nan_is_a_failure():
    class Nan(Counting):
        def step(self, action):
            return super().step(action).__class__(Observation([]), float("nan"), True, False)

    rollouts = make_rollouts(ScriptedEngine(), [FakeOptions(make=Nan)], max_failure_rate=1.0)
    assert {e.reason for e in flat(rollouts.next_batch(0, 0))} == {"the environment paid nan; rewards must be finite"}


def test_a_hanging_environment_is_named_and_becomes_a_failure(caplog):
    """Case 98: an environment sleeps for ever in its third step. A line says what is waited for; at the limit the
    episode fails and the step ends."""
    rollouts = make_rollouts(
        ScriptedEngine(lambda request: request.id[-1]),
        [ThreadedOptions(make=Hanging)],
        group_size=1,
        prompts_per_step=1,
        max_attempts=1,
        max_failure_rate=1.0,
        stall_warning=0.2,
        episode_timeout=0.6,
    )
    started = time.monotonic()
    with caplog.at_level(logging.WARNING):
        [episode] = flat(rollouts.next_batch(0, 0))
    Hanging.released.set()
    assert time.monotonic() - started < 5
    assert "waiting for 1 of 1 episodes: s0/p0/m0 (environment, 0 s)" in caplog.text
    assert (episode.status, episode.reward) == ("failed", None)
    assert episode.reason == "no result after 0.6 s (waiting for environment)"
    assert len(episode.turns) == 3


def test_a_grader_that_never_answers_becomes_a_failure(caplog):
    """Case 98, at the grader."""
    rollouts = make_rollouts(
        ScriptedEngine(),
        grader=FakeGrader(lambda episode: None),
        max_attempts=1,
        max_failure_rate=1.0,
        stall_warning=0.1,
        episode_timeout=0.3,
    )
    with caplog.at_level(logging.WARNING):
        episodes = flat(rollouts.next_batch(0, 0))
    assert "(grading, 0 s)" in caplog.text
    assert {episode.reason for episode in episodes} == {"no result after 0.3 s (waiting for grading)"}


def test_an_episode_that_failed_for_good_is_not_waited_for(caplog):
    judge = lambda episode: None if episode.member else Failed("broken")
    limits = {"max_attempts": 1, "max_failure_rate": 1.0, "stall_warning": 0.1, "episode_timeout": 0.3}
    rollouts = make_rollouts(ScriptedEngine(), grader=FakeGrader(judge), prompts_per_step=1, **limits)
    with caplog.at_level(logging.WARNING):
        rollouts.next_batch(0, 0)
    assert "waiting for 1 of 2 episodes: s0/p0/m1 (grading" in caplog.text
    assert rollouts.counters["ignored_results"] == 0


def test_a_request_the_engine_never_answers_is_aborted_and_tried_again():
    engine = ScriptedEngine()
    engine.order = lambda ids: [id for id in ids if id != "s0/p0/m0@1.0"]
    rollouts = make_rollouts(engine, episode_timeout=0.6)
    episodes = flat(rollouts.next_batch(0, 0))
    assert engine.aborted == ["s0/p0/m0@1.0"] and not engine.waiting
    assert [episode.status for episode in episodes] == ["finished"] * 6
    assert rollouts.counters["retries"] == 1


def test_turns_are_appended_to_the_ids_that_were_sampled():
    """Case 126: incremental ids equal the full rendering; separators and observations carry mask 0."""
    engine = ScriptedEngine(lambda request: request.id[-1])
    [episode] = flat(make_rollouts(engine, [FakeOptions(make=Counting)], None, 1, prompts_per_step=1).next_batch(0, 0))
    assert [turn.response_text for turn in episode.turns] == ["0", "1", "2"]
    user, said = (lambda text: {"role": "user", "content": text}), (lambda t: {"role": "assistant", "content": t})
    history = [user("count"), said("0"), user("next"), said("1"), user("next"), said("2")]
    whole = ids_of(render(TOKENIZER, history).removesuffix("\n"))
    [sample] = episode.samples()
    assert sample.token_ids.tolist() == whole
    sampled = [TOKENIZER.decode(sample.token_ids[start:end].tolist()) for start, end in sample.segments]
    assert len({request.seed for request in engine.requests}) == 3
    assert sampled == ["0<|im_end|>", "1<|im_end|>", "2<|im_end|>"]
    assert sample.loss_mask.sum() == 6
    assert episode.turns[0].observation == [user("next")] and episode.metrics["turns"] == 3


def test_history_that_the_template_would_rewrite_is_kept_as_it_was_sampled():
    """Case 127: a template that drops earlier reasoning; the row holds the context that was seen at sampling."""
    dropping = CHATML.replace("message['content'] +", "message['content'].split('</think>')[-1] +")
    assert dropping != CHATML
    engine = ScriptedEngine(lambda request: f"<think>hm</think>{request.id[-1]}")
    rollouts = make_rollouts(
        engine,
        [FakeOptions(make=Counting)],
        None,
        1,
        prompts_per_step=1,
        tokenizer=tiny_tokenizer(chat_template=dropping),
    )
    [episode] = flat(rollouts.next_batch(0, 0))
    [sample] = episode.samples()
    assert TOKENIZER.decode(sample.token_ids).count("<think>hm</think>") == 3
    assert engine.requests[2].prompt_ids == tuple(sample.token_ids[: len(engine.requests[2].prompt_ids)])


def test_an_answer_ended_by_a_stop_string_gets_its_end_token_from_the_template():
    said = lambda request: Completion(
        ids_of("7\n"), *[[0.0] * len(ids_of("7\n"))] * 2, [0] * len(ids_of("7\n")), "stop", "\n"
    )
    [episode] = flat(
        make_rollouts(ScriptedEngine(said), [FakeOptions(make=Counting)], None, 1, prompts_per_step=1).next_batch(0, 0)
    )
    first, second = episode.turns[:2]
    added = second.prompt_ids[len(first.prompt_ids) + len(first.completion.token_ids) :]
    assert TOKENIZER.decode(added) == "<|im_end|>\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n"


def test_turn_rewards_of_the_environment_add_up_with_the_graders():
    engine = ScriptedEngine(lambda request: str(int(request.id[-1]) + 1))
    grader = FakeGrader(lambda episode: Score(0.25))
    rollouts = make_rollouts(engine, [FakeOptions(make=Counting)], grader, 1, prompts_per_step=1)
    [episode] = flat(rollouts.next_batch(0, 0))
    assert [turn.reward for turn in episode.turns] == [1.0, 1.0, 1.0]
    assert episode.reward == 3.25 and episode.reward_parts == {"match": 0.25}


@pytest.mark.parametrize(
    ("max_length", "budgets"), [(65, [16, 16, 16]), (56, [16, 16, 7]), (50, [16, 16, 1]), (49, [16, 16])]
)
def test_the_token_budget_is_what_the_context_leaves(max_length, budgets):
    """Case 130: never more than is left, never below 1; without room the episode ends with reason `context` and
    keeps what it has earned."""
    engine = ScriptedEngine(lambda request: str(int(request.id[-1]) + 1))
    rollouts = make_rollouts(engine, [FakeOptions(make=Counting)], None, 1, prompts_per_step=1, max_length=max_length)
    [episode] = flat(rollouts.next_batch(0, 0))
    assert [request.sampling.max_new_tokens for request in engine.requests] == budgets
    whole = len(budgets) == 3
    assert (episode.status, episode.reason) == (("finished", "") if whole else ("truncated", "context"))
    assert episode.reward == float(len(budgets))


def test_a_cut_move_is_not_judged():
    """Case 130: a length cut is not shown to the environment as a wrong move."""
    engine = ScriptedEngine(lambda request: completion("1", reason="length"))
    [episode] = flat(make_rollouts(engine, [FakeOptions(make=Breaking)], None, 1, prompts_per_step=1).next_batch(0, 0))
    assert (episode.status, episode.reason) == ("truncated", "length")


def test_weights_of_another_version_are_refused():
    with pytest.raises(WorkerError, match="wants answers of weights 3, but the engine serves version 0"):
        make_rollouts(ScriptedEngine()).next_batch(3, 3)
    stale = ScriptedEngine(lambda request: completion("7", version=2), version=3)
    stale.order = lambda ids: ids[:1]
    with pytest.raises(WorkerError, match=r"answered with weights \[2\], but step 3 wants version 3"):
        make_rollouts(stale).next_batch(3, 3)
    assert len(stale.aborted) == 5 and not stale.waiting  # nothing may answer into a later batch


def test_ctrl_c_aborts_what_is_in_flight_and_the_resumed_run_makes_the_same_batch():
    """Cases 119 and 121: no task is skipped or repeated by a resume."""

    def run(rollouts, steps):
        batches = []
        for step in steps:
            batches.append(rollouts.next_batch(step, 0))
            rollouts.consumed(step)
        return batches

    reply = lambda request: str(request.seed % 9)
    whole = run(make_rollouts(ScriptedEngine(reply)), range(4))

    engine, asked = ScriptedEngine(reply), []
    interrupted = make_rollouts(engine, interrupted=lambda: len(asked) > 0)
    first = run(interrupted, range(2))
    state = json.loads(json.dumps(interrupted.state()))
    asked.append(True)
    engine.order = lambda ids: ids[:1]
    with pytest.raises(InterruptedRun, match="interrupted in step 2 with 0 of 6 episodes done"):
        interrupted.next_batch(2, 0)
    assert not engine.waiting and interrupted.state() == state

    resumed_engine = ScriptedEngine(reply)
    resumed = make_rollouts(resumed_engine)
    resumed.restore(state)
    assert first + run(resumed, range(2, 4)) == whole
    assert len(resumed_engine.requests) == 12  # case 106: nothing is generated again for the steps before
    assert resumed.counters["started"] == 24


def test_a_batch_that_was_delivered_but_not_trained_on_is_made_again():
    rollouts = make_rollouts(ScriptedEngine())
    before = rollouts.state()
    tasks = [group.task.id for group in rollouts.next_batch(0, 0)]
    assert rollouts.state() == before
    with pytest.raises(ValueError, match="still open"):
        rollouts.next_batch(1, 0)
    again = make_rollouts(ScriptedEngine())
    again.restore(before)
    assert [group.task.id for group in again.next_batch(0, 0)] == tasks


def test_evaluation_answers_every_task_once_and_moves_nothing_of_the_training():
    """Case 143: sets smaller or larger than a batch are evaluated whole. Case 94: the same draws every time."""
    log = []
    rollouts = make_rollouts(ScriptedEngine(lambda request: str(request.seed)), log=log)
    before = rollouts.state()
    domains = open_domains([FakeOptions()], TOKENIZER, 100, "refuse")
    one = rollouts.evaluate(0, 0, domains, Sampling(), 2)
    other = rollouts.evaluate(5, 0, domains, Sampling(), 2)
    assert [group.task.id for group in one] == [f"sums/{i}" for i in range(6)]
    assert [e.response_text for e in flat(one)] == [e.response_text for e in flat(other)]
    assert rollouts.state() == before and log == []
    training = {episode.seed for episode in flat(rollouts.next_batch(0, 0))}
    assert not training & {episode.seed for episode in flat(one)}


def test_domains_are_mixed_by_weight_in_every_batch():
    environments = [FakeOptions(name="a", weight=2.0), FakeOptions(name="b")]
    rollouts = make_rollouts(ScriptedEngine(), environments, prompts_per_step=3)
    for step in range(4):
        names = [group.task.domain for group in rollouts.next_batch(step, 0)]
        rollouts.consumed(step)
        assert sorted(names) == ["a", "a", "b"]


def test_progress_is_told_while_it_works():
    seen = []
    engine = ScriptedEngine()
    engine.order = lambda ids: ids[:2]
    make_rollouts(engine, progress=seen.append).next_batch(0, 0)
    assert [p.finished for p in seen] == sorted(p.finished for p in seen)
    assert (seen[-1].finished, seen[-1].total, seen[-1].sampled_tokens) == (6, 6, 12)
