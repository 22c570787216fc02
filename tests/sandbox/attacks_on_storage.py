"""What a program may try against memory and disk, and to read or change files (see `tests.sandbox.attacks`)."""

from tests.sandbox.attacks import NO_GOOD_END, ONE_SECOND, Attack

MEMORY = {
    "socket buffers": Attack(
        """
import socket
pairs, sent = [], 0
try:
    while len(pairs) < 200:
        pairs.append(socket.socketpair())
        for end in pairs[-1]:
            end.setblocking(False)
            try:
                while sent < 300 << 20: sent += end.send(bytes(1 << 16))
            except BlockingIOError: pass
except OSError as e: print('held', len(pairs), sent >> 20, e)
else: print('ESCAPED')
""",
        says=b"held",
    ),
    "page tables": Attack(
        """
size = 64 << 30
m = mmap.mmap(-1, size, prot=mmap.PROT_READ)
for at in range(0, size, 4096): m[at]
print('ESCAPED')
""",
        ("memory", "timeout", "exit"),
    ),
    "timers": Attack(
        """
timer = ctypes.c_void_p()
made = 0
while made < 3000 and libc.timer_create(0, None, ctypes.byref(timer)) == 0: made += 1
print('ESCAPED' if made == 3000 else 'held', made)
""",
        says=b"held",
    ),
    "bytes": Attack("x = [bytearray(b'1' * 50_000_000) for _ in range(12)]", ("memory",)),
    "shared mapping": Attack(
        """
m = mmap.mmap(-1, 800 << 20)
for i in range(0, 800 << 20, 4096): m[i] = 1
print('ESCAPED')
""",
        ("memory", "killed"),
        limits={"seconds": 10.0},
    ),
    "memory file": Attack("attempt(os.memfd_create, 'x')", says=b"held PermissionError"),
    "shared memory of System V": Attack("call('shmget', 7, 1 << 20, 0o1666)", says=b"EPERM"),
    "shared memory of POSIX": Attack(
        """
f = open('/dev/shm/x', 'wb')
for _ in range(200): f.write(bytes(1 << 20))
print('ESCAPED')
""",
        ("exit", "killed", "memory"),
    ),
    "message queue": Attack("call('mq_open', b'/q', os.O_CREAT | os.O_RDWR, 0o600, 0)", says=b"EPERM"),
    "locked pages": Attack(
        """
m = mmap.mmap(-1, 1 << 20)
call('mlockall', 3)
""",
        says=b"held",
    ),
    "endless recursion": Attack(
        """
def f(): f()
f()
""",
        ("exit",),
    ),
    "recursion through C": Attack(
        """
sys.setrecursionlimit(10**8)
def f(x): return [*map(f, [x])]
f(1)
""",
        NO_GOOD_END,
        limits={"seconds": 8.0},
    ),
    "zip bomb": Attack(
        """
import zlib
c = zlib.compressobj(1)
d = b''.join([c.compress(bytes(1 << 20)) for _ in range(400)] + [c.flush()])
zlib.decompress(d)
print('ESCAPED')
""",
        ("memory", "timeout"),
        limits={"seconds": 10.0},
    ),
    "great numbers": Attack("print(len(str(7 ** (10 ** 8))))", NO_GOOD_END, limits=ONE_SECOND),
    "backtracking": Attack(
        """
import re
re.match('(a+)+b', 'a' * 60)
""",
        ("timeout",),
        limits=ONE_SECOND,
    ),
    "memory of many children": Attack(
        """
for _ in range(6):
    if os.fork() == 0:
        x = b'1' * (60 << 20); time.sleep(9); os._exit(0)
time.sleep(9)
""",
        ("memory",),
        limits={"seconds": 12.0},
    ),
    "hides from the counting": Attack(
        """
libc.prctl(4, 0, 0, 0, 0)
x = bytearray(b'1' * (200 << 20))
if os.fork() == 0: libc.prctl(4, 0, 0, 0, 0)
y = x + b'1'
time.sleep(9)
""",
        ("memory",),
        limits={"seconds": 12.0},
    ),
}

