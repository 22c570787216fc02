import threading
import time

from rollick.rollout.calls import CallPool


def collect(pool, count, seconds=5.0):
    found, end = [], time.monotonic() + seconds
    while len(found) < count and time.monotonic() < end:
        found += pool.poll(0.05)
    return dict(found)


def test_calls_in_threads_and_at_once_come_back_under_their_keys():
    pool = CallPool()
    pool.run("a", lambda: 1)
    pool.submit("b", lambda: 2)
    assert collect(pool, 2) == {"a": 1, "b": 2}
    assert pool.poll(5.0) == []  # nothing is open: no waiting
    pool.close()


def test_what_a_call_raises_is_its_result():
    pool = CallPool()
    pool.submit("a", lambda: 1 / 0)
    assert isinstance(collect(pool, 1)["a"], ZeroDivisionError)
    pool.close()


def test_a_call_that_hangs_is_given_up_and_its_thread_replaced():
    pool, release = CallPool(max_threads=1), threading.Event()
    pool.submit("stuck", lambda: release.wait(30) and "late")
    pool.submit("next", lambda: "done")
    assert pool.poll(0.1) == []
    pool.give_up("stuck")
    pool.submit("more", lambda: "too")
    assert collect(pool, 2) == {"next": "done", "more": "too"}
    release.set()
    time.sleep(0.05)
    assert pool.poll(0.1) == []  # what it says later is dropped
    pool.close()


def test_a_call_given_up_before_it_began_never_runs():
    pool, release, ran = CallPool(max_threads=1), threading.Event(), []
    pool.submit("first", lambda: release.wait(30))
    pool.submit("second", lambda: ran.append(1))
    pool.give_up("second")
    release.set()
    collect(pool, 1)
    pool.close()
    assert ran == []
