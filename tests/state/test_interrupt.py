"""Ctrl-C asks first and stops second."""

import os
import signal
import threading

import pytest

from rollick.state.interrupt import StopRequest


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_first_signal_is_a_request_and_the_second_stops_at_once(number):
    before = signal.getsignal(number)
    with StopRequest() as stop:
        assert not stop.stop_requested
        os.kill(os.getpid(), number)
        assert stop.stop_requested
        with pytest.raises(KeyboardInterrupt):
            os.kill(os.getpid(), number)
    assert signal.getsignal(number) is before


def test_handlers_come_back_after_an_error():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(RuntimeError), StopRequest():
        raise RuntimeError
    assert signal.getsignal(signal.SIGINT) is before


def test_other_threads_can_enter():
    seen = []

    def work():
        with StopRequest() as stop:
            seen.append(stop.stop_requested)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(timeout=10)
    assert seen == [False]