FILES = {
    "fills the disk": Attack(
        """
f = open('x', 'wb')
try:
    for _ in range(200): f.write(bytes(1 << 20))
except OSError as e: print('held', e)
""",
        ("ok", "exit", "killed"),
        limits={"disk_bytes": 33554432},
    ),
    "fills the disk by many files": Attack(
        """
try:
    for i in range(200): open(str(i), 'wb').write(bytes(1 << 20))
except OSError as e: print('held', i)
else: print('ESCAPED')
""",
        says=b"held",
        limits={"disk_bytes": 33554432},
    ),
    "uses up inodes": Attack(
        """
try:
    for i in range(5000): open(str(i), 'w').close()
except OSError as e: print('held', i, e)
else: print('ESCAPED')
""",
        says=b"held",
    ),
    "a deep tree": Attack(
        """
try:
    for i in range(5000): os.mkdir('d'); os.chdir('d')
except OSError as e: print('held', i)
else: print('ESCAPED')
""",
        says=b"held",
    ),
    "a sparse file": Attack("attempt(lambda: open('x', 'wb').truncate(1 << 40))", ("ok", "killed")),
    "many descriptors": Attack(
        """
try: files = [os.dup(0) for _ in range(500)]
except OSError as e: print('held', e)
else: print('ESCAPED')
""",
        says=b"held",
    ),
    "full pipes": Attack(
        """
n = 0
try:
    while n < 500:
        r, w = os.pipe(); os.set_blocking(w, False); os.write(w, bytes(1 << 16)); n += 1
except OSError as e: print('held', n)
""",
        says=b"held",
    ),
    "writes where it must not": Attack(
        """
for path in (
    '/x', '/usr/x', '/usr/bin/python3', '/etc/passwd', '/dev/x', '/opt/packages/x', '/proc/x',
    '/bin/sh', '/var/x',
):
    attempt(open, path, 'a')
""",
        says=b"held",
    ),
    "removes what it must not": Attack(
        """
for path in ('/etc/passwd', '/usr/bin/env', '/dev/null'): attempt(os.remove, path)
attempt(os.rename, '/usr', '/tmp/usr')
""",
        says=b"held",
    ),
    "changes modes": Attack(
        "for path in ('/', '/usr', '/etc/passwd', '/dev/null'): attempt(os.chmod, path, 0o777)", says=b"held"
    ),
    "reads a secret": Attack("attempt(read, 'SECRET')", says=b"held FileNotFoundError"),
    "reads a secret through a link": Attack(
        """
os.symlink('SECRET', 'link')
attempt(read, 'link')
""",
        says=b"held FileNotFoundError",
    ),
    "links a secret": Attack(
        """
attempt(os.link, 'SECRET', 'hard')
attempt(os.link, '/usr/bin/env', 'env')
""",
        says=b"held",
    ),
    "climbs out": Attack(
        """
attempt(read, '/tmp/' + '../' * 30 + 'SECRET')
attempt(read, '/proc/self/root/SECRET')
attempt(read, '/proc/self/cwd/../SECRET')
""",
        says=b"held",
    ),
    "climbs out by a descriptor": Attack(
        """
fd = os.open('/', os.O_DIRECTORY)
attempt(os.open, '../../SECRET', 0, 0o777)
attempt(lambda: os.open('../SECRET', 0, dir_fd=fd))
""",
        says=b"held",
    ),
    "looks for homes and keys": Attack(
        """
for path in (
    '/root/.bashrc', '/root/.ssh', '/home', '/etc/shadow', '/etc/ssh', '/var', '/run', '/mnt',
    '/srv', '/boot', '/sys',
):
    print('ESCAPED' if os.path.exists(path) else 'held', path)
""",
        says=b"held",
    ),
    "looks into the environment": Attack(
        """
known = {'PATH', 'HOME', 'TMPDIR', 'USER', 'LANG'}
strange = [k for k in os.environ if k not in known and not k.startswith(('PYTHON', 'OMP_', 'OPENBLAS_', 'MKL_', 'LC_'))]
print('ESCAPED' if strange or 'secret' in str(os.environ).lower() else 'held', strange)
""",
        says=b"held",
    ),
    "sees processes of the machine": Attack(
        """
pids = [p for p in os.listdir('/proc') if p.isdigit()]
print('ESCAPED' if len(pids) > 2 else 'held', pids)
attempt(os.listdir, '/proc/HOST_PID/fd')
""",
        says=b"held",
    ),
    "finds descriptors": Attack(
        """
fds = sorted(map(int, os.listdir('/proc/self/fd')))
print('ESCAPED' if len(fds) > 4 else 'held', fds)
for fd in range(4, 60): 
    try: os.write(fd, b'{"verdict": "ok"}')
    except OSError: pass
    else: print('ESCAPED', fd)
""",
        says=b"held",
    ),
    "devices": Attack(
        """
for path in (
    '/dev/mem', '/dev/kmsg', '/dev/vda', '/dev/sda', '/dev/kvm', '/dev/tty', '/dev/ptmx',
    '/dev/nvidia0', '/dev/fuse',
):
    attempt(open, path, 'rb')
""",
        says=b"held",
    ),
    "turns a device into another": Attack(
        """
attempt(os.remove, '/dev/zero')
attempt(os.rename, '/dev/null', '/dev/zero')
""",
        says=b"held",
    ),
    "writes into its stdin": Attack(
        "attempt(lambda: os.write(os.open('/proc/self/fd/0', os.O_RDWR), b'x'))", says=b"held"
    ),
    "removes its own files": Attack(
        """
os.remove('main.py')
import shutil
shutil.rmtree('/tmp', ignore_errors=True)
print('held')
""",
        says=b"held",
    ),
    "file handles": Attack(
        """
call('name_to_handle_at', -100, b'/', bytes(136), bytes(4), 0)
call('open_by_handle_at', -100, bytes(136), 0)
""",
        says=b"EPERM",
    ),
    "shadows the interpreter": Attack(
        """
open('/tmp/json.py', 'w').write('x')
attempt(lambda: open('/opt/packages/json.py', 'w'))
""",
        says=b"held",
    ),
}
