import threading
import time
from typing import Any

import pytest

from rollick.errors import ConfigError
from rollick.rewards.base import Abstain, Failed, RewardOptions, Score
from rollick.rewards.function import Options as FunctionOptions
from rollick.rewards.grading import Grader, combine
from rollick.rewards.match import Options as MatchOptions
from tests.rewards.episodes import episode


def function(name, **options):
    return FunctionOptions(path=f"tests.rewards.graders:{name}", **options)


def collect(grader, count, seconds=30.0):
    done, deadline = {}, time.monotonic() + seconds
    while len(done) < count and time.monotonic() < deadline:
        for episode_id, verdicts in grader.poll(timeout=1.0):
            assert episode_id not in done
            done[episode_id] = verdicts
    return done


def test_every_episode_comes_back_once_under_its_own_id_with_all_verdicts():
    """Case 87: one record per episode, whatever happens to its neighbours."""
    rewards = [MatchOptions(), function("length"), function("misbehaves")]
    answers = ["fine", "hang", "", "crash", "longer than the others", "fine"]
    with Grader({"d": rewards}, workers=2, timeout=0.6, retries=0) as grader:
        grader.submit(episode("fine", "fine", id="warm"))
        collect(grader, 1)
        for i, answer in enumerate(answers):
            grader.submit(episode(answer, "fine", id=f"g0/{i}"))
        done = collect(grader, len(answers))
    assert set(done) == {f"g0/{i}" for i in range(len(answers))}
    for i, answer in enumerate(answers):
        verdicts = done[f"g0/{i}"]
        assert list(verdicts) == ["match", "length", "misbehaves"]
        assert verdicts["match"] == Score(float(answer == "fine"))
        assert verdicts["length"] == Score(float(len(answer)))
        assert isinstance(verdicts["misbehaves"], Failed) == (answer in ("hang", "crash"))


def test_rewards_without_isolation_need_no_process():
    with Grader({"d": [MatchOptions(), function("length", isolated=False)]}) as grader:
        assert threading.active_count() == 1 or all(t.name != "reward-pool" for t in threading.enumerate())
        grader.submit(episode("ab", "ab"))
        assert grader.poll(timeout=0) == [("g0/0", {"match": Score(1.0), "length": Score(2.0)})]
        assert grader.poll(timeout=30.0) == []


def test_plain_functions_alone_are_a_reward_source():
    """Case 8."""
    with Grader({"d": [function("equals", isolated=False)]}) as grader:
        grader.submit(episode("7", "7"))
        assert grader.poll() == [("g0/0", {"equals": Score(1.0)})]


def test_domains_have_their_own_rewards():
    with Grader({"a": [MatchOptions()], "b": [MatchOptions(ignore_case=True)], "c": []}) as grader:
        for domain in "abc":
            grader.submit(episode("X", "x", id=domain, domain=domain))
        assert dict(grader.poll()) == {"a": {"match": Score(0.0)}, "b": {"match": Score(1.0)}, "c": {}}
        with pytest.raises(ValueError, match="no rewards for domain 'z'"):
            grader.submit(episode("X", domain="z"))


def test_a_hung_grader_shows_as_pending_with_its_age():
    """Case 98."""
    with Grader({"d": [function("misbehaves"), MatchOptions()]}, workers=1, timeout=1.0, retries=0) as grader:
        grader.submit(episode("hang", "x"))
        time.sleep(0.1)
        [(episode_id, label, age)] = grader.pending()
        assert (episode_id, label) == ("g0/0", "misbehaves") and 0.1 <= age < 1
        [(_, verdicts)] = collect(grader, 1).items()
        assert verdicts["misbehaves"] == Failed("reward 'misbehaves': timeout after 1 s")
        assert grader.pending() == []


def test_a_reward_may_have_a_shorter_limit_of_its_own():
    with Grader({"d": [function("misbehaves", timeout=0.5)]}, workers=1, timeout=60.0, retries=0) as grader:
        grader.submit(episode("hang"))
        start = time.monotonic()
        assert "0.5 s" in collect(grader, 1)["g0/0"]["misbehaves"].reason
        assert time.monotonic() - start < 10


def test_a_call_whose_worker_died_is_tried_again(tmp_path):
    with Grader({"d": [function("dies_once")]}, workers=1, timeout=10.0, retries=1) as grader:
        grader.submit(episode(str(tmp_path / "marker")))
        assert collect(grader, 1) == {"g0/0": {"dies_once": Score(1.0)}}
        assert grader.stats()["reward/dies_once/retried"] == 1


