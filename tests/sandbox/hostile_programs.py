"""Programs that try to get out of the sandbox, to outlive it or to take the machine down.

Each is written bounded: where containment fails, it ends by itself within seconds and takes at most a few hundred
processes or a few gigabytes, so that a failing test does not take down the machine it runs on.

``PROGRAMS`` maps a name to ``(code, verdicts)``; a program that prints ``ESCAPED`` has got through. ``END`` (on the
monotonic clock), ``OUTSIDE`` (a file), ``PARENT`` (a process) and ``PORT`` (of a listener) are defined for each.
"""

from __future__ import annotations

import textwrap

#: Seconds after which those that do not end by themselves are stopped.
TIMEOUT = 0.4

#: Prepended to all.
PRELUDE = """
import os, sys, time, signal
def attempt(function, *arguments):
    try:
        function(*arguments)
    except BaseException as e:
        print("refused", type(e).__name__)
    else:
        print("ESCAPED", getattr(function, "__name__", function))
"""

PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {}


def program(name: str, verdicts: str, code: str) -> None:
    PROGRAMS[name] = textwrap.dedent(code), tuple(verdicts.split())


# -- time --------------------------------------------------------------------------------------------------------------

program(
    "busy loop",
    "timeout",
    """
    while time.monotonic() < END: pass
    """,
)
program(
    "sleep",
    "timeout",
    """
    time.sleep(20)
    """,
)
program(
    "ignored signals",
    "timeout",
    """
    for s in range(1, 65):
        try: signal.signal(s, signal.SIG_IGN)
        except (OSError, ValueError): pass
    while time.monotonic() < END: pass
    """,
)
program(
    "blocked signals",
    "timeout",
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
    while time.monotonic() < END: pass
    """,
)
program(
    "exceptions swallowed",
    "timeout",
    """
    while time.monotonic() < END:
        try:
            while time.monotonic() < END: pass
        except BaseException: pass
    """,
)
program(
    "endless exit handler",
    "timeout",
    """
    import atexit
    def late():
        while time.monotonic() < END: pass
    atexit.register(late)
    """,
)
program(
    "endless destructor",
    "timeout",
    """
    class A:
        def __del__(self):
            while time.monotonic() < END: pass
    a = A()
    del a
    """,
)
program(
    "thread that never ends",
    "timeout",
    """
    import threading
    threading.Thread(target=lambda: time.sleep(20)).start()
    """,
)
program(
    "read of a silent pipe",
    "timeout",
    """
    r, w = os.pipe()
    os.read(r, 1)
    """,
)
program(
    "regular expression that explodes",
    "timeout",
    """
    import re
    re.match('(a+)+$', 'a' * 34 + 'b')
    """,
)
program(
    "power tower",
    "timeout memory error",
    """
    x = 9 ** 9 ** 8
    print(len(str(x)))
    """,
)
program(
    "stopped process",
    "timeout error",
    """
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(20)
    """,
)

# -- processes ---------------------------------------------------------------------------------------------------------

program(
    "fork bomb",
    "timeout error killed",
    """
    for _ in range(200):
        if os.fork() == 0:
            time.sleep(20)
            os._exit(0)
    time.sleep(20)
    """,
)
program(
    "recursive fork bomb",
    "timeout error killed",
    """
    for _ in range(7):
        try: os.fork()
        except OSError: pass
    time.sleep(20)
    """,
)
program(
    "fork bomb that swallows errors",
    "timeout killed ok",
    """
    n = 0
    while time.monotonic() < END and n < 2000:
        n += 1
        try:
            if os.fork() == 0:
                time.sleep(20); os._exit(0)
        except OSError: time.sleep(.001)
    """,
)
program(
    "child outlives parent",
    "ok",
    """
    if os.fork() == 0:
        time.sleep(20)
        os._exit(0)
    print('parent done')
    """,
)
program(
    "double fork daemon",
    "ok",
    """
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            for f in (0, 1, 2): os.close(f)
            time.sleep(20)
        os._exit(0)
    os.wait()
    """,
)
program(
    "new session and group",
    "ok",
    """
    for _ in range(5):
        if os.fork() == 0:
            os.setsid(); os.setpgid(0, 0) if False else None
            time.sleep(20); os._exit(0)
    os._exit(0)
    """,
)
program(
    "child holds the output open",
    "ok",
    """
    import subprocess
    subprocess.Popen(['sleep', '20'])
    print('done', flush=True)
    os._exit(0)
    """,
)
program(
    "zombies",
    "ok",
    """
    for _ in range(20):
        if os.fork() == 0: os._exit(0)
    print('left unreaped')
    """,
)
program(
    "many threads",
    "error memory timeout killed",
    """
    import threading
    for _ in range(500):
        threading.Thread(target=time.sleep, args=(20,), daemon=True).start()
    print('ESCAPED')
    """,
)
program(
    "multiprocessing pool",
    "ok error timeout memory output killed",
    """
    import multiprocessing as m
    print(m.get_context('fork').Pool(4).map(abs, [-1, -2]))
    """,
)
program(
    "shell background job",
    "ok",
    """
    os.system('(sleep 20; echo late) & (trap "" TERM HUP; sleep 20) & true')
    """,
)
program(
    "exec of another program",
    "timeout",
    """
    os.execvp('sleep', ['sleep', '20'])
    """,
)

# -- memory ------------------------------------------------------------------------------------------------------------

program(
    "large allocation",
    "memory",
    """
    x = bytearray(4 << 30)
    """,
)
program(
    "growing list",
    "memory",
    """
    x = []
    while len(x) < 512: x.append(bytearray(8 << 20))
    """,
)
program(
    "growing string",
    "memory",
    """
    s = 'a' * 1000
    while len(s) < 4 << 30: s += s
    """,
)
program(
    "swallowed memory errors",
    "timeout memory",
    """
    x = []
    while time.monotonic() < END:
        try: x.append(bytearray(8 << 20))
        except MemoryError: time.sleep(.01)
    """,
)
program(
    "memory of many children",
    "memory timeout",
    """
    for _ in range(8):
        if os.fork() == 0:
            x = b'x' * (120 << 20)
            time.sleep(20); os._exit(0)
    time.sleep(20)
    """,
)
program(
    "anonymous mappings",
    "error memory",
    """
    import mmap
    x = [mmap.mmap(-1, 64 << 20) for _ in range(64)]
    """,
)
program(
    "memory in pipes",
    "ok error",
    """
    fds = []
    try:
        while len(fds) < 4000:
            r, w = os.pipe(); fds += [r, w]; os.set_blocking(w, False)
            os.write(w, b'x' * 65536)
    except OSError as e: print(e.strerror)
    """,
)
program(
    "deep recursion",
    "error memory timeout",
    """
    sys.setrecursionlimit(10**7)
    def f(n): return f(n + 1) + 1
    f(0)
    """,
)
program(
    "deep recursion in C",
    "error memory timeout",
    """
    sys.setrecursionlimit(10**7)
    x = []
    for _ in range(10**6): x = [x]
    repr(x)
    """,
)
program(
    "deeply nested source",
    "error memory",
    """
    compile('(' * 10**5 + ')' * 10**5, 'x', 'eval')
    """,
)
program(
    "decompression bomb",
    "memory timeout",
    """
    import zlib
    d = zlib.compress(b'0' * (1 << 26), 9)
    x = [zlib.decompress(d) for _ in range(40)]
    """,
)

# -- output and files --------------------------------------------------------------------------------------------------

program(
    "endless output",
    "timeout output",
    """
    while time.monotonic() < END: print('x' * 1000)
    """,
)
program(
    "endless binary output",
    "timeout output",
    """
    b = bytes(range(256)) * 4096
    while time.monotonic() < END: os.write(1, b)
    """,
)
program(
    "endless errors",
    "timeout output",
    """
    while time.monotonic() < END: os.write(2, b'e' * 60000)
    """,
)
program(
    "a huge file",
    "error",
    """
    with open('f', 'wb') as f:
        for _ in range(512): f.write(bytes(1 << 20))
    print('ESCAPED')
    """,
)
program(
    "sparse file",
    "error",
    """
    f = open('f', 'wb'); f.truncate(1 << 40)
    print('ESCAPED')
    """,
)
program(
    "many files",
    "error timeout",
    """
    for i in range(10**5): open(f'f{i}', 'w').close()
    print('ESCAPED')
    """,
)
program(
    "a deep folder",
    "error ok timeout",
    """
    for _ in range(2000): os.mkdir('d' * 50); os.chdir('d' * 50)
    """,
)
program(
    "deleted working folder",
    "ok error",
    """
    os.rmdir(os.getcwd())
    print(os.path.exists('.'))
    """,
)
program(
    "folder without permissions",
    "ok",
    """
    open('f', 'w').write('x'); os.mkdir('d'); os.chmod('d', 0); os.chmod('.', 0)
    """,
)
program(
    "all descriptors",
    "error",
    """
    x = []
    while len(x) < 10000: x.append(os.open('/dev/null', 0))
    print('ESCAPED')
    """,
)
program(
    "closed descriptors",
    "ok error",
    """
    os.closerange(0, 1000)
    """,
)
program(
    "inherited descriptors",
    "ok",
    """
    for fd in range(3, 300):
        try: os.fstat(fd)
        except OSError: continue
        print('ESCAPED', fd)
    """,
)
program(
    "symbolic link out",
    "ok",
    """
    os.symlink('/', 'root')
    os.symlink(OUTSIDE, 'out')
    attempt(lambda: open('out', 'a').write('x'))
    attempt(lambda: open('root/etc/passwd', 'a').write('x'))
    """,
)
program(
    "hard link to a system file",
    "ok",
    """
    attempt(os.link, '/usr/bin/env', 'env')
    """,
)
program(
    "device node",
    "ok",
    """
    attempt(os.mknod, 'disk', 0o60600, os.makedev(254, 0))
    """,
)
program(
    "named pipe",
    "timeout",
    """
    os.mkfifo('p')
    open('p').read()
    """,
)

# -- reach -------------------------------------------------------------------------------------------------------------

program(
    "write outside its folder",
    "ok",
    """
    for p in ('/etc/x', '/usr/x', '/x', '/dev/x', '/root/x', '/home/x', '/var/tmp/x', OUTSIDE):
        attempt(lambda: open(p, 'a').write('x'))
    """,
)
program(
    "parent's environment",
    "ok",
    """
    if 'SECRET' in repr(dict(os.environ)): print('ESCAPED')
    for pid in range(1, 2000):
        try: data = open(f'/proc/{pid}/environ', 'rb').read()
        except OSError: continue
        if b'SECRET' in data: print('ESCAPED', pid)
    """,
)
program(
    "parent's files",
    "ok",
    """
    for p in (OUTSIDE, '/etc/shadow', '/root/.ssh', '/root/.bashrc', '/home', '/var/log'):
        attempt(lambda: open(p).read() if not os.path.isdir(p) else os.listdir(p))
    """,
)
program(
    "other processes",
    "ok",
    """
    seen = [p for p in (os.listdir('/proc') if os.path.isdir('/proc') else []) if p.isdigit()]
    if len(seen) > 1: print('ESCAPED', seen)
    """,
)
program(
    "signals to the parent",
    "ok",
    """
    for pid in (os.getppid(), 1, PARENT):
        for s in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT):
            try: os.kill(pid, s)
            except OSError: pass
    print('alive')
    """,
)
program(
    "signals to everybody",
    "ok error",
    """
    try: os.kill(-1, signal.SIGKILL)
    except OSError: pass
    time.sleep(.05)
    """,
)
program(
    "limits of the supervisor",
    "ok",
    """
    import resource
    attempt(resource.prlimit, os.getppid(), resource.RLIMIT_CPU, (0, 0))
    """,
)
program(
    "limits raised",
    "ok",
    """
    import resource
    for r in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NPROC):
        attempt(resource.setrlimit, r, (-1, -1))
    """,
)
program(
    "network",
    "ok",
    """
    import socket
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, 40):
        attempt(socket.socket, family, socket.SOCK_STREAM)
    """,
)
program(
    "network by a library",
    "ok",
    """
    import urllib.request
    attempt(urllib.request.urlopen, f'http://127.0.0.1:{PORT}/')
    """,
)
program(
    "tracing",
    "ok",
    """
    import ctypes
    c = ctypes.CDLL(None)
    for pid in (1, os.getppid()):
        if c.ptrace(16, pid, 0, 0) == 0: print('ESCAPED')
    """,
)
program(
    "becoming root",
    "ok",
    """
    for f in (os.setuid, os.setgid, os.seteuid): attempt(f, 0)
    attempt(os.setgroups, [0])
    """,
)
program(
    "set-uid programs",
    "ok error timeout memory output killed",
    """
    for p in ('/bin/su', '/usr/bin/sudo', '/usr/bin/passwd'):
        if os.path.exists(p): os.system(f'{p} -c id </dev/null >out 2>&1; grep uid=0 out && echo ESCAPED')
    """,
)
program(
    "new namespaces",
    "ok",
    """
    import ctypes
    c = ctypes.CDLL(None)
    for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000):
        if c.unshare(flag) == 0: print('ESCAPED')
    """,
)
program(
    "mounts",
    "ok",
    """
    import ctypes
    c = ctypes.CDLL(None)
    if c.mount(b'proc', b'/proc', b'proc', 0, None) == 0: print('ESCAPED')
    if c.umount2(b'/tmp', 2) == 0: print('ESCAPED')
    if c.mount(b'none', b'/', None, 4096 | 32, None) == 0: print('ESCAPED')
    attempt(os.chroot, '/tmp')
    """,
)
program(
    "kernel interfaces",
    "ok",
    """
    import ctypes
    c = ctypes.CDLL(None)
    for number in (321, 298, 323, 425, 250, 246, 175, 169, 101, 310, 319):
        if c.syscall(number, 0, 0, 0, 0, 0) >= 0: print('ESCAPED', number)
    """,
)

# -- the interpreter itself --------------------------------------------------------------------------------------------

program(
    "os._exit",
    "error",
    """
    print('x', flush=True)
    os._exit(7)
    """,
)
program(
    "abort",
    "error",
    """
    os.abort()
    """,
)
program(
    "segmentation fault",
    "error",
    """
    import ctypes
    ctypes.string_at(0)
    """,
)
program(
    "trace function",
    "ok",
    """
    def t(*a): return t
    sys.settrace(t); sys.setprofile(t)
    import threading; threading.settrace(t)
    x = [i for i in range(9)]
    """,
)
program(
    "broken interpreter",
    "ok error timeout memory output killed",
    """
    import builtins
    sys.stdout = sys.stderr = None
    sys.modules.clear()
    builtins.__dict__.clear()
    """,
)
program(
    "supervisor's modules",
    "ok error timeout memory output killed",
    """
    import gc
    for m in list(sys.modules.values()):
        if getattr(m, '__name__', '').startswith('inside'):
            for k in list(vars(m)):
                if k not in ('__name__',): vars(m)[k] = None
    """,
)
program(
    "garbage collector",
    "ok error timeout memory output killed",
    """
    import gc
    gc.set_threshold(1)
    [o for o in gc.get_objects()][:0]
    """,
)
program(
    "exit handlers of the supervisor",
    "ok error",
    """
    import atexit
    atexit._run_exitfuncs()
    atexit._clear()
    """,
)
program(
    "traceback with a huge value",
    "error",
    """
    raise ValueError('x' * (50 << 20))
    """,
)
program(
    "exception that fails",
    "ok error timeout memory output killed",
    """
    class E(Exception):
        def __str__(self): raise SystemExit(0)
    raise E
    """,
)
