"""`rollick sandbox check` and `rollick sandbox serve`, as a user runs them."""

import os
import re
import signal
import subprocess
import sys

import pytest

from rollick.sandbox.http import HttpClient
from rollick.sandbox.remote import RemoteSandbox
from tests.sandbox.running import python, why_not

ROLLICK = [sys.executable, "-c", "from rollick.cli import main; main()", "sandbox"]


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_check_says_how_programs_are_isolated_and_what_a_run_costs():
    result = subprocess.run([*ROLLICK, "check"], capture_output=True, text=True, timeout=60, check=True)
    assert re.match(r"isolation: namespaces \(.*\)\noverhead: \d+ ms a run\npython3: /\S+\n", result.stdout), (
        result.stdout
    )


@pytest.mark.skipif(why_not() is not None, reason=str(why_not()))
def test_serve_runs_programs_until_it_is_interrupted():
    environment = os.environ | {"ROLLICK_SANDBOX_TOKEN": "key"}
    command = [*ROLLICK, "serve", "--port", "0", "--concurrency", "2"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = server.stdout.readline()
            url = line.split()[0]
            assert "2 at a time" in line and "key" not in line
            assert RemoteSandbox(HttpClient(url, "key")).run(python("print(input())", b"x")).stdout == b"x\n"
            refused = RemoteSandbox(HttpClient(url, "other")).run(python("print(1)"))
            assert refused.verdict == "infrastructure" and "token" in refused.reason
            server.send_signal(signal.SIGINT)
            assert server.wait(20) == 0
        finally:
            server.kill()


def test_serve_refuses_to_be_open_to_others_without_a_token():
    environment = {name: value for name, value in os.environ.items() if name != "ROLLICK_SANDBOX_TOKEN"}
    result = subprocess.run(
        [*ROLLICK, "serve", "--host", "0.0.0.0"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert result.returncode == 2
    assert result.stderr.startswith("error: ") and "ROLLICK_SANDBOX_TOKEN" in result.stderr
