"""`isolation: none`: no protection, but the same verdicts."""

import time

import pytest

from rollick.sandbox.base import Program
from rollick.sandbox.settings import SandboxSettings, build_sandbox
from tests.sandbox.running import run

CASES = [
    ("print(input()[::-1])", "ok"),
    ("1/0", "exit"),
    ("import time; time.sleep(30)", "timeout"),
    ("while True: print('y' * 500)", "output_limit"),
    ("x = b'1' * (1 << 30)", "memory"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
]


@pytest.mark.parametrize(("source", "verdict"), CASES)
def test_the_verdicts_are_those_of_the_isolated_sandbox(source, verdict):
    sandbox = build_sandbox(SandboxSettings(isolation="none"))
    begin = time.monotonic()
    outcome = run(sandbox, source, b"abc", seconds=2.0)
    assert outcome.verdict == verdict
    assert time.monotonic() - begin < 6
    if verdict == "ok":
        assert outcome.stdout == b"cba\n"


def test_it_says_that_it_protects_nothing():
    assert build_sandbox(SandboxSettings(isolation="none")).description.startswith("none (")


def test_a_missing_interpreter_is_an_infrastructure_failure():
    outcome = build_sandbox(SandboxSettings(isolation="none")).run(Program({}, ("no-such-thing",)))
    assert outcome.verdict == "infrastructure" and "no-such-thing" in outcome.reason
