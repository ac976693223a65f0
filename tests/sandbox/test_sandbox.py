from __future__ import annotations

import errno
import json
import multiprocessing
import os
import pathlib
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sandbox_support import descendants

from gem_core.sandbox import LEVELS, Limits, Sandbox, SandboxError, default_sandbox
from gem_core.sandbox.inside.slot import Kept
from gem_core.sandbox.limits import join_output


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with Sandbox(preload=("numpy",)) as sandbox:
        yield sandbox


# -- programs behave as they do elsewhere ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "stdin", "stdout", "exit_code"),
    [
        ("print(input()[::-1])", "abc\n", "cba\n", 0),
        ("import sys\nprint(sys.stdin.read().upper(), end='')", "ü\n" * 3, "Ü\n" * 3, 0),
        ("import sys\nprint(len(sys.stdin.buffer.read()))", "x" * 3_000_000, "3000000\n", 0),
        ("import sys\nsys.exit(3)", "", "", 3),
        ("raise SystemExit", "", "", 0),
        ("if __name__ == '__main__':\n    print(__name__)", "", "__main__\n", 0),
        ("import os\nprint(os.listdir('.'))", "", "[]\n", 0),
        ("open('f', 'w').write('a')\nprint(open('f').read())", "", "a\n", 0),
        ("import threading\nt = threading.Thread(target=lambda: print('t'))\nt.start()", "", "t\n", 0),
        ("import atexit\natexit.register(print, 'bye')\nprint('x')", "", "x\nbye\n", 0),
        ("import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))).__name__)", "", "A\n", 0),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nprint(P(1))", "", "P(x=1)\n", 0),
        ("import asyncio\nasync def f():\n    await asyncio.sleep(0)\n    print('a')\nasyncio.run(f())", "", "a\n", 0),
        (
            "from concurrent.futures import ThreadPoolExecutor as T\nwith T(4) as t: print(sum(t.map(int, '123')))",
            "",
            "6\n",
            0,
        ),
        (
            "import multiprocessing as m\nwith m.get_context('fork').Pool(2) as p: print(p.map(abs, [-1]))",
            "",
            "[1]\n",
            0,
        ),
        ("import numpy as np\nprint(np.arange(3).sum())", "", "3\n", 0),
        ("import subprocess\nprint(subprocess.run(['echo', 'x'], capture_output=True).stdout)", "", "b'x\\n'\n", 0),
        ("import os, signal\nos.kill(os.getpid(), signal.SIGTERM)", "", "", -15),
        ("print('\\udc80ab')", "", "\\x80ab\n", 0),
        ("# coding: latin-1\nprint('é')", "", "é\n", 0),
        ("import sys\nprint(sys.argv[1:], sys.path[0] == __import__('os').getcwd())", "", "['a', 'b'] True\n", 0),
        ("from __future__ import annotations\nx: undefined = 1\nprint(x)", "", "1\n", 0),
    ],
)
def test_program(sandbox: Sandbox, code: str, stdin: str, stdout: str, exit_code: int) -> None:
    result = sandbox.run(code, stdin=stdin, arguments=["a", "b"])
    assert (result.stdout, result.exit_code) == (stdout, exit_code), result
    assert result.verdict == ("ok" if exit_code == 0 else "error")


def test_traceback_is_the_programs_own(sandbox: Sandbox) -> None:
    result = sandbox.run("def f():\n    return 1 / 0\nf()\n")
    lines = result.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert lines[1] == '  File "main.py", line 3, in <module>'
    assert "return 1 / 0" in result.stderr
    assert lines[-1] == "ZeroDivisionError: division by zero"
    assert "inside" not in result.stderr
    assert "SyntaxError" in sandbox.run("x = = 1").stderr


