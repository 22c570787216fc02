"""Programs in namespaces: what they may do, what limits do to them, and what is left when they are gone."""

import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rollick.errors import ConfigError
from rollick.sandbox import local
from rollick.sandbox.base import Limits, Outcome, Program
from rollick.sandbox.settings import SandboxSettings, build_sandbox
from tests.sandbox.running import descendants, local_sandbox, own_kibibytes, python, run


@pytest.fixture(scope="module")
def sandbox():
    with local_sandbox() as sandbox:
        yield sandbox


def test_a_program_reads_stdin_and_files_and_prints(sandbox):
    source = "import sys, pathlib; print(sys.stdin.read() + pathlib.Path('a/b.txt').read_text())"
    program = Program({"main.py": source.encode(), "a/b.txt": b"from a file"}, ("python3", "main.py"), b"from stdin, ")
    outcome = sandbox.run(program)
    assert (outcome.verdict, outcome.status, outcome.stdout) == ("ok", 0, b"from stdin, from a file\n")
    assert outcome.reason == "" and 0 < outcome.seconds < 5 and outcome.peak_bytes > 1 << 20


@pytest.mark.parametrize("path", ["/dev/stdin", "/proc/self/fd/0"])
def test_stdin_can_be_opened_by_name(sandbox, path):
    assert (
        run(sandbox, f"print(open('{path}').read()); open('/dev/stdout', 'w').write('x')", b"abc").stdout == b"xabc\n"
    )


def test_a_large_stdin_is_read_or_left_alone(sandbox):
    data = b"7\n" * (10 << 20)
    assert run(sandbox, "import sys; print(len(sys.stdin.buffer.read()))", data).stdout == b"20971520\n"
    assert run(sandbox, "print('unread')", data).stdout == b"unread\n"


def test_exit_status_and_last_words_are_reported(sandbox):
    outcome = run(sandbox, "import sys; print('why', file=sys.stderr); sys.exit(3)")
    assert (outcome.verdict, outcome.status, outcome.reason) == ("exit", 3, "exit status 3: why")


