"""Sandboxes behind HTTP: our own server and the clients of other services, against stubs on loopback."""

import json
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rollick.errors import ConfigError
from rollick.sandbox import http as sandbox_http
from rollick.sandbox import server as server_module
from rollick.sandbox.base import Limits, Outcome, Program, infrastructure
from rollick.sandbox.http import HttpClient, ServiceError
from rollick.sandbox.remote import RemoteSandbox, decode_outcome, decode_program, encode_outcome, encode_program
from rollick.sandbox.rock import RockSandbox
from rollick.sandbox.sandbox_fusion import SandboxFusion
from rollick.sandbox.server import SandboxServer
from rollick.sandbox.settings import SandboxSettings, build_sandbox
from tests.sandbox.running import local_sandbox, python

PROGRAM = Program({"a/main.py": b"print(1)\n\xff"}, ("python3", "a/main.py"), b"in", Limits(seconds=2.5), {"X": "it's"})
RIGHT = encode_outcome(Outcome("ok", 0, b"1\n"))


class Stub(ThreadingHTTPServer):
    """Answers the calls in order by what `answers` says: a status and an object, or seconds of silence."""

    daemon_threads = True

    def __init__(self, *answers):
        super().__init__(("127.0.0.1", 0), StubHandler)
        self.answers = list(answers)
        self.calls = []
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self):
        return f"http://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request, client_address):
        pass


class StubHandler(BaseHTTPRequestHandler):
    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.calls.append((self.path, body, self.headers.get("Authorization")))
        answers = self.server.answers
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        answer = answer(self.path, body) if callable(answer) else answer
        if isinstance(answer, float):
            time.sleep(answer)
            answer = (200, RIGHT)
        status, record = answer
        data = record if isinstance(record, bytes) else json.dumps(record).encode()
        self.send_response(status)
        if status == 302:
            self.send_header("Location", record["to"])
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_):
        pass


@pytest.fixture
def stub():
    stubs = []

    def make(*answers):
        stubs.append(Stub(*answers))
        return stubs[-1]

    yield make
    for one in stubs:
        one.shutdown()
        one.server_close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(sandbox_http, "_FIRST_PAUSE_SECONDS", 0.02)


def client(service, **options):
    return HttpClient(service.url, **{"timeout": 5.0, "attempts": 4, **options})


def test_a_service_that_fails_at_first_is_asked_again(stub):
    """Case 84: silence, then status 500, then the right answer."""
    service = stub(1.5, (500, {"error": "busy"}), (200, RIGHT))
    remote = RemoteSandbox(HttpClient(service.url, timeout=0.5, attempts=4))
    program = python("print(1)", limits=Limits(seconds=0.3))
    outcome = remote.run(program)
    assert (outcome.verdict, outcome.stdout) == ("ok", b"1\n")
    assert len(service.calls) == 3


@pytest.mark.parametrize(
    "answer",
    [(500, {}), (200, b"no json"), (200, ["a", "list"]), (200, {"verdict": "ok"}), (200, RIGHT | {"verdict": "fine"})],
)
def test_a_service_that_always_fails_is_no_wrong_answer(stub, answer):
    """Case 84."""
    service = stub(answer)
    outcome = RemoteSandbox(client(service, attempts=2)).run(PROGRAM)
    assert outcome.verdict == "infrastructure" and outcome.reason


def test_a_refusal_is_not_repeated(stub):
    service = stub((401, {"error": "a valid token is needed"}))
    outcome = RemoteSandbox(client(service)).run(PROGRAM)
    assert outcome.verdict == "infrastructure" and "a valid token is needed" in outcome.reason
    assert len(service.calls) == 1


def test_a_token_goes_to_no_other_address(stub):
    other = stub((200, RIGHT))
    outcome = RemoteSandbox(client(stub((302, {"to": f"{other.url}/v1/run"})), token="key")).run(PROGRAM)
    assert outcome.verdict == "infrastructure" and "302" in outcome.reason
    assert other.calls == []


def test_a_service_that_is_down_is_left_alone_for_a_while(stub, monkeypatch):
    monkeypatch.setattr(sandbox_http, "BREAKER_PAUSE_SECONDS", 0.5)
    service = stub(*[(503, {})] * 5, (200, RIGHT))
    remote = RemoteSandbox(client(service, attempts=1))
    for _ in range(sandbox_http.BREAKER_FAILURES):
        assert remote.run(PROGRAM).verdict == "infrastructure"
    assert "asked again in" in remote.run(PROGRAM).reason
    assert len(service.calls) == 5, "the breaker is open"
    time.sleep(0.6)
    assert remote.run(PROGRAM).verdict == "ok"
    assert remote.run(PROGRAM).verdict == "ok"


def test_nobody_listening_is_an_infrastructure_failure():
    outcome = RemoteSandbox(HttpClient("http://127.0.0.1:9", attempts=2)).run(PROGRAM)
    assert outcome.verdict == "infrastructure" and "2 times" in outcome.reason


