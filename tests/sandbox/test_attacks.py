"""Programs that want out. None gets anywhere, each has its verdict in time, and the machine is as it was."""

import os
import platform
import socket
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from rollick.sandbox.base import Limits
from rollick.sandbox.seccomp import denied_calls
from tests.sandbox.attacks import NETWORK, PRELUDE, PRIVILEGES, PROCESSES
from tests.sandbox.attacks_on_storage import FILES, MEMORY
from tests.sandbox.running import descendants, local_sandbox, python, run

GROUPS = {"processes": PROCESSES, "privileges": PRIVILEGES, "memory": MEMORY, "files": FILES, "network": NETWORK}
ATTACKS = {f"{group}: {name}": attack for group, attacks in GROUPS.items() for name, attack in attacks.items()}


class Machine:
    """What attacks aim at, all of it the test's own."""

    def __init__(self, folder: Path):
        self.secret = folder / "secret"
        self.secret.write_text("the secret")
        for parent in (folder, *folder.parents[:3]):
            if os.access(parent, os.W_OK) and parent != Path("/tmp"):
                parent.chmod(0o755)
        self.tcp = socket.create_server(("127.0.0.1", 0))
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.port = self.tcp.getsockname()[1]
        self.udp.bind(("127.0.0.1", self.port))
        self.abstract = f"rollick-test-{os.getpid()}"
        self.unix = socket.socket(socket.AF_UNIX)
        self.unix.bind(f"\0{self.abstract}")
        self.unix.listen()
        for listener in (self.tcp, self.udp, self.unix):
            listener.setblocking(False)
        self.victim = subprocess.Popen(["sleep", "600"])
        self.before = self.state()

    def fill_in(self, source: str) -> str:
        values = {"SECRET": str(self.secret), "PORT": str(self.port), "HOST_PID": str(self.victim.pid)}
        for name, value in (values | {"ABSTRACT": self.abstract}).items():
            source = source.replace(name, value)
        return source

    def state(self) -> dict[str, object]:
        return {
            "hostname": socket.gethostname(),
            "mounts": Path("/proc/self/mounts").read_text(),
            "shared memory": sorted(path.name for path in Path("/dev/shm").iterdir() if "rollick" in path.name),
            "secret": (self.secret.read_text(), self.secret.stat().st_mode),
            "victim": self.victim.poll(),
        }

    def unharmed(self) -> bool:
        for listener in (self.tcp, self.unix):
            with pytest.raises(BlockingIOError):
                listener.accept()
        with pytest.raises(BlockingIOError):
            self.udp.recv(1)
        return self.state() == self.before

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for listener in (self.tcp, self.udp, self.unix):
            listener.close()


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    machine = Machine(tmp_path_factory.mktemp("machine"))
    os.environ["ROLLICK_TEST_SECRET"] = "the secret"
    yield machine
    del os.environ["ROLLICK_TEST_SECRET"]
    machine.close()


@pytest.fixture(scope="module")
def sandbox(machine):
    with local_sandbox() as sandbox:
        yield sandbox


@pytest.mark.parametrize("name", ATTACKS)
def test_an_attack_gets_nowhere_and_has_its_verdict_in_time(sandbox, machine, name):
    attack = ATTACKS[name]
    begin = time.monotonic()
    outcome = run(sandbox, PRELUDE + machine.fill_in(attack.source), **attack.limits)
    seconds = time.monotonic() - begin
    assert outcome.verdict in attack.verdicts, outcome
    assert b"ESCAPED" not in outcome.stdout + outcome.stderr, outcome
    assert attack.says in outcome.stdout, outcome
    assert seconds < attack.limits.get("seconds", 5.0) + 5
    assert machine.unharmed()


def test_there_are_enough_attacks():
    assert len(ATTACKS) >= 60


def test_after_all_attacks_nothing_runs_and_the_sandbox_works(sandbox, machine):
    deadline = time.monotonic() + 5
    while descendants(sandbox._launcher.process.pid) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert descendants(sandbox._launcher.process.pid) == []
    assert run(sandbox, "print('well')").stdout == b"well\n"