def test_a_signal_is_reported_as_killed(sandbox):
    outcome = run(sandbox, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert (outcome.verdict, outcome.status) == ("killed", -signal.SIGSEGV)


def test_an_interpreter_that_is_not_there_is_no_fault_of_the_program(sandbox):
    outcome = sandbox.run(Program({}, ("no-such-thing",)))
    assert outcome.verdict == "infrastructure" and "no-such-thing" in outcome.reason


def test_memory_past_the_limit_is_refused_and_said_so(sandbox):
    """Case 82: the first program ends as `memory`, this process does not grow, and numpy fits in the same limit."""
    before = own_kibibytes()
    eats = "x = []\nfor _ in range(10): x.append(bytearray(b'1' * 100_000_000))"
    assert run(sandbox, eats).verdict == "memory"
    assert own_kibibytes() - before < 20 * 1024
    outcome = run(sandbox, "import numpy; print(int(numpy.ones(3).sum()))", seconds=30.0)
    assert (outcome.verdict, outcome.stdout) == ("ok", b"3\n")


def test_memory_is_counted_over_all_processes(sandbox):
    source = """
import os, time
for _ in range(5):
    if os.fork() == 0:
        x = bytearray(os.urandom(1 << 20) * 90)
        time.sleep(20)
        os._exit(0)
os.wait()
"""
    outcome = run(sandbox, source, seconds=15.0)
    assert outcome.verdict == "memory" and outcome.seconds < 15


@pytest.mark.parametrize(
    "source",
    [
        "while True: print('y' * 500)",
        "import sys\nwhile True: print('y' * 500, file=sys.stderr)",
        "print('y' * 200_000_000)",
        "import os\nwhile True: os.write(1, bytes(65536))",
    ],
    ids=["stdout", "stderr", "one long line", "zeros"],
)
def test_endless_output_is_stopped_at_the_limit_and_not_buffered(sandbox, source):
    """Case 83."""
    before, begin = own_kibibytes(), time.monotonic()
    outcome = run(sandbox, source, memory_bytes=512 << 20)
    assert outcome.verdict == "output_limit"
    assert max(len(outcome.stdout), len(outcome.stderr)) == 1 << 20
    assert own_kibibytes() - before < 20 * 1024
    assert time.monotonic() - begin < 5 + 2


def test_output_of_just_the_limit_is_no_offence(sandbox):
    outcome = run(sandbox, "print('x' * 999, end='\\n')", output_bytes=1000)
    assert (outcome.verdict, len(outcome.stdout)) == ("ok", 1000)
    assert run(sandbox, "print('x' * 1000)", output_bytes=1000).verdict == "output_limit"


@pytest.mark.parametrize(
    "source", ["while True: pass", "import time; time.sleep(60)", "input(); import os; os.pause()"]
)
def test_a_program_without_end_is_ended(sandbox, source):
    begin = time.monotonic()
    outcome = run(sandbox, source, b"\n", seconds=0.5)
    assert outcome.verdict in ("timeout", "exit")
    assert time.monotonic() - begin < 4


def test_runs_do_not_see_each_other(sandbox):
    """Files, processes and abstract sockets of one run are not there in another that runs at the same time."""
    stays = python("import os, socket, time\nopen('mark', 'w')\ns = socket.socket(socket.AF_UNIX)\n"
                   "s.bind('\\0mark')\ns.listen()\nprint('up', flush=True)\ntime.sleep(2)")  # fmt: skip
    looks = """
import os, socket, time
time.sleep(0.7)
print(os.path.exists('mark'), sorted(p for p in os.listdir('/proc') if p.isdigit()) == ['1', str(os.getpid())])
try:
    socket.socket(socket.AF_UNIX).connect('\\0mark')
    print('reached')
except ConnectionRefusedError:
    print('alone')
"""
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(sandbox.run, stays)
        second = pool.submit(sandbox.run, python(looks))
        assert second.result().stdout == b"False True\nalone\n"
        assert first.result().stdout == b"up\n"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give uids away")
def test_every_concurrent_run_has_a_uid_of_its_own(sandbox):
    source = python("import os, time; print(os.getuid()); time.sleep(1)")
    with ThreadPoolExecutor(3) as pool:
        uids = {outcome.stdout for outcome in pool.map(sandbox.run, [source] * 3)}
    assert len(uids) == 3 and b"0\n" not in uids


def test_nothing_is_left_when_a_run_is_over(sandbox):
    """No process, no zombie, no open file, also after programs that start daemons."""
    daemon = """
import os, time
if os.fork() == 0:
    os.setsid()
    os.fork()
    time.sleep(60)
print('left two behind')
"""
    run(sandbox, "pass")
    fds = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        assert run(sandbox, daemon).stdout == b"left two behind\n"
    launcher = sandbox._launcher.process.pid
    deadline = time.monotonic() + 5
    while descendants(launcher) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert descendants(launcher) == []
    assert len(os.listdir("/proc/self/fd")) == fds


def test_a_launcher_that_died_is_replaced_and_its_runs_go_on():
    with local_sandbox() as sandbox:
        running = threading.Thread(target=lambda: outcomes.append(run(sandbox, "import time; time.sleep(3)")))
        outcomes = []
        running.start()
        time.sleep(0.5)
        sandbox._launcher.process.kill()
        sandbox._launcher.process.wait()
        assert run(sandbox, "print(1)").stdout == b"1\n"
        running.join(20)
        assert outcomes[0].verdict == "ok", "its run needed the launcher no more"


def test_runs_end_with_the_process_that_asked_for_them():
    """Also when it is killed: its lifelines close."""
    ours = local_sandbox()
    child = os.fork()
    if child == 0:
        run(local.LocalSandbox(), "import time; time.sleep(50)", seconds=60.0)
        os._exit(0)
    time.sleep(1.5)
    tree = descendants(child)
    assert len(tree) >= 4, "launcher, supervisor, init, program"
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    deadline = time.monotonic() + 10
    while any(os.path.exists(f"/proc/{pid}/exe") and _alive(pid) for pid in tree) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert [pid for pid in tree if _alive(pid)] == []
    ours.close()


def _alive(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_run_costs_little_when_warm(sandbox):
    """Beyond the time of the program itself. The best of many: other work on this machine is not what is measured."""
    best = 1.0
    for _ in range(20):
        begin = time.monotonic()
        outcome = sandbox.run(Program({}, ("true",)))
        best = min(best, time.monotonic() - begin - outcome.seconds)
    assert best < 0.03


def test_a_closed_sandbox_can_be_closed_again():
    sandbox = local_sandbox()
    sandbox.close()
    sandbox.close()


def test_names_of_files_cannot_leave_the_folder():
    for name in ("/etc/x", "../x", "a/../../x", "", "a\0b"):
        with pytest.raises(ValueError, match="relative path"):
            Program({name: b""}, ("true",))
    with pytest.raises(ValueError, match="needs a command"):
        Program({}, ())
    with pytest.raises(ValueError, match="must be positive"):
        Limits(seconds=0)


def test_a_machine_that_cannot_isolate_is_refused_with_the_choices(monkeypatch):
    def refuses(*_):
        raise ConfigError("unshare: Operation not permitted")

    monkeypatch.setattr(local, "_Launcher", refuses)
    with pytest.raises(ConfigError, match=r"Operation not permitted.*user namespaces.*sandbox\.url.*isolation: none"):
        build_sandbox(SandboxSettings())


@pytest.mark.parametrize(("isolation", "tried"), [("auto", 2), ("namespaces", 1), ("bubblewrap", 1)])
def test_only_mechanisms_that_were_asked_for_are_tried(monkeypatch, isolation, tried):
    names = []

    class Refuses:
        def __init__(self, visible, mechanism):
            names.append(mechanism)
            raise ConfigError("not here")

    monkeypatch.setattr(local, "_Launcher", Refuses)
    with pytest.raises(ConfigError, match="not here"):
        build_sandbox(SandboxSettings(isolation=isolation))
    assert len(names) == tried


def test_a_sandbox_that_only_seems_to_work_is_refused(monkeypatch):
    if not hasattr(os, "pidfd_open"):
        pytest.skip("needs Linux")
    local_sandbox().close()
    monkeypatch.setattr(local.LocalSandbox, "run", lambda *_: Outcome("ok", 0, b"ready\n0\n"))
    with pytest.raises(ConfigError, match="a first program printed"):
        build_sandbox(SandboxSettings())
