"""What a program may try. Each attack is bounded by itself, so that a hole could not hurt the machine.

An attack prints `ESCAPED` when something worked that must not. SECRET, PORT, HOST_PID and ABSTRACT are replaced by
things of the test's own: a file, a listener on loopback, a process, a listener on an abstract socket.
"""

from dataclasses import dataclass, field

PRELUDE = """
import ctypes, errno, mmap, os, resource, signal, socket, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)

def attempt(f, *args):
    try:
        result = f(*args)
    except BaseException as error:
        print('held', type(error).__name__, str(error)[:80], flush=True)
    else:
        print('ESCAPED', repr(result)[:200], flush=True)

def call(name, *args):
    ctypes.set_errno(0)
    result = getattr(libc, name)(*args)
    print('held' if result == -1 else 'ESCAPED', name, result, errno.errorcode.get(ctypes.get_errno()), flush=True)

def read(path):
    with open(path, 'rb') as file:
        return file.read(100)
"""


@dataclass(frozen=True)
class Attack:
    source: str
    verdicts: tuple[str, ...] = ("ok",)
    says: bytes = b""
    """Must be in what it prints."""
    limits: dict = field(default_factory=dict)


ONE_SECOND = {"seconds": 1.0}
NO_GOOD_END = ("exit", "killed", "memory", "timeout")
ANY_END = (*NO_GOOD_END, "ok")


PROCESSES = {
    "fork bomb": Attack(
        """
children = 0
for _ in range(300):
    try:
        if os.fork() == 0: time.sleep(3); os._exit(0)
        children += 1
    except BlockingIOError: pass
print('ESCAPED' if children > 31 else 'held', children)
""",
        says=b"held",
    ),
    "fork bomb of children": Attack(
        """
for _ in range(7):
    try: os.fork()
    except BlockingIOError: os._exit(0)
time.sleep(2)
""",
        ANY_END,
    ),
    "thread bomb": Attack(
        """
n = 0
threading.stack_size(65536)
for _ in range(300):
    try: threading.Thread(target=time.sleep, args=(2,), daemon=True).start(); n += 1
    except RuntimeError: break
print('ESCAPED' if n > 31 else 'held', n)
""",
        says=b"held",
    ),
    "shell bomb": Attack(
        "os.execvp('bash', ['bash', '-c', 'for i in $(seq 200); do sleep 2 & done; echo held'])", ANY_END
    ),
    "daemon in a session of its own": Attack(
        """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0: time.sleep(60)
    os._exit(0)
print('held')
""",
        says=b"held",
    ),
    "daemon that holds stdout and ignores signals": Attack(
        """
if os.fork() == 0:
    for s in range(1, 32):
        try: signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError): pass
    os.setsid(); time.sleep(60)
print('held')
""",
        says=b"held",
    ),
    "ignores SIGTERM": Attack(
        """
signal.signal(15, signal.SIG_IGN)
while True: pass
""",
        ("timeout",),
        limits=ONE_SECOND,
    ),
    "ignores SIGXCPU": Attack(
        """
signal.signal(24, signal.SIG_IGN)
while True: pass
""",
        ("timeout",),
        limits=ONE_SECOND,
    ),
    "stops itself": Attack("os.kill(os.getpid(), signal.SIGSTOP)", ("timeout",), limits=ONE_SECOND),
    "burns CPU in children": Attack(
        """
for _ in range(8): os.fork()
while True: pass
""",
        NO_GOOD_END,
        limits={"seconds": 1.0, "processes": 8},
    ),
    "kills init": Attack(
        """
attempt(os.kill, 1, 9)
attempt(os.kill, os.getppid(), 15)
""",
        says=b"held",
    ),
    "every signal to init": Attack(
        """
for s in range(1, 65):
    try: os.kill(1, s)
    except OSError: pass
time.sleep(.1)
print('held')
""",
        says=b"held",
    ),
    "kills everything it can see": Attack("attempt(os.kill, -1, 9)", says=b"held"),
    "kills a process of the machine": Attack("attempt(os.kill, HOST_PID, 9)", says=b"held ProcessLookupError"),
    "leaves at once": Attack("os._exit(0)"),
    "aborts": Attack("os.abort()", ("killed",)),
    "exits from a thread": Attack(
        """
threading.Thread(target=os._exit, args=(7,)).start()
time.sleep(9)
""",
        ("exit",),
    ),
    "raises its priority": Attack("attempt(os.nice, -5)", says=b"held"),
    "realtime priority": Attack("attempt(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(50))", says=b"held"),
    "raises its limits": Attack(
        """
for kind in (resource.RLIMIT_NPROC, resource.RLIMIT_CPU, resource.RLIMIT_DATA, resource.RLIMIT_FSIZE):
    attempt(resource.setrlimit, kind, (resource.RLIM_INFINITY,) * 2)
""",
        says=b"held",
    ),
    "lowers the limits of init": Attack("attempt(resource.prlimit, 1, resource.RLIMIT_CPU, (1, 1))", says=b"held"),
    "slows init down": Attack(
        """
os.setpriority(os.PRIO_PROCESS, 1, 19)
while True: pass
""",
        NO_GOOD_END,
        limits=ONE_SECOND,
    ),
}

