"""The ``ray`` executor: the same workers as Ray actors, on any node of a cluster."""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import threading
import time
import weakref
from collections.abc import Sequence
from typing import Any

from gem_core.core import Cost
from gem_core.vector.executors import VectorOptions
from gem_core.vector.fleet import Fleet, Worker
from gem_core.vector.host import EnvFactory
from gem_core.vector.types import AutoresetMode, Command, Reply
from gem_core.vector.worker import CLOSE_S, HEADER, WorkerHosts, encode, make_engine

#: Environments of one actor by default.
ENVS_PER_ACTOR = 8
#: Seconds that :meth:`EnvActor.take` waits for replies before it answers with none, as a sign of life.
_TAKE_S = 0.5


class EnvActor:
    """The inside of an actor; two of its threads serve :meth:`put` and :meth:`take`, the engine has its own."""

    def __init__(self, config: dict[str, Any]) -> None:
        self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        hosts = WorkerHosts(AutoresetMode(config["mode"]), config["lives"])
        self._engine = make_engine(hosts, self._emit, {**config, "heartbeat_s": None})

    def _emit(self, replies: Sequence[Reply]) -> None:
        self._replies.put(encode(replies))

    def put(self, message: Any) -> None:
        """Takes commands, or ``"retire"``."""
        if message == "retire":
            self._engine.retire()
        else:
            self._engine.put([Command(*c) for c in message])

    def take(self) -> list[bytes]:
        """Messages of replies, as soon as there are any."""
        try:
            messages = [self._replies.get(timeout=_TAKE_S)]
        except queue.Empty:
            return []
        for _ in range(self._replies.qsize()):
            messages.append(self._replies.get_nowait())
        return messages

    def close(self) -> None:
        """Closes the environments."""
        self._engine.close(CLOSE_S, 0.0)


class _Link:
    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.ref: Any = actor.take.remote()
        self.worker: Worker | None = None


class _Shared:
    """What must be ended when the executor is collected; holds no reference to it."""

    def __init__(self) -> None:
        self.links: set[_Link] = set()
        self.pid = os.getpid()

    def close(self) -> None:
        import ray

        if os.getpid() != self.pid:
            return
        try:
            if ray.is_initialized():
                closing = [link.actor.close.remote() for link in self.links]
                ray.wait(closing, num_returns=max(1, len(closing)), timeout=3.0) if closing else None
                for link in self.links:
                    ray.kill(link.actor)
        except Exception:  # at interpreter exit Ray may be half gone; its actors then go with their job
            pass
        self.links.clear()
        _release_ray()


class RayExecutor(Fleet):
    """Ray actors with several environments each.

    Ray is initialised if it was not: on the cluster of ``RAY_ADDRESS`` (or the one running here), else a local one,
    which is shut down with the last executor that needed it. An actor whose node is lost is started again elsewhere.
    Environments' code must be importable on the nodes (``ray_options={"runtime_env": ...}`` where it is not).
    """

    def __init__(
        self, factories: Sequence[EnvFactory | None], options: VectorOptions, costs: Sequence[Cost] = ()
    ) -> None:
        try:
            import ray
        except ImportError as e:
            raise ImportError("executor='ray' needs the package ray: pip install 'gem-adapters[ray]'") from e
        self._ray = ray
        _hold_ray()
        n = len(factories)
        workers = min(n, options.workers or -(-n // ENVS_PER_ACTOR))
        # Threads: one for take, the rest for put and close, so that neither waits for the other.
        settings = {"max_restarts": 0, "max_task_retries": 0, **(options.ray_options or {})}
        self._actor_class = ray.remote(**{**settings, "max_concurrency": 4})(EnvActor)
        self._shared = _Shared()
        self._finalizer = weakref.finalize(self, self._shared.close)
        try:
            super().__init__(factories, options, costs, workers)
        except BaseException:
            self._finalizer()
            raise
        self._start_s = None  # on a busy cluster an actor waits for its turn
        # Where the cluster is full, the actor that takes over starts only when the old one has gone. So an environment
        # whose step hung stays, in a new thread, until a few threads are stuck.
        self._most_hung = 4

    def close(self) -> None:
        with self._lock:
            self._finalizer()
            self.workers.clear()

    def _parcel(self, factory: EnvFactory | None) -> Any:
        return None if factory is None else factory.packed_for_cluster

    def _open_link(self, config: dict[str, Any]) -> _Link:
        link = _Link(self._actor_class.remote(config))
        self._shared.links.add(link)
        return link

    def _start(self, indices: set[int]) -> Worker:
        worker = super()._start(indices)
        worker.link.worker = worker
        return worker

    def _send(self, worker: Worker, message: Any) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):  # a dead actor is noticed by its take
            worker.link.actor.put.remote([tuple(c) for c in message] if isinstance(message, list) else message)

    def _kill(self, worker: Worker) -> None:
        self._shared.links.discard(worker.link)
        with contextlib.suppress(Exception):
            self._ray.kill(worker.link.actor)

    def _wait(self, timeout: float) -> None:
        with self._lock:
            links = {link.ref: link for link in self._shared.links}
        if not links:
            time.sleep(min(timeout, 0.1))
            return
        ready, _ = self._ray.wait(list(links), num_returns=1, timeout=timeout)
        if not ready:
            return
        more, _ = self._ray.wait(list(links), num_returns=len(links), timeout=0)
        with self._lock:
            for ref in more or ready:
                self._take(links[ref])

    def _take(self, link: _Link) -> None:
        worker = link.worker
        if worker is None or worker.gone:
            return
        try:
            messages = self._ray.get(link.ref)
        except self._ray.exceptions.RayError as e:
            self._shared.links.discard(link)
            with contextlib.suppress(Exception):
                self._ray.kill(link.actor)
            self._on_death(worker, "killed", f"was lost ({type(e).__name__}: {_first_line(e)})")
            return
        link.ref = link.actor.take.remote()
        worker.heard, worker.started = time.monotonic(), True
        for message in messages:
            self._on_replies(worker, decode(message))


def decode(message: bytes) -> Any:
    return pickle.loads(memoryview(message)[HEADER.size :])


def _first_line(error: BaseException) -> str:
    return str(error).strip().split("\n", 1)[0][:200]


_ray_lock = threading.Lock()
_ray_users = 0
_ray_is_ours = False


def _hold_ray() -> None:
    """Initialises Ray where nobody has, and counts who relies on that."""
    global _ray_users, _ray_is_ours
    import ray

    with _ray_lock:
        if not ray.is_initialized():
            ray.init(ignore_reinit_error=True, log_to_driver=False, include_dashboard=False)
            _ray_is_ours = True
        _ray_users += 1


def _release_ray() -> None:
    global _ray_users, _ray_is_ours
    import ray

    with _ray_lock:
        _ray_users -= 1
        if _ray_users == 0 and _ray_is_ours:
            _ray_is_ours = False
            with contextlib.suppress(Exception):
                ray.shutdown()
