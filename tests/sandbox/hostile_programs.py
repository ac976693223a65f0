"""Programs that try to get out of the sandbox, to outlive it or to take the machine down.

Each is written bounded: where containment fails, it ends by itself within seconds and takes at most a few hundred
megabytes, so that a failing test cannot hurt the machine it runs on.

``PROGRAMS`` maps a name to ``(code, verdicts)``; a program that prints ``ESCAPED`` has got through.
"""

from __future__ import annotations

#: Seconds that each may take.
TIMEOUT = 0.5

_ANY = ("ok", "error", "timeout", "memory", "output", "killed")
_ENDS = ("ok", "error")

#: Prepended to all: ends the process by itself should nobody else do it, and tells of an attempt that went through.
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

PROGRAMS: dict[str, tuple[str, tuple[str, ...]]] = {
    # -- time -------------------------------------------------------------------------------------------------
    "busy loop": ("while time.monotonic() < END: pass", ("timeout",)),
    "sleep": ("time.sleep(20)", ("timeout",)),
    "ignored signals": (
        "for s in range(1, 65):\n"
        "    try: signal.signal(s, signal.SIG_IGN)\n"
        "    except (OSError, ValueError): pass\n"
        "while time.monotonic() < END: pass",
        ("timeout",),
    ),
    "blocked signals": (
        "signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile time.monotonic() < END: pass",
        ("timeout",),
    ),
    "exceptions swallowed": (
        "while time.monotonic() < END:\n    try:\n        while time.monotonic() < END: pass\n    except BaseException: pass",
        ("timeout",),
    ),
    "endless exit handler": (
        "import atexit\ndef late():\n    while time.monotonic() < END: pass\natexit.register(late)",
        ("timeout",),
    ),
    "endless destructor": (
        "class A:\n    def __del__(self):\n        while time.monotonic() < END: pass\na = A()\ndel a",
        ("timeout",),
    ),
    "thread that never ends": (
        "import threading\nthreading.Thread(target=lambda: time.sleep(20)).start()",
        ("timeout",),
    ),
    "read of a silent pipe": ("r, w = os.pipe()\nos.read(r, 1)", ("timeout",)),
    "regular expression that explodes": ("import re\nre.match('(a+)+$', 'a' * 34 + 'b')", ("timeout",)),
    "power tower": ("x = 9 ** 9 ** 8\nprint(len(str(x)))", ("timeout", "memory", "error")),
    "stopped process": ("os.kill(os.getpid(), signal.SIGSTOP)\ntime.sleep(20)", ("timeout", "error")),
    # -- processes --------------------------------------------------------------------------------------------
    "fork bomb": (
        "for _ in range(200):\n    if os.fork() == 0:\n        time.sleep(20)\n        os._exit(0)\ntime.sleep(20)",
        ("timeout", "error", "killed"),
    ),
    "recursive fork bomb": (
        "for _ in range(7):\n    try: os.fork()\n    except OSError: pass\ntime.sleep(20)",
        ("timeout", "error", "killed"),
    ),
    "fork bomb that swallows errors": (
        "n = 0\nwhile time.monotonic() < END and n < 2000:\n    n += 1\n"
        "    try:\n        if os.fork() == 0:\n            time.sleep(20); os._exit(0)\n    except OSError: time.sleep(.001)",
        ("timeout", "killed", "ok"),
    ),
    "child outlives parent": ("if os.fork() == 0:\n    time.sleep(20)\n    os._exit(0)\nprint('parent done')", ("ok",)),
    "double fork daemon": (
        "if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        for f in (0, 1, 2): os.close(f)\n"
        "        time.sleep(20)\n    os._exit(0)\nos.wait()",
        ("ok",),
    ),
    "new session and group": (
        "for _ in range(5):\n    if os.fork() == 0:\n        os.setsid(); os.setpgid(0, 0) if False else None\n"
        "        time.sleep(20); os._exit(0)\nos._exit(0)",
        ("ok",),
    ),
    "child holds the output open": (
        "import subprocess\nsubprocess.Popen(['sleep', '20'])\nprint('done', flush=True)\nos._exit(0)",
        ("ok",),
    ),
    "zombies": (
        "for _ in range(20):\n    if os.fork() == 0: os._exit(0)\nprint('left unreaped')",
        ("ok",),
    ),
    "many threads": (
        "import threading\nfor _ in range(500):\n    threading.Thread(target=time.sleep, args=(20,), daemon=True).start()\n"
        "print('ESCAPED')",
        ("error", "memory", "timeout", "killed"),
    ),
    "multiprocessing pool": (
        "import multiprocessing as m\nprint(m.get_context('fork').Pool(4).map(abs, [-1, -2]))",
        _ANY,
    ),
    "shell background job": (
        "os.system('(sleep 20; echo late) & (trap \"\" TERM HUP; sleep 20) & true')",
        ("ok",),
    ),
    "exec of another program": ("os.execvp('sleep', ['sleep', '20'])", ("timeout",)),
    # -- memory -----------------------------------------------------------------------------------------------
    "large allocation": ("x = bytearray(4 << 30)", ("memory",)),
    "growing list": ("x = []\nwhile len(x) < 512: x.append(bytearray(8 << 20))", ("memory",)),
    "growing string": ("s = 'a' * 1000\nwhile len(s) < 4 << 30: s += s", ("memory",)),
    "swallowed memory errors": (
        "x = []\nwhile time.monotonic() < END:\n    try: x.append(bytearray(8 << 20))\n    except MemoryError: time.sleep(.01)",
        ("timeout", "memory"),
    ),
    "memory of many children": (
        "for _ in range(8):\n    if os.fork() == 0:\n        x = b'x' * (120 << 20)\n        time.sleep(20); os._exit(0)\n"
        "time.sleep(20)",
        ("memory", "timeout"),
    ),
    "anonymous mappings": (
        "import mmap\nx = [mmap.mmap(-1, 64 << 20) for _ in range(64)]",
        ("error", "memory"),
    ),
    "memory in pipes": (
        "fds = []\ntry:\n    while len(fds) < 4000:\n        r, w = os.pipe(); fds += [r, w]; os.set_blocking(w, False)\n"
        "        os.write(w, b'x' * 65536)\nexcept OSError as e: print(e.strerror)",
        _ENDS,
    ),
    "deep recursion": (
        "sys.setrecursionlimit(10**7)\ndef f(n): return f(n + 1) + 1\nf(0)",
        ("error", "memory", "timeout"),
    ),
    "deep recursion in C": (
        "sys.setrecursionlimit(10**7)\nx = []\nfor _ in range(10**6): x = [x]\nrepr(x)",
        ("error", "memory", "timeout"),
    ),
    "deeply nested source": ("compile('(' * 10**5 + ')' * 10**5, 'x', 'eval')", ("error", "memory")),
    "decompression bomb": (
        "import zlib\nd = zlib.compress(b'0' * (1 << 26), 9)\nx = [zlib.decompress(d) for _ in range(40)]",
        ("memory", "timeout"),
    ),
    # -- output and files -------------------------------------------------------------------------------------
    "endless output": ("while time.monotonic() < END: print('x' * 1000)", ("timeout", "output")),
    "endless binary output": ("b = bytes(range(256)) * 4096\nwhile time.monotonic() < END: os.write(1, b)", ("timeout", "output")),
    "endless errors": ("while time.monotonic() < END: os.write(2, b'e' * 60000)", ("timeout", "output")),
    "a huge file": (
        "with open('f', 'wb') as f:\n    for _ in range(512): f.write(bytes(1 << 20))\nprint('ESCAPED')",
        ("error",),
    ),
    "sparse file": ("f = open('f', 'wb'); f.truncate(1 << 40)\nprint('ESCAPED')", ("error",)),
    "many files": (
        "for i in range(10**5): open(f'f{i}', 'w').close()\nprint('ESCAPED')",
        ("error", "timeout"),
    ),
    "a deep folder": (
        "for _ in range(2000): os.mkdir('d' * 50); os.chdir('d' * 50)",
        ("error", "ok", "timeout"),
    ),
    "deleted working folder": ("os.rmdir(os.getcwd())\nprint(os.path.exists('.'))", _ENDS),
    "folder without permissions": ("open('f', 'w').write('x'); os.mkdir('d'); os.chmod('d', 0); os.chmod('.', 0)", ("ok",)),
    "all descriptors": ("x = []\nwhile len(x) < 10000: x.append(os.open('/dev/null', 0))\nprint('ESCAPED')", ("error",)),
    "closed descriptors": ("os.closerange(0, 1000)", _ENDS),
    "inherited descriptors": (
        "for fd in range(3, 300):\n    try: os.fstat(fd)\n    except OSError: continue\n    print('ESCAPED', fd)",
        ("ok",),
    ),
    "symbolic link out": (
        "os.symlink('/', 'root')\nos.symlink(OUTSIDE, 'out')\n"
        "attempt(lambda: open('out', 'a').write('x'))\nattempt(lambda: open('root/etc/passwd', 'a').write('x'))",
        ("ok",),
    ),
    "hard link to a system file": ("attempt(os.link, '/usr/bin/env', 'env')", ("ok",)),
    "device node": ("attempt(os.mknod, 'disk', 0o60600, os.makedev(254, 0))", ("ok",)),
    "named pipe": ("os.mkfifo('p')\nopen('p').read()", ("timeout",)),
    # -- reach ------------------------------------------------------------------------------------------------
    "write outside its folder": (
        "for p in ('/etc/x', '/usr/x', '/x', '/dev/x', '/root/x', '/home/x', '/var/tmp/x', OUTSIDE):\n"
        "    attempt(lambda: open(p, 'a').write('x'))",
        ("ok",),
    ),
    "parent's environment": (
        "if 'SECRET' in repr(dict(os.environ)): print('ESCAPED')\n"
        "for pid in range(1, 2000):\n    try: data = open(f'/proc/{pid}/environ', 'rb').read()\n    except OSError: continue\n"
        "    if b'SECRET' in data: print('ESCAPED', pid)",
        ("ok",),
    ),
    "parent's files": (
        "for p in (OUTSIDE, '/etc/shadow', '/root/.ssh', '/root/.bashrc', '/home', '/var/log'):\n"
        "    attempt(lambda: open(p).read() if not os.path.isdir(p) else os.listdir(p))",
        ("ok",),
    ),
    "other processes": (
        "seen = [p for p in (os.listdir('/proc') if os.path.isdir('/proc') else []) if p.isdigit()]\n"
        "if len(seen) > 1: print('ESCAPED', seen)",
        ("ok",),
    ),
    "signals to the parent": (
        "for pid in (os.getppid(), 1, PARENT):\n    for s in (signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT):\n"
        "        try: os.kill(pid, s)\n        except OSError: pass\nprint('alive')",
        ("ok",),
    ),
    "signals to everybody": ("try: os.kill(-1, signal.SIGKILL)\nexcept OSError: pass\ntime.sleep(.05)", _ENDS),
    "limits of the supervisor": (
        "import resource\nattempt(resource.prlimit, os.getppid(), resource.RLIMIT_CPU, (0, 0))",
        ("ok",),
    ),
    "limits raised": (
        "import resource\nfor r in (resource.RLIMIT_AS, resource.RLIMIT_CPU, resource.RLIMIT_NPROC):\n"
        "    attempt(resource.setrlimit, r, (-1, -1))",
        ("ok",),
    ),
    "network": (
        "import socket\n"
        "for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, socket.AF_NETLINK, 40):\n"
        "    attempt(socket.socket, family, socket.SOCK_STREAM)",
        ("ok",),
    ),
    "network by a library": ("import urllib.request\nattempt(urllib.request.urlopen, f'http://127.0.0.1:{PORT}/')", ("ok",)),
    "tracing": (
        "import ctypes\nc = ctypes.CDLL(None)\n"
        "for pid in (1, os.getppid()):\n    if c.ptrace(16, pid, 0, 0) == 0: print('ESCAPED')",
        ("ok",),
    ),
    "becoming root": (
        "for f in (os.setuid, os.setgid, os.seteuid): attempt(f, 0)\nattempt(os.setgroups, [0])",
        ("ok",),
    ),
    "set-uid programs": (
        "for p in ('/bin/su', '/usr/bin/sudo', '/usr/bin/passwd'):\n"
        "    if os.path.exists(p): os.system(f'{p} -c id </dev/null >out 2>&1; grep uid=0 out && echo ESCAPED')",
        _ANY,
    ),
    "new namespaces": (
        "import ctypes\nc = ctypes.CDLL(None)\n"
        "for flag in (0x10000000, 0x20000, 0x20000000, 0x40000000):\n    if c.unshare(flag) == 0: print('ESCAPED')",
        ("ok",),
    ),
    "mounts": (
        "import ctypes\nc = ctypes.CDLL(None)\n"
        "if c.mount(b'proc', b'/proc', b'proc', 0, None) == 0: print('ESCAPED')\n"
        "if c.umount2(b'/tmp', 2) == 0: print('ESCAPED')\n"
        "if c.mount(b'none', b'/', None, 4096 | 32, None) == 0: print('ESCAPED')\nattempt(os.chroot, '/tmp')",
        ("ok",),
    ),
    "kernel interfaces": (
        "import ctypes\nc = ctypes.CDLL(None)\n"
        "for number in (321, 298, 323, 425, 250, 246, 175, 169, 101, 310, 319):\n"
        "    if c.syscall(number, 0, 0, 0, 0, 0) >= 0: print('ESCAPED', number)",
        ("ok",),
    ),
    # -- the interpreter itself -------------------------------------------------------------------------------
    "os._exit": ("print('x', flush=True)\nos._exit(7)", ("error",)),
    "abort": ("os.abort()", ("error",)),
    "segmentation fault": ("import ctypes\nctypes.string_at(0)", ("error",)),
    "trace function": (
        "def t(*a): return t\nsys.settrace(t); sys.setprofile(t)\nimport threading; threading.settrace(t)\nx = [i for i in range(9)]",
        ("ok",),
    ),
    "broken interpreter": (
        "import builtins\nsys.stdout = sys.stderr = None\nsys.modules.clear()\nbuiltins.__dict__.clear()",
        _ANY,
    ),
    "supervisor's modules": (
        "import gc\nfor m in list(sys.modules.values()):\n    if getattr(m, '__name__', '').startswith('inside'):\n"
        "        for k in list(vars(m)):\n            if k not in ('__name__',): vars(m)[k] = None",
        _ANY,
    ),
    "garbage collector": ("import gc\ngc.set_threshold(1)\n[o for o in gc.get_objects()][:0]", _ANY),
    "exit handlers of the supervisor": ("import atexit\natexit._run_exitfuncs()\natexit._clear()", _ENDS),
    "traceback with a huge value": ("raise ValueError('x' * (50 << 20))", ("error",)),
    "exception that fails": (
        "class E(Exception):\n    def __str__(self): raise SystemExit(0)\nraise E",
        _ANY,
    ),
}
