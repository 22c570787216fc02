from dataclasses import replace

import numpy as np

from rollick.data.records import Completion, Turn
from rollick.rewards.base import Abstain, Failed, RewardOptions, Score
from rollick.rewards.cache import VerdictCache, content_key
from rollick.rewards.function import Options as FunctionOptions
from rollick.rewards.grading import Grader
from rollick.rewards.match import Options as MatchOptions
from tests.rewards.episodes import episode
from tests.rewards.test_grading import collect


class Counting:
    """Fails at the first answer 'fail', and counts."""

    name = "counting"

    def __init__(self):
        self.calls = 0

    def score(self, episode):
        self.calls += 1
        return Failed("no") if episode.response_text == "fail" else Score(float(self.calls))


REWARD = Counting()


class CountingOptions(RewardOptions):
    kind: str = "counting"

    def build(self):
        return REWARD


def test_equal_content_is_graded_once_and_hits_are_counted():
    REWARD.calls = 0
    with Grader({"d": [CountingOptions(cache=True)]}) as grader:
        for i, answer in enumerate(["a", "a", "b", "a"]):
            grader.submit(episode(answer, "t", id=str(i)))
        assert [verdicts["counting"].value for _, verdicts in grader.poll()] == [1, 1, 2, 1]
        stats = grader.stats()
    assert stats["reward/counting/cache_hits"] == 2 and stats["reward/counting/graded"] == 4
    assert grader.new_stats()["reward/counting/cache_hits"] == 2 and grader.new_stats()["reward/counting/graded"] == 0


def test_without_the_option_everything_is_graded():
    REWARD.calls = 0
    with Grader({"d": [CountingOptions()]}) as grader:
        for i in range(3):
            grader.submit(episode("a", "t", id=str(i)))
    assert REWARD.calls == 3 and "reward/counting/cache_hits" not in grader.stats()


def test_failures_are_not_remembered():
    REWARD.calls = 0
    with Grader({"d": [CountingOptions(cache=True)]}) as grader:
        for i in range(2):
            grader.submit(episode("fail", id=str(i)))
    assert REWARD.calls == 2


def test_calls_of_worker_processes_are_remembered_too():
    options = FunctionOptions(path="tests.rewards.graders:misbehaves", cache=True)
    with Grader({"d": [options]}, workers=1) as grader:
        grader.submit(episode("process id", id="0"))
        first = collect(grader, 1)["0"]
        grader.submit(episode("process id", id="1"))
        assert grader.poll(timeout=0) == [("1", first)]


def test_everything_a_grader_may_read_is_in_the_key():
    base = episode("answer", "truth", extra={"rubric": [1], "array": np.ones(2)})
    other_turns = replace(base, turns=[Turn([5], Completion([1], [0.0], [0.0], [0], "stop"), "before"), *base.turns])
    longer = episode("answer", "truth", extra=base.task.extra)
    longer.turns[0].completion = Completion([1, 1], [0.0] * 2, [0.0] * 2, [0] * 2, "stop")
    variants = [
        base,
        episode("other", "truth", extra=base.task.extra),
        episode("answer", "other", extra=base.task.extra),
        episode("answer", "truth", extra={"rubric": [2], "array": np.ones(2)}),
        episode("answer", "truth", extra={"rubric": [1], "array": np.zeros(2)}),
        episode("answer", "truth", extra=base.task.extra, prompt="Another question"),
        other_turns,
        longer,
        replace(base, status="truncated"),
    ]
    keys = [content_key(MatchOptions(), one) for one in variants]
    assert len(set(keys)) == len(variants)
    assert content_key(MatchOptions(ignore_case=True), base) != keys[0]
    assert content_key(MatchOptions(), replace(base, id="g9/9", group_id="g9", seed=99)) == keys[0]


def test_the_least_recently_used_goes_first():
    cache = VerdictCache(entries=2)
    cache.put("a", Score(1.0))
    cache.put("b", Abstain("nothing"))
    assert cache.get("a") == Score(1.0)
    cache.put("c", Score(3.0))
    assert len(cache) == 2 and cache.get("b") is None and cache.get("a") and cache.get("c")