def test_random_numbers_differ_and_sets_keep_their_order(sandbox: Sandbox) -> None:
    code = "import random, numpy as np\nprint(random.random(), np.random.random())"
    first, second = sandbox.run(code).stdout.split(), sandbox.run(code).stdout.split()
    assert first[0] != second[0]
    assert first[1] != second[1]
    order = "print(list({'a', 'b', 'c', 'd', 'e', 'f'}))"
    assert sandbox.run(order).stdout == sandbox.run(order).stdout


def test_missing_imports_are_supplied_where_asked(sandbox: Sandbox) -> None:
    code = "print(sqrt(16), Counter('aab')['a'], math.pi > 3, np.zeros(2).sum())"
    assert sandbox.run(code, supply_imports=True).stdout == "4.0 2 True 0.0\n"
    assert "NameError" in sandbox.run(code).stderr
    own = "def sqrt(x): return 'mine'\nprint(sqrt(16))"
    assert sandbox.run(own, supply_imports=True).stdout == "mine\n"
    assert "NameError" in sandbox.run("print(undefined_name)", supply_imports=True).stderr


def test_files_are_laid_in_the_folder(sandbox: Sandbox) -> None:
    files: dict[str, str | bytes] = {"data/a.txt": "text", "b.bin": b"\x00\xff", "helper.py": "VALUE = 7"}
    code = "import helper\nprint(open('data/a.txt').read(), open('b.bin', 'rb').read(), helper.VALUE)"
    assert sandbox.run(code, files=files).stdout == "text b'\\x00\\xff' 7\n"
    assert sandbox.run("import os\nprint(os.listdir('.'))").stdout == "[]\n"
    for name in ("/etc/x", "../x", "a/../../x", ""):
        with pytest.raises(ValueError, match="a file's name must be relative"):
            sandbox.run("", files={name: "x"})


def test_command(sandbox: Sandbox) -> None:
    result = sandbox.run_command(["sh", "-c", "cat; echo $X; exit 4"], stdin="in\n", environment={"X": "y"})
    assert (result.stdout, result.exit_code, result.verdict) == ("in\ny\n", 4, "error")
    assert sandbox.run_command(["no-such-command"]).exit_code == 127
    with pytest.raises(ValueError, match="argv must be"):
        sandbox.run_command("echo x")


def test_workspace_keeps_its_folder_and_no_processes(sandbox: Sandbox) -> None:
    with sandbox.workspace() as workspace:
        workspace.write_files({"a": "1\n"})
        assert workspace.run_command(["sh", "-c", "echo 2 >> a; sleep 20 &"]).verdict == "ok"
        assert workspace.run("print(open('a').read().split())").stdout == "['1', '2']\n"
        assert workspace.run_command(["sleep", "20"], timeout=0.2).verdict == "timeout"
        assert workspace.run_command(["cat", "a"]).stdout == "1\n2\n"
        other = sandbox.run("import os\nprint(os.path.exists('a'))")
        assert other.stdout == "False\n"
    with pytest.raises(RuntimeError, match="closed"):
        workspace.run("")


# -- limits -----------------------------------------------------------------------------------------------------------


def test_a_time_out_of_two_seconds_takes_two_seconds(sandbox: Sandbox) -> None:
    started = time.monotonic()
    result = sandbox.run("while True: pass", timeout=2)
    assert 2.0 <= time.monotonic() - started < 2.3
    assert (result.verdict, result.exit_code) == ("timeout", -9)
    assert result.detail == "stopped after 2 s"


def test_output_before_a_time_out_is_kept(sandbox: Sandbox) -> None:
    result = sandbox.run("print('early', flush=True)\nwhile True: pass", timeout=0.3)
    assert (result.stdout, result.verdict) == ("early\n", "timeout")


def test_output_keeps_head_and_tail(sandbox: Sandbox) -> None:
    result = sandbox.run("print('a' * 100_000)\nprint('z' * 100_000)", output_bytes=1000)
    assert result.stdout.startswith("a" * 500 + "\n[... 199002 bytes left out ...]\n")
    assert result.stdout.endswith("z" * 499 + "\n")
    assert result.stdout_omitted == 199_002
    assert result.verdict == "ok"
    flood = sandbox.run("while True: print('x' * 10_000)", flood_bytes=1_000_000)
    assert flood.verdict == "output"
    binary = sandbox.run("import sys\nsys.stdout.buffer.write(bytes([0, 255, 65]))")
    assert binary.stdout == "\x00\\xffA"