def test_surplus_episodes_are_cancelled_without_waiting():
    """Case 86."""
    with Grader({"d": [function("misbehaves")]}, workers=2, timeout=300.0) as grader:
        for i in range(6):
            grader.submit(episode("hang" if i >= 4 else "fine", id=str(i)))
        assert set(collect(grader, 4)) == set("0123")
        start = time.monotonic()
        grader.cancel(["4", "5", "unknown"])
        assert grader.pending() == []
        grader.submit(episode("fine", id="4"))
        assert collect(grader, 1) == {"4": {"misbehaves": Score(1.0)}}
        assert time.monotonic() - start < 5


def test_a_stuck_scorer_does_not_slow_later_steps():
    """Case 85: one hung call in each of three steps of eight."""
    with Grader({"d": [function("misbehaves")]}, workers=2, timeout=0.5, retries=0) as grader:
        grader.submit(episode("fine", id="warm"))
        collect(grader, 1)
        for step in range(3):
            start = time.monotonic()
            for i in range(8):
                grader.submit(episode("hang" if i == 0 else "fine", id=f"{step}/{i}"))
            done = collect(grader, 8)
            assert sum(isinstance(v["misbehaves"], Failed) for v in done.values()) == 1
            assert time.monotonic() - start < 0.5 + 2


def test_failures_and_abstentions_are_counted_by_label():
    with Grader(
        {"d": [MatchOptions(), function("nothing", isolated=False), function("raises", isolated=False)]}
    ) as grader:
        grader.submit(episode("x", None))
        grader.poll()
        stats = grader.stats()
    assert stats["reward/match/abstained"] == stats["reward/nothing/abstained"] == stats["reward/raises/failed"] == 1
    assert stats["reward/match/failed"] == stats["reward/match/graded"] == 0


def test_an_episode_in_flight_is_refused():
    with Grader({"d": [function("misbehaves")]}, workers=1) as grader:
        grader.submit(episode("hang"))
        with pytest.raises(ValueError, match="being graded"):
            grader.submit(episode("hang"))


def test_an_episode_that_cannot_be_sent_fails():
    with Grader({"d": [function("misbehaves")]}, workers=1) as grader:
        grader.submit(episode("fine", extra={"lock": threading.Lock()}))
        assert "cannot be sent" in grader.poll(timeout=5)[0][1]["misbehaves"].reason


def test_equal_labels_and_missing_functions_are_refused_at_load():
    with pytest.raises(ConfigError, match="'match'"):
        Grader({"d": [MatchOptions(), MatchOptions(ignore_case=True)]})
    with pytest.raises(ConfigError, match="missing"):
        Grader({"d": [function("missing")]})


def named(name, weight=1.0):
    return MatchOptions(name=name, weight=weight)


def test_combine_adds_weighted_values_and_keeps_raw_parts():
    options = [named("a"), named("b", 0.5), named("c", -2.0)]
    verdicts = {"a": Score(1.0), "b": Score(0.4, {"x": 3.0}), "c": Score(0.25)}
    assert combine(verdicts, options) == Score(1.0 + 0.2 - 0.5, {"a": 1.0, "b": 0.4, "b/x": 3.0, "c": 0.25})


def test_combine_lets_an_abstaining_reward_contribute_nothing():
    options = [named("a"), named("b")]
    assert combine({"a": Score(0.0), "b": Abstain("no")}, options) == Score(0.0, {"a": 0.0})
    assert combine({"a": Abstain("no"), "b": Abstain("neither")}, options) == Abstain("no; neither")


def test_combine_fails_when_one_reward_failed():
    options = [named("a"), named("b")]
    assert combine({"a": Score(1.0), "b": Failed("boom")}, options) == Failed("boom")
    assert combine({"a": Abstain("no"), "b": Failed("boom")}, options) == Failed("boom")
    assert isinstance(combine({"a": Score(1e308)}, [named("a", 100.0)]), Failed)


def test_combine_without_graders_leaves_the_environments_rewards_alone():
    assert combine({}, []) == Score(0.0)


def test_rewards_that_cancel_keep_their_parts():
    """Case 55: the sum is 0 and the parts show why."""
    options = [named("a"), named("b")]
    assert combine({"a": Score(3.0), "b": Score(-3.0)}, options) == Score(0.0, {"a": 3.0, "b": -3.0})


def test_a_plugin_that_returns_no_verdict_or_nan_fails():
    class Odd:
        name = "odd"

        def __init__(self, result):
            self.result = result

        def score(self, episode):
            return self.result

    class OddOptions(RewardOptions):
        kind: str = "odd"
        result: Any

        def build(self):
            return Odd(self.result)

    for options, words in ((OddOptions(result=1.0), "no Score"), (OddOptions(result=Score(float("nan"))), "nan")):
        with Grader({"d": [options]}) as grader:
            grader.submit(episode("x"))
            verdict = grader.poll()[0][1]["odd"]
            assert isinstance(verdict, Failed) and words in verdict.reason
