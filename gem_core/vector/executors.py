"""Where environments run: ``inline``, ``thread`` (here), ``process`` and ``ray`` (in modules of their own)."""

from __future__ import annotations

import abc
import os
import queue
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from gem_core.core import Cost, StepTuple
from gem_core.vector.engine import Engine
from gem_core.vector.host import EnvFactory, EnvHost
from gem_core.vector.types import HUNG, RAISED, RESULT, UNRESET, AutoresetMode, Command, Reply, after_autoreset

ExecutorName = Literal["inline", "thread", "process", "ray"]


@dataclass(frozen=True)
class VectorOptions:
    """How a vector of environments is executed; :func:`gem_core.make_vec` takes these as keywords."""

    #: ``"inline"``, ``"thread"``, ``"process"`` or ``"ray"``; None = see :func:`default_executor`.
    executor: ExecutorName | None = None
    #: Threads of ``thread`` (default: one an environment), processes of ``process`` (default: one a core), actors of
    #: ``ray`` (default: one for 8 environments). Environments that share a worker process share its death; as many
    #: workers as environments keep them apart.
    workers: int | None = None
    autoreset_mode: AutoresetMode | str = AutoresetMode.SAME_STEP
    #: Seconds that a step may take; not for ``inline``.
    step_timeout_s: float | None = None
    #: Seconds that a reset, building included, may take; None = no limit, or where there is one for steps, the
    #: larger of it and a minute.
    reset_timeout_s: float | None = None
    #: Of worker processes, see :mod:`gem_core.vector.launch`.
    start_method: Literal["forkserver", "spawn", "fork"] = "forkserver"
    #: For ``ray.remote`` of each actor: ``{"num_cpus": 1, "resources": {"env_node": 1}}``, ``runtime_env``, ...
    ray_options: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        if self.executor not in (None, "inline", "thread", "process", "ray"):
            raise ValueError(f"executor must be 'inline', 'thread', 'process' or 'ray', got {self.executor!r}")
        if self.workers is not None and (isinstance(self.workers, bool) or self.workers < 1):
            raise ValueError(f"workers must be a positive integer, got {self.workers!r}")
        for name in ("step_timeout_s", "reset_timeout_s"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ValueError(f"{name} must be a positive number of seconds, got {value!r}")
        if self.start_method not in ("forkserver", "spawn", "fork"):
            raise ValueError(f"start_method must be 'forkserver', 'spawn' or 'fork', got {self.start_method!r}")
        if self.executor == "inline" and self.limited:
            raise ValueError("the inline executor cannot stop a step at a time limit; use executor='process'")
        AutoresetMode.parse(self.autoreset_mode)

    @property
    def limited(self) -> bool:
        return self.step_timeout_s is not None or self.reset_timeout_s is not None

    @property
    def mode(self) -> AutoresetMode:
        return AutoresetMode.parse(self.autoreset_mode)

    @property
    def reset_limit_s(self) -> float | None:
        if self.reset_timeout_s is None and self.step_timeout_s is not None:
            return max(60.0, self.step_timeout_s)
        return self.reset_timeout_s


def default_executor(costs: Sequence[Cost], limited: bool = False) -> ExecutorName:
    """``inline`` where all are cheap, ``thread`` where some wait and none computes, ``process`` where some compute.

    With a time limit ``process`` in place of ``inline``, which cannot keep one.
    """
    if "computes" in costs:
        return "process"
    if "waits" in costs:
        return "thread"
    return "process" if limited else "inline"


class Executor(abc.ABC):
    """Runs commands, at most one at a time for each environment, and gives back replies in the order they come.

    :meth:`submit` and :meth:`poll` may be called by two threads at once.
    """

    mode: AutoresetMode

    def __init__(self) -> None:
        #: Same-step mode: last results whose reset runs somewhere else than the step did.
        self._finals: dict[int, StepTuple] = {}

    @abc.abstractmethod
    def submit(self, commands: Sequence[Command]) -> None:
        """Starts commands; never waits for an environment (but ``inline`` runs them here and now)."""

    @abc.abstractmethod
    def poll(self, timeout: float | None) -> list[Reply]:
        """Replies that have come; waits up to ``timeout`` seconds (None = any time) for the first."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends threads, processes and actors; safe to call twice."""

    def _settle(self, replies: Sequence[Reply], op_of: Any) -> list[Reply]:
        """Takes care of what the worker could not do itself: same-step resets after a step that is lost or moves.

        Args:
            replies: As they came.
            op_of: From an index to the command's operation.
        """
        out = []
        for reply in replies:
            index, ticket, flag, value = reply
            if index in self._finals:
                if flag == RAISED:
                    raise AssertionError("a reset cannot raise")
                out.append(Reply(index, ticket, RESULT, after_autoreset(self._finals.pop(index), value)))
            elif flag == UNRESET or (flag == HUNG and self.mode is AutoresetMode.SAME_STEP and op_of(index) == "step"):
                self._finals[index] = value
                self.submit([Command(index, ticket, "reset", (None, None))])
            elif flag == HUNG:
                out.append(Reply(index, ticket, RAISED if isinstance(value, BaseException) else RESULT, value))
            else:
                out.append(reply)
        return out


class InlineExecutor(Executor):
    """In the thread that submits."""

    def __init__(self, factories: Sequence[EnvFactory | None], options: VectorOptions) -> None:
        super().__init__()
        self.mode = options.mode
        self.hosts = [EnvHost(i, self.mode, f) for i, f in enumerate(factories)]
        self._ready: deque[Reply] = deque()
        self._came = threading.Condition()

    def submit(self, commands: Sequence[Command]) -> None:
        hosts = self.hosts
        replies = [hosts[c.slot].run(c) for c in commands]
        with self._came:
            self._ready.extend(replies)
            self._came.notify()

    def poll(self, timeout: float | None) -> list[Reply]:
        with self._came:
            if not self._ready:
                self._came.wait(timeout)
            replies = list(self._ready)
            self._ready.clear()
        return replies

    def close(self) -> None:
        for host in self.hosts:
            host.close()


class ThreadExecutor(Executor):
    """One engine in this process; a thread for each environment unless ``workers`` says less."""

    def __init__(self, factories: Sequence[EnvFactory | None], options: VectorOptions) -> None:
        super().__init__()
        self.mode = options.mode
        results: queue.SimpleQueue[Reply] = queue.SimpleQueue()

        def emit(replies: Sequence[Reply]) -> None:
            for reply in replies:
                results.put(reply)

        self._results = results
        self._engine = Engine(
            {i: EnvHost(i, self.mode, f) for i, f in enumerate(factories)},
            emit,
            steppers=min(options.workers or len(factories), len(factories)),
            step_timeout_s=options.step_timeout_s,
            reset_timeout_s=options.reset_limit_s,
        )
        self._ops: dict[int, str] = {}
        self._pid = os.getpid()
        self._finalizer = weakref.finalize(self, _close_engine, self._engine, self._pid)

    def submit(self, commands: Sequence[Command]) -> None:
        check_process(self._pid)
        for command in commands:
            self._ops[command.slot] = command.op
        self._engine.put(commands)

    def poll(self, timeout: float | None) -> list[Reply]:
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            try:
                wait = None if deadline is None else max(0.0, deadline - time.monotonic())
                replies = [self._results.get(timeout=wait)]
                for _ in range(self._results.qsize()):
                    replies.append(self._results.get_nowait())
            except queue.Empty:
                return []
            if settled := self._settle(replies, self._ops.get):
                return settled

    def close(self) -> None:
        self._finalizer()


def _close_engine(engine: Engine, pid: int) -> None:
    if os.getpid() == pid:  # in a forked child the threads do not exist
        engine.close()


def check_process(pid: int) -> None:
    if os.getpid() != pid:
        raise RuntimeError("this vector of environments belongs to the process that made it; make a new one after fork")


def make_executor(
    name: ExecutorName, factories: Sequence[EnvFactory | None], options: VectorOptions, costs: Sequence[Cost]
) -> Executor:
    """Builds the executor ``name``; environments whose factory is None come with their first ``open`` command."""
    if name == "inline":
        return InlineExecutor(factories, options)
    if name == "thread":
        return ThreadExecutor(factories, options)
    if name == "process":
        from gem_core.vector.process import ProcessExecutor

        return ProcessExecutor(factories, options, costs)
    from gem_core.vector.ray_executor import RayExecutor

    return RayExecutor(factories, options, costs)