def test_a_reply_without_end_is_not_taken_in(stub, monkeypatch):
    monkeypatch.setattr(sandbox_http, "MAX_REPLY_BYTES", 1000)
    with pytest.raises(ServiceError, match="longer than 1000 bytes"):
        client(stub((200, {"x": "y" * 2000})), attempts=1).post("/", {})


def test_programs_and_outcomes_survive_the_journey():
    assert decode_program(json.loads(json.dumps(encode_program(PROGRAM)))) == PROGRAM
    outcome = Outcome("memory", None, b"\xff\x00", b"words", 1.5, 1.0, 7, "why")
    assert decode_outcome(json.loads(json.dumps(encode_outcome(outcome)))) == outcome


@pytest.mark.parametrize(
    "change",
    [
        {"files": {"../x": ""}},
        {"files": {"/x": ""}},
        {"files": {"x": "no base64!"}},
        {"files": [1]},
        {"command": []},
        {"command": "sh -c x"},
        {"command": [1]},
        {"stdin": 3},
        {"limits": {"seconds": "1"}},
        {"limits": {"seconds": True}},
        {"limits": {"seconds": -1}},
        {"limits": {"more": 1}},
        {"environment": {"A": 1}},
        {"surplus": 1},
    ],
)
def test_a_request_that_is_not_as_agreed_is_refused(change):
    with pytest.raises(ValueError, match=r"\w"):
        decode_program(encode_program(PROGRAM) | change)


class Slow:
    """A sandbox that counts how many runs there are at a time."""

    description = "slow"

    def __init__(self):
        self.now = self.most = 0
        self.lock = threading.Lock()

    def run(self, program):
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0.1)
        with self.lock:
            self.now -= 1
        return Outcome("ok", 0, program.stdin)


@pytest.fixture
def serve():
    servers = []

    def start(sandbox, **options):
        server = SandboxServer(("127.0.0.1", 0), sandbox, **{"concurrency": 2, **options})
        threading.Thread(target=server.serve_forever, daemon=True).start()
        servers.append(server)
        return server

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def test_the_server_runs_programs_in_its_sandbox(serve):
    with local_sandbox() as sandbox:
        remote = RemoteSandbox(client(serve(sandbox)))
        assert remote.run(python("print(input())", b"hello")).stdout == b"hello\n"
        assert remote.run(python("while True: pass", limits=Limits(seconds=0.5))).verdict == "timeout"
        assert remote.run(python("1/0")).verdict == "exit"


def test_the_server_wants_its_token(serve, monkeypatch):
    server = serve(Slow(), token="key")
    for token in (None, "wrong", "ключ"):
        monkeypatch.setenv("A_TOKEN", token or "")
        outcome = RemoteSandbox(client(server, token=token if token != "ключ" else "k")).run(PROGRAM)
        assert outcome.verdict == "infrastructure" and "token" in outcome.reason
    monkeypatch.setenv("A_TOKEN", "key")
    remote = build_sandbox(SandboxSettings(url=server.url, token_env="A_TOKEN"))
    assert remote.run(PROGRAM).verdict == "ok"
    assert "key" not in remote.description and server.url in remote.description


def test_a_token_that_is_not_set_is_said_at_the_start(monkeypatch):
    monkeypatch.delenv("A_TOKEN", raising=False)
    with pytest.raises(ConfigError, match="A_TOKEN"):
        build_sandbox(SandboxSettings(url="http://127.0.0.1:1", token_env="A_TOKEN"))


def test_the_server_runs_so_many_at_a_time_and_loses_none(serve):
    slow = Slow()
    server = serve(slow, concurrency=2)
    remote = RemoteSandbox(client(server))
    programs = [Program({}, ("x",), stdin=str(i).encode()) for i in range(12)]
    with ThreadPoolExecutor(12) as pool:
        outcomes = list(pool.map(remote.run, programs))
    assert [outcome.stdout for outcome in outcomes] == [program.stdin for program in programs]
    assert slow.most == 2 and server.served == 12 and server.running == 0


def test_a_full_server_says_come_again(serve, monkeypatch):
    monkeypatch.setattr(server_module, "QUEUE_SECONDS", 0.01)
    remote = RemoteSandbox(client(serve(Slow(), concurrency=1), attempts=1))
    with ThreadPoolExecutor(4) as pool:
        outcomes = list(pool.map(remote.run, [PROGRAM] * 4))
    busy = [outcome for outcome in outcomes if outcome.verdict == "infrastructure"]
    assert busy and all("come again" in outcome.reason for outcome in busy)