@pytest.mark.parametrize("size", [0, 1, 5, 6, 7, 13, 1000])
@pytest.mark.parametrize("piece", [1, 3, 7, 1000])
def test_kept_output_is_head_and_tail_of_all(size: int, piece: int) -> None:
    data = bytes(i % 251 for i in range(size))
    kept = Kept(6)
    for start in range(0, size, piece):
        kept.add(data[start : start + piece])
    head, tail = kept.parts()
    assert kept.total == size
    assert head == data[:3]
    assert tail == (data[3:] if size <= 6 else data[-3:])
    assert join_output(head, tail, size)[1] == max(0, size - 6)


def test_nonsense_limits_are_refused() -> None:
    for bad in ({"timeout": 0}, {"timeout": float("nan")}, {"memory_bytes": -1}, {"processes": 1.5}, {"timeout": True}):
        with pytest.raises(ValueError, match=next(iter(bad))):
            Limits(**bad)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="no limit called tiemout"):
        Sandbox().run("", tiemout=3)


# -- levels -----------------------------------------------------------------------------------------------------------


def test_level_is_readable_and_unknown_ones_are_refused(sandbox: Sandbox) -> None:
    found = sandbox.describe()
    assert found["level"] in LEVELS
    assert "numpy" in found["preload"] or sandbox.run("import numpy").ok
    json.dumps(found)
    with pytest.raises(ValueError, match="namespace\\+seccomp"):
        Sandbox(require_level="fortress")
    with pytest.raises(ValueError, match="weaker"):
        Sandbox(level="process", require_level="namespace")


def test_a_level_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from gem_core.sandbox.template import Template

    start = Template.start_slot

    def refuse(self: Template, level: str, disk_bytes: int) -> Any:
        if level.startswith("namespace"):
            raise SandboxError("unshare: Operation not permitted")
        return start(self, level, disk_bytes)

    monkeypatch.setattr(Template, "start_slot", refuse)
    with (
        Sandbox(preload=(), require_level="namespace") as strict,
        pytest.raises(SandboxError, match=r"require_level='namespace'.*unshare: Operation not permitted"),
    ):
        strict.run("print(1)")
    with Sandbox(preload=()) as weaker:
        found = weaker.describe()
        assert found["level"] in ("process", "process+seccomp")
        assert "unshare" in found["refused"]["namespace"]
        assert found["lacks"]


@pytest.mark.parametrize("level", LEVELS)
def test_every_level_ends_runs_and_cleans_up(level: str) -> None:
    with Sandbox(preload=(), level=level, max_workers=1) as sandbox:
        try:
            sandbox.describe()
        except SandboxError as e:
            pytest.skip(str(e))
        before = descendants()
        daemon = (
            "import os, time\nif os.fork() == 0:\n  os.setsid()\n  if os.fork() == 0: time.sleep(20)\n  os._exit(0)"
        )
        assert sandbox.run(daemon).verdict == "ok"
        assert sandbox.run("while True: pass", timeout=0.3).verdict == "timeout"
        assert sandbox.run("x = bytearray(4 << 30)").verdict == "memory"
        forks = "import os, time\nfor _ in range(60):\n    if os.fork() == 0: time.sleep(20)\ntime.sleep(20)"
        assert sandbox.run(forks, timeout=2, processes=20).verdict in ("killed", "error")
        mess = (
            "import os\nopen('f', 'w').write('x')\nos.mkdir('d')\nopen('d/g', 'w')\nos.chmod('d', 0)\nos.chmod('.', 0)"
        )
        assert sandbox.run(mess).verdict == "ok"
        assert sandbox.run("import os\nprint(os.listdir('.'))").stdout == "[]\n"
        assert len(descendants()) <= len(before)
        folder = pathlib.Path(sandbox.run("import os\nprint(os.environ['TMPDIR'])").stdout.strip())
    deadline = time.monotonic() + 2
    while level.startswith("process") and folder.exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert str(folder) == "/tmp" or not folder.exists()


