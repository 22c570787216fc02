import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollick.rewards.base import Failed, Score
from rollick.rewards.function import Options as FunctionOptions
from rollick.rewards.pool import WorkerPool
from tests.rewards.episodes import episode

PATH = "tests.rewards.graders:misbehaves"


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def wait_until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def collect(pool, count, seconds=30.0):
    outcomes, deadline = {}, time.monotonic() + seconds
    while len(outcomes) < count and time.monotonic() < deadline:
        outcomes.update(pool.poll(timeout=1.0))
    return outcomes


@pytest.fixture
def pool():
    with WorkerPool([FunctionOptions(path=PATH)], workers=2) as pool:
        pool.submit("warm", 0, episode("fine"), 30.0)
        assert collect(pool, 1) == {"warm": Score(1.0)}
        yield pool


def test_a_call_comes_back_under_its_own_key(pool):
    for i in range(20):
        pool.submit(i, 0, episode("fine"), 10.0)
    assert collect(pool, 20) == {i: Score(1.0) for i in range(20)}
    assert pool.poll(timeout=30.0) == []


@pytest.mark.parametrize("answer", ["hang", "hang holding the interpreter"])
def test_a_hung_call_is_killed_at_its_limit_and_the_slot_returns(pool, answer):
    """Cases 79 and 85."""
    before = set(pool.worker_pids())
    start = time.monotonic()
    for i in range(4):
        pool.submit(f"hung{i}", 0, episode(answer), 0.5)
    outcomes = collect(pool, 4)
    assert {outcome.cause for outcome in outcomes.values()} == {"timeout"}
    assert time.monotonic() - start < 2 * 0.5 + 2
    for i in range(4):
        pool.submit(i, 0, episode("fine"), 10.0)
    assert collect(pool, 4) == {i: Score(1.0) for i in range(4)}
    wait_until(lambda: len(pool.worker_pids()) == 2 and not before & set(pool.worker_pids()))
    wait_until(lambda: not any(alive(pid) for pid in before))


@pytest.mark.parametrize("answer", ["crash", "segfault"])
def test_a_crash_costs_one_call_only(pool, answer):
    for i, text in enumerate([answer, "fine", "fine", answer, "fine"]):
        pool.submit(i, 0, episode(text), 10.0)
    outcomes = collect(pool, 5)
    assert [outcomes[i] for i in (1, 2, 4)] == [Score(1.0)] * 3
    assert outcomes[0].cause == outcomes[3].cause == "crash"
    assert answer != "crash" or "about to die" in outcomes[0].reason
    wait_until(lambda: len(pool.worker_pids()) == 2)


def test_output_is_bounded(pool):
    pool.submit("flood", 0, episode("flood"), 20.0)
    pool.submit("large", 0, episode("large"), 20.0)
    outcomes = collect(pool, 2)
    assert outcomes["flood"].cause == "output" and outcomes["flood"].seconds < 10
    assert isinstance(outcomes["large"], Failed) and "limit" in outcomes["large"].reason


def test_memory_is_bounded(pool):
    pool.submit("big", 0, episode("allocate"), 20.0)
    [outcome] = collect(pool, 1).values()
    assert isinstance(outcome, Failed) and "MemoryError" in outcome.reason


@pytest.mark.parametrize("how", ["", " detached"])
def test_killing_a_worker_kills_what_it_started(pool, tmp_path, how):
    note = tmp_path / "pid"
    pool.submit("tree", 0, episode(f"child {note}{how}"), 1.0)
    assert collect(pool, 1)["tree"].cause == "timeout"
    wait_until(lambda: not alive(int(note.read_text())))


def test_a_cancelled_call_frees_its_worker_at_once(pool):
    """Case 86."""
    for i in range(4):
        pool.submit(i, 0, episode("hang"), 300.0)
    time.sleep(0.2)
    start = time.monotonic()
    pool.cancel(range(4))
    pool.submit("next", 0, episode("fine"), 10.0)
    assert collect(pool, 1) == {"next": Score(1.0)}
    assert time.monotonic() - start < 3
    assert pool.poll(timeout=0.1) == []


def test_a_cancelled_key_can_be_submitted_again(pool):
    pool.submit("a", 0, episode("hang"), 300.0)
    time.sleep(0.2)
    pool.cancel(["a"])
    pool.submit("a", 0, episode("fine"), 10.0)
    assert collect(pool, 1) == {"a": Score(1.0)}


def test_workers_are_recycled(monkeypatch):
    monkeypatch.setattr("rollick.rewards.pool.CALLS_PER_WORKER", 3)
    with WorkerPool([FunctionOptions(path=PATH)], workers=1) as pool:
        for i in range(7):
            pool.submit(i, 0, episode("process id"), 30.0)
        pids = [collect_one.value for _, collect_one in sorted(collect(pool, 7).items())]
    assert len(set(pids[:3])) == len(set(pids[3:6])) == 1
    assert len(set(pids)) == 3


def test_a_killed_nursery_is_started_again(pool):
    nursery = parent_of(pool.worker_pids()[0])
    pool.submit("lost", 0, episode("hang"), 60.0)
    time.sleep(0.3)
    os.kill(nursery, signal.SIGKILL)
    assert collect(pool, 1)["lost"].cause == "crash"
    pool.submit("next", 0, episode("fine"), 30.0)
    assert collect(pool, 1) == {"next": Score(1.0)}


def test_closing_leaves_no_process(pool):
    pool.submit("hung", 0, episode("hang"), 300.0)
    time.sleep(0.2)
    workers = pool.worker_pids()
    nursery = parent_of(workers[0])
    pool.close()
    pool.close()
    assert not any(alive(pid) for pid in [nursery, *workers])


def test_a_parent_killed_by_signal_9_leaves_no_process(tmp_path):
    note = tmp_path / "pids"
    program = f"""
import time
from rollick.rewards.function import Options
from rollick.rewards.pool import WorkerPool
from tests.rewards.episodes import episode
pool = WorkerPool([Options(path={PATH!r})], workers=2)
pool.submit("warm", 0, episode("fine"), 30.0)
assert pool.poll(30.0)
pool.submit("a", 0, episode("hang holding the interpreter"), 300.0)
time.sleep(0.3)
open({str(note)!r}, "w").write(" ".join(map(str, pool.worker_pids())))
time.sleep(60)
"""
    parent = subprocess.Popen([sys.executable, "-c", program])
    wait_until(lambda: note.exists() and len(note.read_text().split()) == 2, 30)
    workers = [int(pid) for pid in note.read_text().split()]
    nursery = parent_of(workers[0])
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait(10)
    wait_until(lambda: not any(alive(pid) for pid in [nursery, *workers]))


def test_graders_that_cannot_be_built_fail_every_call_with_the_reason():
    with WorkerPool([FunctionOptions(path="tests.rewards.graders:missing")], workers=1) as pool:
        pool.submit("a", 0, episode("x"), 5.0)
        outcome = collect(pool, 1)["a"]
        assert "no function 'missing'" in outcome.reason
        pool.submit("b", 0, episode("x"), 5.0)
        assert "no function 'missing'" in collect(pool, 1)["b"].reason


def test_a_key_in_flight_is_refused(pool):
    pool.submit("a", 0, episode("hang"), 60.0)
    with pytest.raises(ValueError, match="in flight"):
        pool.submit("a", 0, episode("fine"), 60.0)
