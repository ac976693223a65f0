"""The inside of a worker process: reads commands from its socket, runs them on an engine, writes replies.

Started three ways, see :mod:`gem_core.vector.launch`. A worker whose socket closes ends: no vector outlives its owner.
Standard output goes to standard error, so that an environment that prints disturbs no program whose output is data.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import socket
import struct
import sys
import threading
from collections.abc import Sequence
from typing import Any

from gem_core.vector.engine import FLUSH_S, Engine
from gem_core.vector.host import EnvHost, portable
from gem_core.vector.types import RAISED, AutoresetMode, Command, Reply

HEADER = struct.Struct("!I")
#: Seconds that closing the environments may take.
CLOSE_S = 1.0


def serve(connection: socket.socket) -> None:
    """Runs until the other end closes; the first message is the configuration."""
    config = pickle.loads(_read(connection))
    write_lock = threading.Lock()

    def emit(replies: Sequence[Reply]) -> None:
        message = encode(replies)
        try:
            with write_lock:
                connection.sendall(message)
        except OSError:  # the owner has gone; the reading thread sees it, too
            pass

    hosts = WorkerHosts(AutoresetMode(config["mode"]), config["lives"])
    engine = make_engine(hosts, emit, config)
    try:
        while True:
            message = pickle.loads(_read(connection))
            if message == "retire":
                engine.retire()
            else:
                engine.put([Command(*c) for c in message])
    except (EOFError, OSError):
        pass
    engine.close(CLOSE_S, 0.0)


def make_engine(hosts: WorkerHosts, emit: Any, config: dict[str, Any]) -> Engine:
    limit = config["step_timeout_s"]
    return Engine(
        hosts,
        emit,
        steppers=config["steppers"],
        most_steppers=max(len(config["lives"]), config["steppers"]),
        step_timeout_s=limit,
        reset_timeout_s=config["reset_timeout_s"],
        flush_s=FLUSH_S,
        heartbeat_s=config["heartbeat_s"],
    )


class WorkerHosts(dict[int, EnvHost]):
    """The environments of a worker; those that move here get their host with their first command."""

    def __init__(self, mode: AutoresetMode, lives: dict[int, int]) -> None:
        super().__init__()
        self._mode, self._lives = mode, lives

    def __missing__(self, index: int) -> EnvHost:
        host = self[index] = EnvHost(index, self._mode, life=self._lives.get(index, 0))
        return host


def encode(replies: Sequence[Reply]) -> bytes:
    """A message of replies; what cannot be pickled is replaced by its ``repr``."""
    plain = [(r.slot, r.ticket, r.flag, portable(r.value) if r.flag == RAISED else r.value) for r in replies]
    try:
        data = pickle.dumps(plain, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception:
        data = pickle.dumps([(i, t, f, _picklable(v)) for i, t, f, v in plain], protocol=pickle.HIGHEST_PROTOCOL)
    return HEADER.pack(len(data)) + data


def _picklable(value: Any) -> Any:
    try:
        pickle.dumps(value)
        return value
    except Exception:
        if isinstance(value, dict):
            return {_picklable(k): _picklable(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return type(value)(_picklable(v) for v in value) if type(value) in (list, tuple) else repr(value)
        return repr(value)


def _read(connection: socket.socket) -> bytes:
    size = HEADER.unpack(_exactly(connection, HEADER.size))[0]
    return _exactly(connection, size)


def _exactly(connection: socket.socket, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = connection.recv(min(size - len(data), 1 << 20))
        if not chunk:
            raise EOFError
        data += chunk
    return bytes(data)


def run_worker(connection: socket.socket) -> None:
    """The whole life of a worker process; never returns."""
    code = 1
    try:
        # Ctrl-C in a terminal is the owner's business; the owner then closes the socket.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.dup2(2, 1)
        # A reader and a watchdog share the interpreter with a stepper that may compute without a pause.
        sys.setswitchinterval(0.001)
        connection.setblocking(True)
        serve(connection)
        code = 0
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(code)


def main() -> None:
    """Entry of a spawned worker: ``python -c ... FD``."""
    run_worker(socket.socket(fileno=int(sys.argv[-1])))