SYSTEM_PYTHON = shutil.which("python3", path="/usr/bin:/usr/local/bin")


@pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="needs root to become somebody else")
@pytest.mark.skipif(SYSTEM_PYTHON is None or shutil.which("setpriv") is None, reason="needs a Python for all users")
def test_an_unprivileged_user_has_the_sandbox_too() -> None:
    import gem_core

    package = pathlib.Path(gem_core.__file__).parent
    code = (
        "import json; from gem_core.sandbox import Sandbox; s = Sandbox(preload=());"
        'r = s.run(\'import os; print(os.getuid(), os.listdir("/proc"), os.path.exists("/etc/shadow"))\');'
        "n = s.run('import socket; socket.socket()'); d = s.describe();"
        "print(json.dumps([d['level'], r.stdout, n.verdict]))"
    )
    folder = pathlib.Path(tempfile.mkdtemp())  # pytest's own are closed to others
    try:
        folder.chmod(0o755)
        shutil.copytree(package / "sandbox", folder / "gem_core" / "sandbox")
        (folder / "gem_core" / "__init__.py").write_text("")
        done = _run_as_nobody(folder, code)
    finally:
        shutil.rmtree(folder)
    if "Permission denied" in done.stderr or "No module named" in done.stderr or "SyntaxError" in done.stderr:
        pytest.skip(f"the system's Python cannot be used: {done.stderr.strip()[-200:]}")
    assert done.returncode == 0, done.stderr
    level, seen, network = json.loads(done.stdout)
    assert level in LEVELS
    if level == "namespace+seccomp":
        assert seen == "1000 [] False\n"
        assert network == "error"


