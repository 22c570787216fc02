"""A grader behind HTTP, against a real server on loopback. Case 84 throughout: trouble is never a score."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from rollick.errors import ConfigError
from rollick.rewards import remote_http
from rollick.rewards.base import Abstain, Failed, Score
from rollick.rewards.grading import Grader
from rollick.rewards.remote import Options, read_verdicts
from rollick.rewards.remote_http import Breaker, HttpFailure, Pace, strict_json
from tests.rewards.episodes import episode
from tests.rewards.http_service import Raw, service
from tests.rewards.test_grading import collect

KEY = "sk-3141592653589793"


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch):
    monkeypatch.setattr(remote_http, "FIRST_PAUSE", 0.01)


def lengths(request):
    return {"verdicts": [{"id": e["id"], "score": len(e["response"])} for e in request.body["episodes"]]}


def graded(reply, answers=("four",), seconds=20.0, **options):
    """Verdicts of the answers, the requests, and the grader's counters."""
    with (
        service(reply) as (url, requests),
        Grader({"d": [Options(url=url, **options)]}, timeout=10, retries=0) as grader,
    ):
        for i, answer in enumerate(answers):
            grader.submit(episode(answer, "truth", id=str(i), extra={"level": 3}))
        done = collect(grader, len(answers), seconds)
        stats = {name.rpartition("/")[2]: value for name, value in grader.stats().items()}
    return [done[str(i)]["remote"] for i in range(len(answers))], requests, stats


def test_scores_parts_and_abstentions_arrive():
    replies = {
        "a": {"score": 0.5, "parts": {"style": 1}},
        "b": {"abstain": "no opinion"},
        "c": {"failed": "out of memory"},
    }

    def reply(request):
        verdicts = [{"id": e["id"], **replies[e["response"]]} for e in request.body["episodes"]]
        return {"verdicts": verdicts[::-1]}

    verdicts, requests, stats = graded(reply, "abc", batch_size=3, concurrency=1)
    assert verdicts == [
        Score(0.5, {"style": 1.0}),
        Abstain("no opinion"),
        Failed("the service says: out of memory"),
    ]
    sent = requests[0].body["episodes"][0]
    assert sent["prompt"] == [{"role": "user", "content": "What is it?"}]
    assert (sent["response"], sent["ground_truth"], sent["extra"]) == ("a", "truth", {"level": 3})
    assert sent["truncated"] is False and requests[0].body["version"] == 1
    assert stats["graded"] == stats["abstained"] == stats["failed"] == 1


def test_only_what_is_asked_for_is_sent():
    _, requests, _ = graded(lengths, send=["prompt"])
    assert set(requests[0].body["episodes"][0]) == {"id", "response", "truncated", "prompt"}


def test_what_waits_is_sent_together():
    verdicts, requests, _ = graded(lengths, ["x" * i for i in range(20)], batch_size=8, concurrency=1)
    assert [verdict.value for verdict in verdicts] == list(range(20))
    assert 4 > len(requests) - 1 >= 2 and max(len(r.body["episodes"]) for r in requests) <= 8


def test_trouble_that_passes_is_tried_again():
    """The service of case 84: too slow, then 500, then right."""
    trouble = [Raw(pause=3.0), Raw(b"oops", status=500)]
    reply = lambda request: trouble[request.number] if request.number < 2 else lengths(request)
    verdicts, requests, stats = graded(reply, request_timeout=0.3, retries=2)
    assert verdicts == [Score(4.0)] and len(requests) == 3
    assert (stats["requests"], stats["retries"]) == (3, 2)


@pytest.mark.parametrize(
    ("reply", "reason", "tries"),
    [
        (Raw(b"the cause", status=500), "HTTP 500: the cause (3 tries)", 3),
        (Raw(b"who are you", status=401), "HTTP 401: who are you", 1),
        (Raw(b"", status=302, headers=(("Location", "http://127.0.0.1:1/"),)), "HTTP 302", 1),
        (Raw(hang_up=True), "RemoteDisconnected", 3),
        (Raw(b"<html>"), "the answer is not JSON", 3),
        (Raw(b'{"verdicts": [{"id": "0", "score": NaN}]}'), "NaN is no number", 3),
        (Raw(b'{"verdicts": [], "verdicts": []}'), "a key is there twice", 3),
        (Raw(b'{"verdicts": [{"id": "0", "score": 1' + b"0" * 400 + b"}]}"), "no finite number", 3),
        ([], 'must be {"verdicts": […]}', 3),
        ({"verdicts": []}, "verdicts for [], 1 were asked for", 3),
        ({"verdicts": [{"id": "0", "score": 1.0, "error": "timeout"}]}, "holds ['error', 'score']", 3),
        ({"verdicts": [{"id": "0", "score": "1.0"}]}, "'score' is '1.0', which is no finite number", 3),
        ({"verdicts": [{"id": "0", "score": True}]}, "'score' is True", 3),
        ({"verdicts": [{"id": "0", "score": None}]}, "'score' is None", 3),
        ({"verdicts": [{"id": "0", "score": 1, "parts": [1]}]}, "'parts' must be an object", 3),
        ({"verdicts": [{"id": 0, "score": 1}]}, "'id' that is text", 3),
        ({"verdicts": [{"id": "0", "score": 1}, {"id": "0", "score": 1}]}, "two verdicts have the id 0", 3),
        ({"verdicts": [{"id": "0", "score": 1}, {"id": "1", "score": 1}]}, "1 were asked for", 3),
    ],
)
def test_trouble_that_stays_is_a_failure_with_its_reason(reply, reason, tries):
    [verdict], requests, stats = graded(lambda request: reply)
    assert isinstance(verdict, Failed) and reason in verdict.reason and "reward 'remote': 127.0.0.1" in verdict.reason
    assert len(requests) == tries and stats["failed"] == 1


