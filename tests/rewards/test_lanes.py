"""Rewards that score several episodes at once, or wait for something while others go on."""

import threading
import time

import pytest

from rollick.rewards.base import Batching, Failed, RewardOptions, Score
from rollick.rewards.grading import Grader
from rollick.rewards.lanes import Lane
from rollick.rewards.match import Options as MatchOptions
from rollick.rewards.pool import Lost
from tests.rewards.batch_rewards import Length, Options
from tests.rewards.episodes import episode
from tests.rewards.test_grading import collect, function


def lane(size=4, in_flight=1, limit=10.0):
    reward = Length("length")
    return reward, Lane(reward, "length", Batching(size, in_flight), limit, lambda: None)


def wait_for(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.005)
    assert condition()


def settle(opened, count):
    done = []
    wait_for(lambda: done.extend(opened.poll()) or len(done) >= count)
    return dict(done)


def test_what_waits_while_a_call_runs_becomes_one_batch():
    reward, opened = lane(size=3)
    opened.submit(episode("wait", id="first"))
    wait_for(lambda: reward.sizes == [1])
    for i in range(4):
        opened.submit(episode("x" * i, id=str(i)))
    reward.release.set()
    done = settle(opened, 5)
    assert reward.sizes == [1, 3, 1]
    assert [done[str(i)].value for i in range(4)] == [0, 1, 2, 3]


def test_no_more_calls_run_at_once_than_allowed():
    reward, opened = lane(size=1, in_flight=3)
    for i in range(9):
        opened.submit(episode("wait", id=str(i)))
    wait_for(lambda: reward.running == 3)
    time.sleep(0.05)
    reward.release.set()
    assert len(settle(opened, 9)) == 9 and reward.most_running == 3


@pytest.mark.parametrize(("answer", "words"), [("raise", "OSError: no connection"), ("short", "gave 0 verdicts for 2")])
def test_a_call_that_fails_fails_each_of_its_episodes(answer, words):
    reward, opened = lane()
    opened.submit(episode("wait", id="first"))
    wait_for(lambda: reward.sizes == [1])
    for id in ("a", "b"):
        opened.submit(episode(answer, id=id))
    reward.release.set()
    done = settle(opened, 3)
    assert isinstance(done["first"], Score)
    assert all(isinstance(done[id], Failed) and words in done[id].reason for id in ("a", "b"))


def test_a_call_over_the_limit_is_given_up_and_makes_room():
    reward, opened = lane(size=1, limit=0.2)
    for id, text in (("slow", "wait"), ("next", "four")):
        opened.submit(episode(text, id=id))
    done = settle(opened, 2)
    assert isinstance(done["slow"], Lost) and done["slow"].cause == "timeout" and done["next"].value == 4
    reward.release.set()
    time.sleep(0.05)
    assert opened.poll() == [], "what comes late is not settled twice"


def test_cancelled_episodes_never_settle_and_hold_up_nobody():
    """Case 86."""
    reward, opened = lane(size=1)
    for id, text in (("running", "wait"), ("queued", "x"), ("kept", "four")):
        opened.submit(episode(text, id=id))
    opened.cancel(["running", "queued"])
    assert set(settle(opened, 1)) == {"kept"}
    reward.release.set()


def test_the_grader_joins_lanes_workers_and_its_own_process():
    with Grader({"d": [Options(), MatchOptions(), function("equals")]}, workers=1) as grader:
        for i in range(6):
            grader.submit(episode("x" * i, "xxx", id=str(i)))
        done = collect(grader, 6)
        stats = grader.stats()
    for i in range(6):
        values = {label: verdict.value for label, verdict in done[str(i)].items()}
        assert values == {"length": i, "match": float(i == 3), "equals": float(i == 3)}
    assert stats["reward/length/graded"] == 6 and 2 <= stats["reward/length/requests"] <= 6


def test_a_model_s_process_loads_once_and_takes_batches():
    with Grader({"d": [Options(own_process=True, size=16)]}) as grader:
        for step in range(2):
            for i in range(12):
                grader.submit(episode("x" * i, id=f"{step}/{i}"))
            done = collect(grader, 12)
            assert [done[f"{step}/{i}"]["length"].value for i in range(12)] == list(range(12))
            parts = done[f"{step}/11"]["length"].parts
        assert parts["loaded"] == 1 and parts["calls"] <= 4


def test_a_model_s_process_that_hangs_or_dies_is_replaced():
    rewards = [Options(own_process=True, size=1, timeout=1.0)]
    with Grader({"d": rewards}, retries=0) as grader:
        for id in ("hang", "die", "fine"):
            grader.submit(episode(id, id=id))
        done = collect(grader, 3)
    assert "timeout after 1 s" in done["hang"]["length"].reason
    assert "process died" in done["die"]["length"].reason
    assert done["fine"]["length"].value == 4


def test_equal_rewards_of_several_domains_share_a_lane():
    """One process and model, one rate limit; weights and gates may differ, what is asked may not."""
    rewards = {
        "a": [Options(own_process=True)],
        "b": [Options(own_process=True, weight=0.5, clip=(0, 1))],
        "c": [Options(own_process=True, size=2)],
    }
    with Grader(rewards) as grader:
        assert len(grader._lanes_by_options) == 2
        for domain in "abc":
            grader.submit(episode("four", id=domain, domain=domain))
        done = collect(grader, 3)
        assert {verdicts["length"].value for verdicts in done.values()} == {4.0}
        grader.submit(episode("hang", id="a", domain="a"))
        grader.cancel(["a"])
        grader.submit(episode("fine", id="b", domain="b"))
        assert collect(grader, 1)["b"]["length"].value == 4


def test_an_episode_that_cannot_be_sent_is_a_failure():
    with Grader({"d": [Options(own_process=True, size=1)]}, retries=0) as grader:
        grader.submit(episode("x", id="bad", extra={"f": lambda: 0}))
        grader.submit(episode("four", id="good"))
        done = collect(grader, 2)
    assert "cannot be sent to a worker process" in done["bad"]["length"].reason
    assert done["good"]["length"].value == 4


class Later:
    name = "later"

    async def score(self, episode):
        return Score(3.0)


class LaterOptions(RewardOptions):
    kind: str = "later"

    def build(self):
        return Later()


def test_score_may_be_a_coroutine():
    with Grader({"d": [LaterOptions()]}) as grader:
        grader.submit(episode("x"))
        assert grader.poll() == [("g0/0", {"later": Score(3.0)})]


def test_closing_leaves_no_thread_behind():
    reward, opened = lane(size=1)
    opened.submit(episode("wait"))
    opened.close()
    reward.release.set()
    wait_for(lambda: not [t for t in threading.enumerate() if t.name == "reward-length"])
