"""The part of Launchpad 0.5 that Oat's programs use: nodes as local processes, calls between them over Unix sockets.

CI only, where Launchpad cannot be installed: its last release has no build for Python above 3.10.
"""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from multiprocessing.connection import Client, Connection, Listener, wait
from typing import Any

_STOP = "LAUNCHPAD_STANDIN_STOP"


class _Node:
    def __init__(self, cls: type, *args: Any, **kwargs: Any) -> None:
        self.cls, self.args, self.kwargs = cls, args, kwargs


class CourierNode(_Node):
    """An object whose methods other nodes call."""


class PyClassNode(_Node):
    """An object whose ``run`` is the node's work."""


@dataclass
class Handle:
    """Stands for a node among another's arguments; in the other's process it is the client of the first."""

    label: str
    folder: str = ""

    @property
    def address(self) -> str:
        return os.path.join(self.folder, self.label)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        if name == "futures":
            return _Futures(self)
        return lambda *args, **kwargs: _Futures(self)._call(name, args, kwargs).result()


class _Futures:
    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def __getattr__(self, name: str) -> Callable[..., Future[Any]]:
        return lambda *args, **kwargs: self._call(name, args, kwargs)

    def _call(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Future[Any]:
        future: Future[Any] = Future()

        def ask() -> None:
            try:
                with _connect(self._handle.address) as connection:
                    connection.send_bytes(pickle.dumps((name, args, kwargs)))
                    failed, value = pickle.loads(connection.recv_bytes())
                if failed:
                    future.set_exception(RuntimeError(f"{self._handle.label}.{name} raised:\n{value}"))
                else:
                    future.set_result(value)
            except BaseException as e:
                future.set_exception(e)

        threading.Thread(target=ask, daemon=True).start()
        return future


def _connect(address: str, patience_s: float = 600.0) -> Connection:
    """The other node may still be starting."""
    end = time.monotonic() + patience_s
    while True:
        try:
            return Client(address, "AF_UNIX")
        except (FileNotFoundError, ConnectionRefusedError):
            if time.monotonic() > end:
                raise
            time.sleep(0.05)


@dataclass
class Program:
    name: str
    nodes: dict[str, _Node] = field(default_factory=dict)
    handles: list[Handle] = field(default_factory=list)

    def add_node(self, node: _Node, label: str = "") -> Handle:
        handle = Handle(label or f"node{len(self.nodes)}")
        self.nodes[handle.label] = node
        self.handles.append(handle)
        return handle


def launch(
    program: Program, launch_type: str = "local_mp", local_resources: Any = None, terminal: str = "current_terminal"
) -> None:
    """Runs every node in a process of its own, until ``stop`` is called or a node fails.

    Raises:
        RuntimeError: a node failed.
    """
    del launch_type, terminal
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as folder:
        stop = os.path.join(folder, "stop")
        for handle in program.handles:
            handle.folder = folder
        processes = []
        for handle in program.handles:
            env = getattr((local_resources or {}).get(handle.label), "env", None) or {}
            process = context.Process(
                target=_run, args=(program.nodes[handle.label], handle.address, {**env, _STOP: stop}), name=handle.label
            )
            process.start()
            processes.append(process)
        failed = ""
        try:
            alive = list(processes)
            while alive and not os.path.exists(stop) and not failed:
                wait([p.sentinel for p in alive], timeout=0.2)
                failed = next((p.name for p in alive if p.exitcode), "")
                alive = [p for p in alive if p.exitcode is None]
        finally:
            for p in processes:
                p.terminate()
            for p in processes:
                p.join(10)
                if p.exitcode is None:
                    p.kill()
                    p.join()
        if failed and not os.path.exists(stop):
            raise RuntimeError(f"the node {failed} failed")


def stop() -> None:
    """Ends the program; called in any node."""
    open(os.environ[_STOP], "w").close()


def _run(node: _Node, address: str, env: dict[str, str]) -> None:
    os.environ.update(env)
    # The end of the program must unwind a node's run, which may have a process of its own to stop (the Plasma store).
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(0))
    instance = node.cls(*node.args, **node.kwargs)
    if isinstance(node, PyClassNode):
        instance.run()
        return
    listener = Listener(address, "AF_UNIX", backlog=64)
    server = threading.Thread(target=_serve, args=(listener, instance), daemon=True)
    server.start()
    if hasattr(instance, "run"):
        instance.run()
    server.join()  # a courier without a run of its own serves until it is ended


def _serve(listener: Listener, instance: Any) -> None:
    while True:
        threading.Thread(target=_answer, args=(listener.accept(), instance), daemon=True).start()


def _answer(connection: Connection, instance: Any) -> None:
    with connection:
        name, args, kwargs = pickle.loads(connection.recv_bytes())
        try:
            reply = (False, getattr(instance, name)(*args, **kwargs))
        except Exception:
            reply = (True, traceback.format_exc())
        connection.send_bytes(pickle.dumps(reply))