@pytest.mark.parametrize("reply", [Raw(b"{}", pause=60.0), Raw(b" " * 10_000, drip=0.02)], ids=["silent", "dripping"])
def test_a_service_that_is_too_slow_costs_its_time_limit_and_no_more(reply):
    start = time.monotonic()
    [verdict], requests, _ = graded(lambda request: reply, request_timeout=0.3, retries=1)
    assert isinstance(verdict, Failed) and "no answer in time (2 tries)" in verdict.reason
    assert 0.5 < time.monotonic() - start < 4 and len(requests) == 2


def test_the_time_limit_of_a_verdict_covers_all_tries():
    start = time.monotonic()
    [verdict], _, _ = graded(lambda request: Raw(pause=60.0), request_timeout=30.0, retries=5, timeout=0.5)
    assert isinstance(verdict, Failed) and time.monotonic() - start < 4


def test_an_endless_answer_is_cut(monkeypatch):
    monkeypatch.setattr(remote_http, "MAX_ANSWER_BYTES", 1000)
    [verdict], requests, _ = graded(lambda request: Raw(b"[" * 5000))
    assert "more than 1000 bytes" in verdict.reason and len(requests) == 1


def test_nobody_listening_is_a_failure():
    with Grader({"d": [Options(url="http://127.0.0.1:9/score", retries=1)]}) as grader:
        grader.submit(episode("x"))
        verdict = collect(grader, 1)["g0/0"]["remote"]
    assert isinstance(verdict, Failed) and "ConnectionRefusedError" in verdict.reason


def test_the_circuit_opens_after_failures_in_a_row():
    options = {"retries": 0, "concurrency": 1, "breaker_failures": 3, "breaker_seconds": 60}
    verdicts, requests, _ = graded(lambda request: Raw(status=500), "abcdefgh", **options)
    assert len(requests) == 3
    assert all(isinstance(verdict, Failed) for verdict in verdicts)
    reason = "reward 'remote': 127.0.0.1:PORT: not asked for 60 s, since 3 requests in a row failed: HTTP 500: "
    assert [re.sub(r":\d+:", ":PORT:", verdict.reason) for verdict in verdicts].count(reason) == 5


def test_the_breaker_lets_one_try_and_closes_when_it_is_good():
    now = [0.0]
    breaker = Breaker(2, 10.0, clock=lambda: now[0])
    for _ in range(2):
        breaker.check()
        breaker.record("HTTP 500")
    with pytest.raises(HttpFailure, match="not asked for 10 s, since 2 requests in a row failed: HTTP 500"):
        breaker.check()
    now[0] = 10.5
    breaker.check()
    with pytest.raises(HttpFailure):
        breaker.check()  # the one that tries is alone
    breaker.record(None)
    breaker.check()
    breaker.record("HTTP 500")
    breaker.check()


def test_the_pace_spreads_calls_and_respects_the_deadline():
    now = [100.0]
    pace = Pace(60.0, clock=lambda: now[0])
    assert [pace.reserve(200.0) for _ in range(3)] == [0.0, 1.0, 2.0]
    with pytest.raises(HttpFailure, match="no place before the time limit"):
        pace.reserve(102.5)
    now[0] = 110.0
    assert pace.reserve(200.0) == 0.0


def test_no_more_than_the_given_number_of_requests_run_at_once():
    running, most = [], []

    def reply(request):
        running.append(request.number)
        most.append(len(running))
        time.sleep(0.05)
        running.remove(request.number)
        return lengths(request)

    verdicts, _, _ = graded(reply, ["x"] * 12, concurrency=3)
    assert len(verdicts) == 12 and 1 < max(most) <= 3


def test_the_key_is_sent_and_shown_nowhere(monkeypatch, caplog):
    """Also when the service throws it back."""
    monkeypatch.setenv("GRADER_KEY", KEY)
    echo = lambda request: Raw(f"bad token {request.headers['Authorization']}".encode(), status=403)
    options = {"api_key_env": "GRADER_KEY"}
    [verdict], requests, stats = graded(echo, **options)
    assert requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert "bad token Bearer [hidden]" in verdict.reason
    shown = [verdict.reason, repr(stats), caplog.text, Options(url="http://h", **options).model_dump_json()]
    assert KEY not in "".join(shown)


def test_a_key_that_is_not_set_is_refused_when_the_run_starts(monkeypatch):
    monkeypatch.delenv("GRADER_KEY", raising=False)
    with pytest.raises(ConfigError, match="GRADER_KEY, which is not set"):
        Grader({"d": [Options(url="http://h", api_key_env="GRADER_KEY")]})


@pytest.mark.parametrize("url", ["h:8000", "ftp://h/x", "http://", "http://h:port/", "http://me:secret@h/"])
def test_addresses_that_cannot_be_meant_are_refused(url):
    with pytest.raises(ValidationError):
        Options(url=url)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner)
            | st.dictionaries(st.sampled_from(["verdicts", "id", "score", "parts", "abstain", "failed", "x"]), inner)
        ),
    )
)
def test_any_json_is_verdicts_or_off_the_schema(value):
    try:
        assert len(read_verdicts(value, 1)) == 1
    except HttpFailure as failure:
        assert "off the schema" in str(failure)


@given(st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_bytes_are_json_or_a_failure(content):
    try:
        strict_json(content)
    except HttpFailure as failure:
        assert "not JSON" in str(failure)


def test_deep_nesting_is_no_crash():
    with pytest.raises(HttpFailure):
        strict_json(b"[" * 200_000)