def test_the_server_bounds_requests_and_limits(serve, monkeypatch):
    server = serve(Slow())
    monkeypatch.setattr(server_module, "MAX_REQUEST_BYTES", 5000)
    remote = RemoteSandbox(client(server, attempts=1))
    assert "5000 bytes" in remote.run(Program({"x": bytes(9000)}, ("x",))).reason
    assert "seconds = 1000" in remote.run(Program({}, ("x",), limits=Limits(seconds=1000))).reason
    assert remote.run(PROGRAM).verdict == "ok"


def test_the_server_lives_on_after_nonsense(serve):
    server = serve(Slow())
    for path, body in (("/v1/run", {"x": 1}), ("/other", {})):
        with pytest.raises(ServiceError, match="refused"):
            client(server).post(path, body)
    assert RemoteSandbox(client(server)).run(PROGRAM).verdict == "ok"


def fusion(result, status="Success"):
    base = {"status": "Finished", "execution_time": 0.1, "return_code": 0, "stdout": "", "stderr": ""}
    return (200, {"status": status, "message": "", "run_result": None if result is None else base | result})


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (fusion({"stdout": "1\n"}), "ok"),
        (fusion({"return_code": 1}, "Failed"), "exit"),
        (fusion({"return_code": 1, "stderr": "MemoryError\n"}, "Failed"), "memory"),
        (fusion({"status": "TimeLimitExceeded", "return_code": None}, "Failed"), "timeout"),
        (fusion({"status": "TimeLimitExceeded"}, "Success"), "timeout"),
        (fusion({"status": "Error", "return_code": None}, "Failed"), "infrastructure"),
        (fusion(None, "SandboxError"), "infrastructure"),
        (fusion({"stdout": "x" * (1 << 21)}), "output_limit"),
    ],
)
def test_sandbox_fusion(stub, answer, verdict):
    """Case 84: what is called a success and carries a time-out is a time-out."""
    service = stub(answer)
    outcome = SandboxFusion(client(service)).run(PROGRAM)
    assert outcome.verdict == verdict
    [(path, body, _)] = service.calls
    assert path == "/run_code" and body["language"] == "bash" and body["stdin"] == "in"
    assert body["files"] == {"a/main.py": "cHJpbnQoMSkK/w=="} and body["run_timeout"] == 2.5
    assert body["code"].splitlines() == ["""export X='it'"'"'s'""", "exec python3 a/main.py"]


def rock(exit_code=0, stdout="1\n", stderr="", fails=""):
    def answer(path, body):
        if path.endswith(fails) and fails:
            return 200, {"status": "Failed", "error": "no capacity"}
        result = {"sandbox_id": "s1"} if path.endswith("/start") else None
        if path.endswith("/execute"):
            result = {"exit_code": exit_code, "stdout": stdout, "stderr": stderr}
        return 200, {"status": "Success", "result": result}

    return answer


@pytest.mark.parametrize(
    ("answer", "verdict"),
    [
        (rock(), "ok"),
        (rock(exit_code=3), "exit"),
        (rock(exit_code=124), "timeout"),
        (rock(exit_code=137), "timeout"),
        (rock(exit_code=None), "infrastructure"),
        (rock(fails="/start"), "infrastructure"),
        (rock(fails="/execute"), "infrastructure"),
    ],
)
def test_rock(stub, answer, verdict):
    service = stub(answer)
    outcome = RockSandbox(client(service), "python:3.11").run(PROGRAM)
    assert outcome.verdict == verdict
    paths = [path.rpartition("/")[2] for path, _, _ in service.calls]
    assert paths[0] == "start"
    if len(paths) > 1:
        assert paths == ["start", "write_file", "write_file", "write_file", "execute", "stop"]


def test_the_script_for_rock_does_what_it_says(stub):
    """The script is run for real, in a sandbox of this machine."""
    local_sandbox().close()
    written = {}

    def answer(path, body):
        if path.endswith("/write_file"):
            written[body["path"].rpartition("/")[2]] = body["content"].encode()
        if path.endswith("/execute"):
            with local_sandbox() as sandbox:
                files = {f"rollick-run/{name}": content for name, content in written.items()}
                done = sandbox.run(Program(files, ("sh", "rollick-run/run.sh")))
            return 200, {
                "status": "Success",
                "result": {"exit_code": done.status, "stdout": done.stdout.decode(), "stderr": done.stderr.decode()},
            }
        return 200, {"status": "Success", "result": {"sandbox_id": "s1"}}

    source = "import os, sys; print(sys.stdin.read(), os.environ['X'], open('b/c').read())"
    program = Program(
        {"a/main.py": source.encode(), "b/c": b"kept"}, ("python3", "a/main.py"), b"in", environment={"X": "it's"}
    )
    outcome = RockSandbox(client(stub(answer)), "x").run(program)
    assert outcome.stdout == b"in it's kept\n", outcome


def test_infrastructure_is_a_value_with_a_reason():
    assert infrastructure("why") == Outcome("infrastructure", reason="why")


def test_an_address_must_be_http():
    with pytest.raises(ValueError, match="http://"):
        SandboxSettings(url="host:80")