def test_counts_are_exact_when_attacks_and_honest_programs_run_together(sandbox):
    """A neighbour that misbehaves costs nobody else a verdict."""
    kinds = {
        "ok": "print(sum(range(1000)))",
        "exit": "import sys; sys.exit(2)",
        "output_limit": "while True: print('x' * 1000)",
        "memory": "x = [bytearray(b'1' * 50_000_000) for _ in range(12)]",
        "timeout": "while True: pass",
        "killed": "import os; os.abort()",
    }
    limits = Limits(seconds=3.0, memory_bytes=256 << 20)
    wanted = list(kinds) * 3
    with ThreadPoolExecutor(3) as pool:
        outcomes = list(pool.map(lambda kind: sandbox.run(python(kinds[kind], limits=limits)), wanted))
    assert [outcome.verdict for outcome in outcomes] == wanted
    assert all(outcome.stdout == b"499500\n" for outcome in outcomes if outcome.verdict == "ok")


def test_every_denied_call_is_denied(sandbox):
    """Called without arguments, which none of them could do harm with."""
    numbers = denied_calls(platform.machine())
    source = f"""
import ctypes, errno
libc = ctypes.CDLL(None, use_errno=True)
for name, number in {numbers!r}.items():
    ctypes.set_errno(0)
    if libc.syscall(number, 0, 0, 0, 0, 0, 0) != -1 or ctypes.get_errno() != errno.EPERM:
        print(name, ctypes.get_errno())
"""
    outcome = run(sandbox, source)
    assert (outcome.verdict, outcome.stdout) == ("ok", b"")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
@pytest.mark.parametrize("mechanism", ["namespaces", "bubblewrap"])
def test_it_holds_without_root_too(tmp_path_factory, mechanism):
    """A user namespace per run; in a process of another user with the system's Python, if it can read what it needs."""
    script = """
import sys
from rollick.sandbox.base import Limits, Program
from rollick.sandbox.local import LocalSandbox
with LocalSandbox(mechanism=sys.argv[1]) as sandbox:
    assert "user namespace" in sandbox.description, sandbox.description
    source = b"import os; os.kill(1, 9); open('/usr/x', 'w')"
    outcome = sandbox.run(Program({"main.py": source}, ("python3", "main.py"), limits=Limits(seconds=5)))
    assert outcome.verdict == "exit" and b"Read-only" in outcome.stderr, outcome
    bomb = b"import os, time\\nn = 0\\nfor _ in range(200):\\n  try:\\n    if os.fork() == 0: time.sleep(2); os._exit(0)\\n    n += 1\\n  except OSError: pass\\nprint(n)"
    outcome = sandbox.run(Program({"main.py": bomb}, ("python3", "main.py"), limits=Limits(seconds=5)))
    assert int(outcome.stdout) < 32, outcome
    for path in ("/", "/dev", "/dev/shm", "/etc"):
        source = f"open('{path}/x', 'w')".encode()
        outcome = sandbox.run(Program({"main.py": source}, ("python3", "main.py"), limits=Limits(seconds=5)))
        assert (outcome.verdict == "ok") == (path == "/dev/shm" and sys.argv[1] == "namespaces"), (path, outcome)
print("held")
"""  # noqa: E501
    python3 = "/usr/bin/python3"
    copy = tmp_path_factory.mktemp("copy") / "lib"
    copy.mkdir()
    subprocess.run(["cp", "-r", str(Path(__file__).parents[2] / "rollick"), str(copy)], check=True)
    for parent in copy.parents[:3]:
        if parent != Path("/tmp"):
            parent.chmod(0o755)
    nobody = {"user": 65534, "group": 65534, "extra_groups": []}
    environment = {"PYTHONPATH": str(copy), "PATH": "/usr/bin:/bin"}
    can = subprocess.run(
        [python3, "-c", "import sys; sys.exit(sys.version_info < (3, 11))"], env=environment, check=False, **nobody
    )
    if can.returncode:
        pytest.skip("the system's Python is older than 3.11")
    result = subprocess.run(
        [python3, "-B", "-c", script, mechanism],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        **nobody,
    )
    if "ConfigError" in result.stderr:
        pytest.skip(f"not possible here: {result.stderr[-200:]}")
    assert result.stdout == "held\n", result.stderr
