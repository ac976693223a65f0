"""Runs untrusted grading jobs in small processes that the kernel kills at their deadline.

Symbolic algebra on a model's answer may run forever or ask for all memory (``9^9^9^9``), and Python cannot interrupt
it from a thread: signals reach only the main thread, and a nested alarm cancels the outer one. So a job runs in a
worker process, and each worker arms its own kernel timer with the default action: the process ends at the deadline
whatever it is doing, and also where the process that asked for it has died.

One :class:`WorkerPool` serves a whole process. It starts one template process (fresh, not forked from this one), which
imports the handler once; workers are forked from it in milliseconds, so replacing a killed one costs next to nothing.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from typing import Any

#: Seconds that the template may take to import its handler.
START_TIMEOUT_S = 60.0
#: Address space that a worker may add to what its imports take.
DEFAULT_MEMORY_MB = 512
#: Jobs after which a worker is replaced, which bounds what caches and leaks can grow to.
JOBS_PER_WORKER = 2000
#: Longest that a worker may outlive its own deadline before the pool kills it (only a stopped process does).
_BACKSTOP_S = 1.0

_BOOT = (
    "import sys, json; sys.path[:] = json.loads(sys.argv[1]); from gem_core.grading import _template; _template.main()"
)
_HEADER = struct.Struct("!Id")


class JobFailed(Exception):
    """A job gave no result; ``reason`` is ``"time_limit"``, ``"memory_limit"``, ``"error"`` or ``"crashed"``."""

    def __init__(self, reason: str, message: str = "") -> None:
        super().__init__(f"{reason}: {message}" if message else reason)
        self.reason = reason
        self.message = message


class WorkerPool:
    """Worker processes that run one handler; safe to use from any thread, started at the first call.

    Args:
        handler: ``"package.module:function"``; called with the job, returns a JSON-able value.
        max_workers: Jobs at once; the number of usable cores (at most 4) by default.
        memory_mb: See :data:`DEFAULT_MEMORY_MB`.

    A process forked from one that uses a pool starts its own template at its first call.
    """

    def __init__(self, handler: str, max_workers: int | None = None, memory_mb: int = DEFAULT_MEMORY_MB) -> None:
        self.handler = handler
        self.max_workers = max_workers or min(4, _usable_cores())
        self.memory_mb = memory_mb
        self._reset()
        _pools.add(self)

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._slots = threading.BoundedSemaphore(self.max_workers)
        self._idle: list[_Worker] = []
        self._workers: weakref.WeakSet[_Worker] = weakref.WeakSet()
        self._template: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None

    def run(self, job: Any, timeout: float) -> Any:
        """Returns what the handler makes of ``job`` (anything picklable).

        Args:
            timeout: Seconds from the moment a worker starts on the job (waiting for a free one does not count).

        Raises:
            JobFailed: the job ran out of time or memory, raised, or took its process down.
            RuntimeError: no worker process can be started.
        """
        if not timeout > 0:
            raise ValueError(f"timeout must be a positive number of seconds, got {timeout!r}")
        payload = pickle.dumps(job)
        with self._slots:
            worker = self._take()
            started = time.monotonic()
            try:
                reply = worker.ask(payload, timeout)
            except TimeoutError:
                worker.kill()
                raise JobFailed("time_limit", f"no answer within {timeout:g} s") from None
            except (OSError, EOFError):
                worker.close()
                if time.monotonic() - started >= timeout * 0.98:
                    raise JobFailed("time_limit", f"no answer within {timeout:g} s") from None
                raise JobFailed("crashed", "the worker process died") from None
            except BaseException:  # KeyboardInterrupt in the middle of an exchange: its reply must reach nobody else
                worker.kill()
                raise
            self._give_back(worker, fresh=reply.get("failed") != "memory_limit")
        if "failed" in reply:
            raise JobFailed(reply["failed"], reply.get("message", ""))
        return reply["result"]

    def close(self) -> None:
        """Ends the processes. The next :meth:`run` starts new ones."""
        with self._lock:
            idle, self._idle = self._idle, []
            control, self._control = self._control, None
            template, self._template = self._template, None
        for worker in idle:
            worker.close()
        if control is not None:
            control.close()
        if template is not None:
            try:
                template.wait(timeout=2)
            except subprocess.TimeoutExpired:
                template.kill()
                template.wait()

    # -- workers ----------------------------------------------------------------------------------------------

    def _take(self) -> _Worker:
        with self._lock:
            while self._idle:
                worker = self._idle.pop()
                if worker.alive():
                    return worker
                worker.close()
            for attempt in (1, 2):
                try:
                    return self._fork_worker()
                except (OSError, EOFError):
                    self._drop_template()
                    if attempt == 2:
                        raise RuntimeError(
                            f"the worker processes of {self.handler} cannot be started; "
                            f"try: python -c 'import {self.handler.split(':')[0]}'"
                        ) from None
        raise AssertionError("unreachable")

    def _give_back(self, worker: _Worker, fresh: bool) -> None:
        with self._lock:
            if fresh and worker.jobs < JOBS_PER_WORKER and self._control is not None:
                self._idle.append(worker)
                return
        worker.close()

    def _fork_worker(self) -> _Worker:
        if self._control is None:
            self._start_template()
        assert self._control is not None
        ours, theirs = socket.socketpair()
        try:
            socket.send_fds(self._control, [b"w"], [theirs.fileno()])
            pid = struct.unpack("!I", _receive(self._control, 4, time.monotonic() + 10))[0]
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        worker = _Worker(ours, pid)
        self._workers.add(worker)
        return worker

    def _start_template(self) -> None:
        ours, theirs = socket.socketpair()
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
        arguments = [json.dumps(sys.path), str(theirs.fileno()), self.handler, str(self.memory_mb)]
        try:
            self._template = subprocess.Popen(
                [sys.executable, "-c", _BOOT, *arguments],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C in a terminal must not reach it
                env=environment,
            )
        finally:
            theirs.close()
        self._control = ours
        _receive(ours, 1, time.monotonic() + START_TIMEOUT_S)  # imports are done

    def _drop_template(self) -> None:
        if self._control is not None:
            self._control.close()
        if self._template is not None:
            self._template.kill()
            self._template.wait()
        self._control = self._template = None

    def _after_fork(self) -> None:
        """In a forked child: the sockets are the parent's; close our copies and start afresh."""
        for worker in list(self._workers):
            worker.close()
        if self._control is not None:
            self._control.close()
        if self._template is not None:
            self._template.returncode = 0  # not this process's child: nothing to wait for
        self._reset()