PRIVILEGES = {
    "becomes root": Attack(
        """
attempt(os.setuid, 0)
attempt(os.setresuid, 0, 0, 0)
attempt(os.setgid, 0)
""",
        says=b"held",
    ),
    "becomes a neighbour": Attack("attempt(os.setuid, os.getuid() + 1)", says=b"held"),
    "takes groups": Attack("attempt(os.setgroups, [0, 1, 2])", says=b"held"),
    "has no capability": Attack(
        """
status = open('/proc/self/status').read()
for name in ('CapInh', 'CapPrm', 'CapEff', 'CapBnd', 'CapAmb'):
    value = status.split(name + ':')[1].split()[0]
    print('held' if int(value, 16) == 0 else 'ESCAPED', name, value)
""",
        says=b"held CapEff",
    ),
    "runs set-uid programs": Attack(
        """
import subprocess
for command in (['su', '-c', 'id -u'], ['sudo', '-n', 'id', '-u'], ['mount', '-t', 'tmpfs', 'x', '/tmp']):
    try: out = subprocess.run(command, capture_output=True, timeout=3, stdin=subprocess.DEVNULL)
    except OSError as e: print('held', e); continue
    print('ESCAPED' if out.returncode == 0 else 'held', out.stderr[:80])
""",
        says=b"held",
    ),
    "new namespaces": Attack(
        """
for flag in (0x10000000, 0x00020000, 0x20000000, 0x40000000, 0x08000000, 0x04000000, 0x02000000):
    call('unshare', flag)
""",
        says=b"held unshare -1 EPERM",
    ),
    "clone into a user namespace": Attack("call('syscall', 56, 0x10000011, 0, 0, 0, 0)", says=b"held"),
    "clone3": Attack("call('syscall', 435, bytes(88), 88)", says=b"ENOSYS"),
    "32-bit numbers of calls": Attack("call('syscall', 0x40000000 | 39)", says=b"held"),
    "calls of the future": Attack("call('syscall', 1000)", says=b"ENOSYS"),
    "enters namespaces": Attack("call('setns', os.open('/proc/self/ns/net', 0), 0)", says=b"EPERM"),
    "mounts": Attack(
        """
call('mount', b'x', b'/tmp', b'tmpfs', 0, 0)
call('mount', b'proc', b'/proc', b'proc', 0, 0)
""",
        says=b"EPERM",
    ),
    "unmounts": Attack(
        """
call('umount2', b'/tmp', 2)
call('umount2', b'/proc', 2)
""",
        says=b"EPERM",
    ),
    "makes its root writable": Attack("call('mount', b'', b'/', b'', 32 | 4096, 0)", says=b"EPERM"),
    "chroot": Attack("attempt(os.chroot, '/tmp')", says=b"held"),
    "device files": Attack(
        """
attempt(os.mknod, '/tmp/disk', 0o60666, os.makedev(254, 0))
attempt(os.mknod, '/tmp/mem', 0o20666, os.makedev(1, 1))
""",
        says=b"held",
    ),
    "attaches to init": Attack(
        """
call('ptrace', 16, 1, 0, 0)
call('ptrace', 0, 0, 0, 0)
""",
        says=b"EPERM",
    ),
    "reads memory of init": Attack(
        """
attempt(read, '/proc/1/mem')
attempt(read, '/proc/1/maps')
attempt(os.readlink, '/proc/1/exe')
""",
        says=b"held",
    ),
    "reads environment and files of init": Attack(
        """
attempt(read, '/proc/1/environ')
attempt(os.listdir, '/proc/1/fd')
attempt(os.listdir, '/proc/1/root')
""",
        says=b"held",
    ),
    "takes descriptors of init": Attack("call('syscall', 438, os.pidfd_open(1), 0, 0)", says=b"EPERM"),
    "changes its hostname": Attack("attempt(socket.sethostname, 'mine')", says=b"held"),
    "sets the clock": Attack("attempt(time.clock_settime, time.CLOCK_REALTIME, time.time() + 1)", says=b"held"),
    "types into a terminal": Attack("call('ioctl', 0, 0x5412, b'x')", says=b"EPERM"),
    "protects itself from the OOM killer": Attack(
        "attempt(lambda: os.write(os.open('/proc/self/oom_score_adj', os.O_WRONLY), b'-1000'))", says=b"held"
    ),
    "sets kernel variables": Attack("attempt(lambda: open('/proc/sys/kernel/hostname', 'w'))", says=b"held"),
    "sysrq": Attack("attempt(lambda: open('/proc/sysrq-trigger', 'w'))", says=b"held"),
}

NETWORK = {
    "connects by TCP": Attack("attempt(socket.create_connection, ('127.0.0.1', PORT), 2)", says=b"held"),
    "connects by TCP to every address": Attack(
        "for host in ('localhost', '0.0.0.0', '::1'): attempt(socket.create_connection, (host, PORT), 2)", says=b"held"
    ),
    "sends by UDP": Attack(
        "attempt(lambda: socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', PORT)))",
        says=b"held",
    ),
    "raw packets": Attack(
        """
attempt(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)
attempt(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)
""",
        says=b"held",
    ),
    "kernel sockets": Attack(
        "for family in (16, 38, 40, 17, 2, 10, 31): attempt(socket.socket, family, socket.SOCK_RAW)", says=b"held"
    ),
    "listens": Attack("attempt(lambda: socket.create_server(('127.0.0.1', 0)))", says=b"held"),
    "abstract socket of the machine": Attack(
        "attempt(lambda: socket.socket(socket.AF_UNIX).connect('\\0ABSTRACT'))", says=b"held"
    ),
    "asks for names": Attack(
        """
attempt(socket.getaddrinfo, 'localhost.localdomain', 80)
print('held')
""",
        says=b"held",
    ),
    "curl": Attack("os.execvp('sh', ['sh', '-c', 'exec 3<>/dev/tcp/127.0.0.1/PORT && echo ESCAPED'])", ("exit",)),
    "bash network": Attack(
        "os.execvp('bash', ['bash', '-c', 'exec 3<>/dev/tcp/127.0.0.1/PORT && echo ESCAPED || echo held'])",
        ("ok", "exit"),
    ),
}
