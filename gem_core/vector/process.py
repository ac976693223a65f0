"""The ``process`` executor: worker processes at the other end of sockets."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import socket
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from gem_core.core import Cost
from gem_core.vector.executors import VectorOptions
from gem_core.vector.fleet import Fleet, Worker
from gem_core.vector.host import EnvFactory, PackedFactory
from gem_core.vector.launch import OUR_ENDS, Launcher, describe_status, launcher
from gem_core.vector.worker import CLOSE_S, HEADER


class _Link:
    """Our end of a worker's socket; never blocks."""

    def __init__(self, connection: socket.socket, pid: int) -> None:
        self.connection = connection
        self.pid = pid
        self.inbox = bytearray()
        self.outbox = bytearray()
        self.worker: Worker | None = None
        self.broken = False

    def write(self) -> None:
        """Sends what the socket takes."""
        while self.outbox and not self.broken:
            try:
                sent = self.connection.send(self.outbox)
            except BlockingIOError:
                return
            except OSError:
                self.broken = True  # the reading side sees the end of the stream
                return
            del self.outbox[:sent]

    def read(self) -> tuple[list[Any], bool]:
        """Messages that have come, and whether the stream has ended."""
        ended = False
        while True:
            try:
                chunk = self.connection.recv(1 << 18)
            except BlockingIOError:
                break
            except OSError:
                ended = True
                break
            if not chunk:
                ended = True
                break
            self.inbox += chunk
            if len(chunk) < 1 << 18:
                break
        messages, position, inbox = [], 0, self.inbox
        while len(inbox) - position >= HEADER.size:
            size = HEADER.unpack_from(inbox, position)[0]
            begin = position + HEADER.size
            if len(inbox) - begin < size:
                break
            messages.append(pickle.loads(memoryview(inbox)[begin : begin + size]))
            position = begin + size
        del inbox[:position]
        return messages, ended


class _Shared:
    """What must be ended when the executor is collected; holds no reference to it."""

    def __init__(self, start: Launcher) -> None:
        self.launcher = start
        self.links: set[_Link] = set()
        self.selector = selectors.DefaultSelector()
        self.lock = threading.Lock()
        self.pid = os.getpid()

    def drop(self, link: _Link) -> None:
        self.links.discard(link)
        with contextlib.suppress(KeyError, ValueError, OSError):
            self.selector.unregister(link.connection)
        OUR_ENDS.discard(link.connection.fileno())
        with contextlib.suppress(OSError):
            link.connection.shutdown(socket.SHUT_RDWR)  # reaches the worker even if a forked child holds a copy
        link.connection.close()

    def close(self) -> None:
        if os.getpid() != self.pid:  # a forked child: the workers are its parent's
            return
        links = list(self.links)
        for link in links:  # all at once: each closes its environments, then ends
            with contextlib.suppress(OSError):
                link.connection.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + CLOSE_S + 1.0
        for link in links:
            with contextlib.suppress(OSError):
                link.connection.setblocking(True)
                while (left := deadline - time.monotonic()) > 0:
                    link.connection.settimeout(left)
                    if not link.connection.recv(1 << 18):
                        break
        for link in links:
            pid = link.pid
            self.drop(link)
            with contextlib.suppress(Exception):
                self.launcher.end(pid)
        self.launcher.close()
        self.selector.close()


class ProcessExecutor(Fleet):
    """Worker processes, each with several environments; messages carry many commands or replies at once."""

    def __init__(
        self, factories: Sequence[EnvFactory | None], options: VectorOptions, costs: Sequence[Cost] = ()
    ) -> None:
        n = len(factories)
        workers = min(n, options.workers or usable_cores())
        modules = sorted({m for f in factories if f is not None for m in f.modules})
        self._shared = _Shared(launcher(options.start_method, modules))
        self._forking = options.start_method == "fork"
        self._finalizer = weakref.finalize(self, self._shared.close)
        try:
            super().__init__(factories, options, costs, workers)
        except BaseException:
            self._finalizer()
            raise

    @property
    def pids(self) -> list[int]:
        """The processes of the workers."""
        return [w.link.pid for w in self.workers]

    def close(self) -> None:
        with self._lock:
            self._finalizer()
            self.workers.clear()

    def _parcel(self, factory: EnvFactory | None) -> PackedFactory | EnvFactory | None:
        return None if factory is None else factory.packed

    def _open_link(self, config: dict[str, Any]) -> _Link:
        ours, theirs = socket.socketpair()
        OUR_ENDS.add(ours.fileno())
        try:
            pid = self._shared.launcher.start(theirs)
        except BaseException:
            OUR_ENDS.discard(ours.fileno())
            ours.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        link = _Link(ours, pid)
        self._shared.links.add(link)
        self._shared.selector.register(ours, selectors.EVENT_READ, link)
        self._write(link, config)
        return link

    def _start(self, indices: set[int]) -> Worker:
        worker = super()._start(indices)
        worker.link.worker = worker
        return worker

    def _send(self, worker: Worker, message: Any) -> None:
        self._write(worker.link, [tuple(c) for c in message] if isinstance(message, list) else message)

    def _write(self, link: _Link, message: Any) -> None:
        data = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
        link.outbox += HEADER.pack(len(data)) + data
        link.write()
        if link.outbox and not link.broken:  # the rest goes when the worker has read
            self._shared.selector.modify(link.connection, selectors.EVENT_READ | selectors.EVENT_WRITE, link)

    def _kill(self, worker: Worker) -> None:
        pid = worker.link.pid
        self._shared.drop(worker.link)
        self._shared.launcher.end(pid)

    def _wait(self, timeout: float) -> None:
        events = self._shared.selector.select(timeout)
        with self._lock:
            for key, mask in events:
                link: _Link = key.data
                worker = link.worker
                if worker is None or worker.gone:
                    continue
                if mask & selectors.EVENT_WRITE:
                    link.write()
                    if not link.outbox:
                        self._shared.selector.modify(link.connection, selectors.EVENT_READ, link)
                if mask & selectors.EVENT_READ:
                    self._read(worker, link)

    def _read(self, worker: Worker, link: _Link) -> None:
        messages, ended = link.read()
        for replies in messages:
            self._on_replies(worker, replies)
        if ended and not worker.gone:
            self._shared.drop(link)
            kind, text = describe_status(self._shared.launcher.end(link.pid))
            self._on_death(worker, kind, text)


def usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # macOS
        return os.cpu_count() or 1