class _Worker:
    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        self.pid = pid
        self.jobs = 0

    def ask(self, payload: bytes, timeout: float) -> dict[str, Any]:
        deadline = time.monotonic() + timeout + _BACKSTOP_S
        self.jobs += 1
        self.connection.settimeout(timeout + _BACKSTOP_S)
        self.connection.sendall(_HEADER.pack(len(payload), timeout) + payload)
        size = struct.unpack("!I", _receive(self.connection, 4, deadline))[0]
        reply: dict[str, Any] = json.loads(_receive(self.connection, size, deadline))
        return reply

    def alive(self) -> bool:
        """False where the worker has gone while idle (its socket then reads as closed)."""
        self.connection.settimeout(0)
        try:
            return self.connection.recv(1, socket.MSG_PEEK) != b""
        except BlockingIOError:
            return True
        except OSError:
            return False

    def kill(self) -> None:
        """For a worker that may still be busy; an idle one leaves when its connection closes."""
        with contextlib.suppress(OSError):
            os.kill(self.pid, 9)
        self.close()

    def close(self) -> None:
        self.connection.close()


def _receive(connection: socket.socket, size: int, deadline: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        connection.settimeout(remaining)
        chunk = connection.recv(min(size - len(data), 1 << 16))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def _usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1


_pools: weakref.WeakSet[WorkerPool] = weakref.WeakSet()
_shared: dict[str, WorkerPool] = {}
_shared_lock = threading.Lock()


def shared_pool(handler: str) -> WorkerPool:
    """The pool of this process for ``handler``."""
    with _shared_lock:
        if handler not in _shared:
            _shared[handler] = WorkerPool(handler)
        return _shared[handler]


def close_shared_pools() -> None:
    """Ends all worker processes of this process; they start again when they are needed."""
    for pool in list(_pools):
        pool.close()


def _after_fork_in_child() -> None:
    global _shared_lock
    _shared_lock = threading.Lock()
    for pool in list(_pools):
        pool._after_fork()


atexit.register(close_shared_pools)
os.register_at_fork(after_in_child=_after_fork_in_child)
