"""The template process: a fresh interpreter that has imported what environments need and forks workers from itself.

It has one thread and never used CUDA, so forking it is safe whatever its owner does, and a worker takes milliseconds.
The owner asks by one byte on a socket: ``w`` (with the worker's socket attached) starts a worker and answers its pid,
``k`` and a pid ends a worker with all its descendants and answers its wait status. When the owner has gone, all workers
are ended.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import struct
import sys

PID = struct.Struct("!I")


def main() -> None:
    """``python -c ... FD MODULES``, the modules as a JSON list."""
    control = socket.socket(fileno=int(sys.argv[-2]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    importlib.import_module("gem_core.vector.worker")
    for module in json.loads(sys.argv[-1]):
        with contextlib.suppress(Exception, SystemExit):  # a worker that needs it says what is wrong
            importlib.import_module(module)
    control.sendall(b"r")
    statuses: dict[int, int] = {}
    workers: set[int] = set()
    try:
        _loop(control, workers, statuses)
    finally:
        for pid in workers:
            end(pid)


def _loop(control: socket.socket, workers: set[int], statuses: dict[int, int]) -> None:
    while True:
        ready, _, _ = select.select([control], [], [], 1.0 if workers else None)
        for pid in list(workers):
            if (status := reap(pid)) is not None:
                workers.discard(pid)
                statuses[pid] = status
        if not ready:
            continue
        data, fds, _, _ = socket.recv_fds(control, 1, 1)
        if not data:
            return
        if data == b"w":
            pid = _fork(control, fds[0])
            os.close(fds[0])
            workers.add(pid)
            control.sendall(PID.pack(pid))
        else:
            pid = PID.unpack(_exactly(control, PID.size))[0]
            if pid in workers:
                workers.discard(pid)
                statuses[pid] = end(pid)
            control.sendall(struct.pack("!i", statuses.pop(pid, 0)))


def _fork(control: socket.socket, fd: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            control.close()
            os.setsid()  # its own group, so that ending it ends what its environments started, too
            from gem_core.vector.worker import run_worker

            run_worker(socket.socket(fileno=os.dup(fd)))
        finally:
            os._exit(1)
    return pid


def reap(pid: int) -> int | None:
    """The wait status of a worker that has ended, after what it left behind was ended too; None while it runs."""
    if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        return None
    _kill_group(pid)
    return os.waitpid(pid, 0)[1]


def end(pid: int) -> int:
    """Kills a worker and its descendants; returns its wait status (its own, where it had ended already)."""
    _kill_group(pid)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # in the moment before it has become a group of its own
    return os.waitpid(pid, 0)[1]


def _kill_group(pid: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        chunk = connection.recv(size - len(data))
        if not chunk:
            raise EOFError
        data += chunk
    return data