def _run_as_nobody(folder: pathlib.Path, code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups", str(SYSTEM_PYTHON), "-c", code],
        cwd=folder, capture_output=True, text=True, timeout=60, check=False,
        env={"PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


def test_every_call_on_the_list_is_refused(sandbox: Sandbox) -> None:
    if sandbox.describe()["level"] != "namespace+seccomp":
        pytest.skip("this host does not allow namespaces and seccomp")
    from gem_core.sandbox.inside import seccomp

    _, numbers = seccomp._ARCHES[os.uname().machine]
    asked = {n: number for n, number in numbers.items() if n not in ("clone", "prlimit64", "pidfd_send_signal")}
    # Mounting is refused by the kernel, and the arguments are looked at first.
    asked = {n: number for n, number in asked.items() if n not in (*seccomp._SIGNALS, *seccomp._SUPERVISORS)}
    code = (
        "import ctypes, json\nlibc = ctypes.CDLL(None, use_errno=True)\n"
        f"for name, number in {asked!r}.items():\n"
        "    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(0)] * 6)\n"
        "    print(name, result, ctypes.get_errno())"
    )
    lines = [line.split() for line in sandbox.run(code).stdout.splitlines()]
    assert len(lines) == len(asked)
    for name, result, error in lines:
        assert result == "-1"
        assert int(error) == seccomp._ERRORS.get(name, errno.EPERM), name
    namespaces = "import ctypes\nprint(ctypes.CDLL(None).syscall(SYSCALL, 0x10000011, 0, 0, 0, 0))"
    assert sandbox.run(namespaces.replace("SYSCALL", str(numbers["clone"]))).stdout == "-1\n"


# -- one service for everybody ----------------------------------------------------------------------------------------


def test_many_threads_share_it(sandbox: Sandbox) -> None:
    with ThreadPoolExecutor(16) as threads:
        found = list(threads.map(lambda i: sandbox.run(f"print({i} * 2)").stdout, range(60)))
    assert found == [f"{i * 2}\n" for i in range(60)]


def test_waiting_programs_overlap(sandbox: Sandbox) -> None:
    started = time.monotonic()
    results = sandbox.run_many("import time\ntime.sleep(0.4)\nprint(input())", ["a\n", "b\n", "c\n", "d\n"])
    assert [r.stdout for r in results] == ["a\n", "b\n", "c\n", "d\n"]
    assert time.monotonic() - started < 1.4


def _in_child(connection: Any, sandbox: Sandbox | None) -> None:
    chosen = sandbox or default_sandbox()
    connection.send(chosen.run("print(6 * 7)").stdout)
    chosen.close()


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_child_processes_have_their_own(method: Any, sandbox: Sandbox) -> None:
    assert sandbox.run("print(1)").ok
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=_in_child, args=(theirs, sandbox if method == "fork" else None))
    process.start()
    assert ours.poll(60)
    assert ours.recv() == "42\n"
    process.join(10)
    assert sandbox.run("print(2)").stdout == "2\n"


def test_pickled_copies_start_their_own_processes(sandbox: Sandbox) -> None:
    with pickle.loads(pickle.dumps(sandbox)) as copy:
        assert copy.preload == sandbox.preload
        assert copy.run("print(3)").stdout == "3\n"


def test_killed_helpers_are_replaced() -> None:
    with Sandbox(preload=(), max_workers=1) as sandbox:
        sandbox.run("pass")
        (slot,) = sandbox._idle[()]
        os.kill(slot.pid, signal.SIGKILL)
        time.sleep(0.05)
        assert sandbox.run("print(1)").stdout == "1\n"
        process = sandbox._templates[()]._process
        assert process is not None
        process.kill()
        time.sleep(0.05)
        assert sandbox.run("print(2)").stdout == "2\n"


def test_a_supervisor_killed_during_a_run_is_a_verdict() -> None:
    with Sandbox(preload=(), max_workers=1) as sandbox:
        sandbox.run("pass")
        (slot,) = sandbox._idle[()]
        threading.Timer(0.2, os.kill, (slot.pid, signal.SIGKILL)).start()
        result = sandbox.run("import time\ntime.sleep(20)", timeout=5)
        assert (result.verdict, result.detail) == ("killed", "the supervisor of the run died")
        assert sandbox.run("print(1)").stdout == "1\n"


def test_everything_goes_with_the_process_that_uses_it(tmp_path: pathlib.Path) -> None:
    code = (
        "import sys, time, threading; from gem_core.sandbox import default_sandbox; s = default_sandbox(); s.run('1');"
        "threading.Thread(target=s.run, args=('import time; time.sleep(30)',), kwargs={'timeout': 30}).start();"
        "time.sleep(0.3); print('ready', flush=True); time.sleep(30)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    below = list(descendants(process.pid))
    assert below
    process.kill()
    process.wait()
    deadline = time.monotonic() + 3
    while any(_runs(pid) for pid in below) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [pid for pid in below if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_nothing_of_this_process_goes_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_TOKEN", "hidden-value")
    with Sandbox(preload=(), max_workers=1) as sandbox:
        code = "import os, sys\nprint(dict(os.environ), sys.argv, sorted(m for m in sys.modules if 'gem' in m))"
        result = sandbox.run(code)
        assert "hidden-value" not in result.stdout
        assert result.stdout.endswith("[]\n")


def test_as_fast_after_many_calls_as_at_the_start() -> None:
    """The first 300 of the 2,000 calls that benchmarks/sandbox.py makes."""
    with Sandbox(preload=(), max_workers=1) as sandbox:
        sandbox.run("pass")
        times = []
        for i in range(300):
            started = time.perf_counter()
            assert sandbox.run(f"print({i})").stdout == f"{i}\n"
            times.append(time.perf_counter() - started)
        first, last = sorted(times[:100])[50], sorted(times[-100:])[50]
        assert last < 2 * first + 0.005, f"{first * 1e3:.1f} ms at first, {last * 1e3:.1f} ms at last"
