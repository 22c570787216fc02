"""What every sandbox of ours promises: the same verdicts for the same programs."""

import threading
import time

import pytest

from rollick.sandbox.base import Program
from rollick.sandbox.http import HttpClient
from rollick.sandbox.remote import RemoteSandbox
from rollick.sandbox.server import SandboxServer
from rollick.sandbox.unprotected import UnprotectedSandbox
from tests.sandbox.running import local_sandbox, run

CASES = [
    ("print(input()[::-1])", "ok"),
    ("1/0", "exit"),
    ("import time; time.sleep(30)", "timeout"),
    ("import os, time\nif os.fork() == 0: time.sleep(30)\nos.close(1); os.close(2); time.sleep(30)", "timeout"),
    ("while True: print('y' * 500)", "output_limit"),
    ("x = b'1' * (1 << 30)", "memory"),
    ("import os, signal; os.kill(os.getpid(), signal.SIGKILL)", "killed"),
]


@pytest.fixture(scope="module")
def isolated():
    local = local_sandbox()
    server = SandboxServer(("127.0.0.1", 0), local, concurrency=2)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield {"namespaces": local, "remote": RemoteSandbox(HttpClient(server.url))}
    server.shutdown()
    server.server_close()
    local.close()


@pytest.fixture(params=["namespaces", "remote", "unprotected"])
def sandbox(request):
    if request.param == "unprotected":
        return UnprotectedSandbox()
    return request.getfixturevalue("isolated")[request.param]


@pytest.mark.parametrize(("source", "verdict"), CASES)
def test_a_program_has_its_verdict_in_time(sandbox, source, verdict):
    begin = time.monotonic()
    outcome = run(sandbox, source, b"abc", seconds=2.0)
    assert outcome.verdict == verdict
    assert time.monotonic() - begin < 2 + 4
    assert bool(outcome.reason) == (verdict != "ok")
    if verdict == "ok":
        assert (outcome.status, outcome.stdout) == (0, b"cba\n")
    if verdict == "exit":
        assert outcome.status == 1 and b"ZeroDivisionError" in outcome.stderr
    if verdict in ("timeout", "output_limit"):
        assert outcome.status is None


def test_what_cannot_be_started_is_no_fault_of_the_program(sandbox):
    outcome = sandbox.run(Program({}, ("no-such-thing",)))
    assert outcome.verdict == "infrastructure" and "no-such-thing" in outcome.reason


def test_files_lie_where_they_were_said_to_and_contents_are_bytes(sandbox):
    files = {"a/b/c": bytes(range(256)), "run": b"#!/bin/sh\ncat a/b/c; echo $WORD\n"}
    outcome = sandbox.run(Program(files, ("./run",), environment={"WORD": "it's"}))
    assert outcome.stdout == bytes(range(256)) + b"it's\n"


def test_every_sandbox_says_how_it_isolates(sandbox):
    assert sandbox.description and "\n" not in sandbox.description
