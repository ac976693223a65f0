"""Three ways to start a worker process.

``forkserver``: forked in milliseconds from a fresh template process; the default. ``spawn``: a fresh interpreter each
time. ``fork``: a copy of this very process, as it is; only safe while it runs no other threads and has not used CUDA.
None of them runs the main script again, so scripts need no ``if __name__ == "__main__"``, and all work inside daemonic
processes and Ray actors.
"""

from __future__ import annotations

import abc
import contextlib
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any, Literal

from gem_core.vector import template

StartMethod = Literal["forkserver", "spawn", "fork"]
#: Seconds that a fresh interpreter may take to start and import.
START_S = 120.0


class Launcher(abc.ABC):
    """Starts and ends worker processes."""

    @abc.abstractmethod
    def start(self, theirs: socket.socket) -> int:
        """Starts a worker at the other end of ``theirs`` and returns its pid."""

    @abc.abstractmethod
    def end(self, pid: int) -> int:
        """Ends a worker, its descendants included, and returns its wait status."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends whatever is left."""


class ForkServer(Launcher):
    """See :mod:`gem_core.vector.template`.

    Args:
        modules: Imported once, before the first worker is forked.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._modules = list(modules)
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def start(self, theirs: socket.socket) -> int:
        with self._lock:
            for attempt in (1, 2):
                try:
                    if self._control is None:
                        self._start_template()
                    assert self._control is not None
                    socket.send_fds(self._control, [b"w"], [theirs.fileno()])
                    return int(template.PID.unpack(_receive(self._control, template.PID.size))[0])
                except (OSError, EOFError) as e:
                    self._drop()
                    if attempt == 2:
                        raise RuntimeError(f"no worker process can be started: {type(e).__name__}: {e}") from e
        raise AssertionError("unreachable")

    def end(self, pid: int) -> int:
        with self._lock:
            if self._control is not None:
                try:
                    self._control.sendall(b"k" + template.PID.pack(pid))
                    return int(struct.unpack("!i", _receive(self._control, 4))[0])
                except (OSError, EOFError):
                    self._drop()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)  # the template was killed and could not end its workers
        return signal.SIGKILL

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _start_template(self) -> None:
        ours, theirs = socket.socketpair()
        boot = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from gem_core.vector import template"
        arguments = [json.dumps(sys.path), str(theirs.fileno()), json.dumps(self._modules)]
        try:
            self._process = _popen(boot + "; template.main()", arguments, theirs)
        finally:
            theirs.close()
        self._control = ours
        ours.settimeout(START_S)
        _receive(ours, 1)

    def _drop(self) -> None:
        control, self._control = self._control, None
        process, self._process = self._process, None
        if control is not None:
            with contextlib.suppress(OSError):
                control.shutdown(socket.SHUT_RDWR)
            control.close()
        if process is not None:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Spawn(Launcher):
    def __init__(self) -> None:
        self._processes: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, theirs: socket.socket) -> int:
        boot = "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from gem_core.vector import worker"
        process = _popen(boot + "; worker.main()", [json.dumps(sys.path), str(theirs.fileno())], theirs)
        self._processes[process.pid] = process
        return process.pid

    def end(self, pid: int) -> int:
        process = self._processes.pop(pid)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(pid, signal.SIGKILL)
        code = process.wait()
        return -code if code < 0 else code << 8

    def close(self) -> None:
        for pid in list(self._processes):
            self.end(pid)


class Fork(Launcher):
    def __init__(self) -> None:
        self._pids: set[int] = set()

    def start(self, theirs: socket.socket) -> int:
        pid = os.fork()
        if pid == 0:
            try:
                os.setsid()
                keep = theirs.detach()
                close_other_sockets(keep)
                from gem_core.vector.worker import run_worker

                run_worker(socket.socket(fileno=keep))
            finally:
                os._exit(1)
        self._pids.add(pid)
        return pid

    def end(self, pid: int) -> int:
        self._pids.discard(pid)
        return template.end(pid)

    def close(self) -> None:
        for pid in list(self._pids):
            self.end(pid)


#: Our ends of all workers' sockets in this process; a forked worker must not keep them open.
OUR_ENDS: set[int] = set()


def close_other_sockets(keep: int) -> None:
    for fd in OUR_ENDS - {keep}:
        with contextlib.suppress(OSError):
            os.close(fd)


def launcher(method: str, modules: Sequence[str]) -> Launcher:
    if method not in ("forkserver", "spawn", "fork"):
        raise ValueError(f"start_method must be 'forkserver', 'spawn' or 'fork', got {method!r}")
    if not hasattr(os, "fork") or not hasattr(socket, "send_fds"):
        raise RuntimeError("worker processes need a POSIX system; use executor='thread' here")
    if method == "forkserver":
        return ForkServer(modules)
    return Spawn() if method == "spawn" else Fork()


def describe_status(status: int) -> tuple[Literal["killed", "exit"], str]:
    """What a wait status says of how a worker ended."""
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        try:
            name = signal.Signals(number).name
        except ValueError:
            name = f"signal {number}"
        return "killed", f"was killed by {name}"
    return "exit", f"exited with status {os.WEXITSTATUS(status)}"


def _popen(code: str, arguments: list[str], pass_socket: socket.socket) -> subprocess.Popen[bytes]:
    environment: dict[str, Any] = dict(os.environ)
    environment.setdefault("OMP_NUM_THREADS", "1")  # many workers, each with a thread a core, would only get in the way
    return subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        pass_fds=[pass_socket.fileno()],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env=environment,
    )


def _receive(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise EOFError("the template process ended")
        data += chunk
    return data
