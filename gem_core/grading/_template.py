"""The process that worker processes are forked from, and the loop that a worker runs; see :mod:`workers`."""

from __future__ import annotations

import importlib
import json
import os
import pickle
import signal
import socket
import struct
import sys
from collections.abc import Callable
from typing import Any

_HEADER = struct.Struct("!Id")


def main() -> None:
    """Serves fork requests on the socket named in ``sys.argv`` until it closes."""
    control = socket.socket(fileno=int(sys.argv[2]))
    module, function = sys.argv[3].split(":")
    handler: Callable[[Any], Any] = getattr(importlib.import_module(module), function)
    memory_bytes = int(sys.argv[4]) << 20
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps the workers
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    control.sendall(b"r")
    while True:
        try:
            message, fds, _, _ = socket.recv_fds(control, 1, 1)
        except OSError:
            return
        if not message:
            return
        pid = os.fork()
        if pid == 0:
            control.close()
            connection = socket.socket(fileno=fds[0])
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                limit_memory(memory_bytes)
                serve(connection, handler)
            finally:
                os._exit(0)
        os.close(fds[0])
        control.sendall(struct.pack("!I", pid))


def serve(connection: socket.socket, handler: Callable[[Any], Any]) -> None:
    """Answers jobs until the connection closes. The default action of SIGALRM ends the process at a job's deadline."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    while True:
        header = receive(connection, _HEADER.size)
        if header is None:
            return
        size, timeout = _HEADER.unpack(header)
        payload = receive(connection, size)
        if payload is None:
            return
        signal.setitimer(signal.ITIMER_REAL, timeout)
        reply = answer(handler, payload)
        signal.setitimer(signal.ITIMER_REAL, 0)
        connection.sendall(struct.pack("!I", len(reply)) + reply)


def answer(handler: Callable[[Any], Any], payload: bytes) -> bytes:
    reply: dict[str, Any]
    try:
        reply = {"result": handler(pickle.loads(payload))}
        return json.dumps(reply).encode()
    except MemoryError:
        reply = {"failed": "memory_limit", "message": "MemoryError"}
    except BaseException as e:  # SystemExit included: the job is untrusted, the worker goes on
        try:
            reply = {"failed": "error", "message": f"{type(e).__name__}: {e}"[:500]}
        except BaseException:
            reply = {"failed": "error", "message": type(e).__name__}
    return json.dumps(reply).encode()


def receive(connection: socket.socket, size: int) -> bytes | None:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), 1 << 16))
        if not chunk:
            return None
        data += chunk
    return bytes(data)


def limit_memory(extra_bytes: int) -> None:
    """Caps the address space at what is mapped now plus ``extra_bytes``, where the system can."""
    try:
        import resource

        with open("/proc/self/statm") as f:
            mapped = int(f.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (mapped + extra_bytes, mapped + extra_bytes))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    except (ImportError, OSError, ValueError):  # macOS has no /proc and ignores RLIMIT_AS
        pass
