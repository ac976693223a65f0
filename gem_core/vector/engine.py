"""Threads that run the commands of several environments: a thread executor by itself, the inside of every worker.

Commands wait in one queue, and *steppers* (threads) take them from it. With fewer steppers than environments, a step
that takes long would hold up the commands behind it, so a watchdog hands over: when commands wait and every stepper
sleeps in its command (it used no CPU time between two looks) or has computed for long, one more stepper starts. Where
they slept, all stay, so that environments that wait get the threads they need; where they computed, the old ones leave
when their steps come back, so that environments that compute do not quarrel over the interpreter lock.

A step past its time limit is given up: its failure is reported, the environment is built anew, and what the thread
brings back in the end is dropped. Python cannot end a thread; one that runs Python code gets an exception
(:class:`GivenUp`), one that is stuck in a system call stays until that returns. Worker processes are therefore replaced
(see :mod:`gem_core.vector.fleet`).
"""

from __future__ import annotations

import contextlib
import ctypes
import queue
import threading
import time
from collections.abc import Callable, Sequence

from gem_core.vector.host import EnvHost
from gem_core.vector.types import HUNG, Command, Reply, failure

#: Seconds between two looks of the watchdog: a step that used no CPU time in between is one that sleeps.
HANDOVER_S = 0.02
#: Seconds of computing in one step after which waiting commands get another stepper.
LONG_STEP_S = 0.25
#: Longest that replies are kept to be sent together, while as many commands still wait. Every message wakes the other
#: side, which on a busy machine costs the stepper its core; sent earlier, a reply could not start anything here.
FLUSH_S = 0.015


class GivenUp(BaseException):
    """Raised inside a step that passed its time limit."""


class _Stepper:
    def __init__(self) -> None:
        self.thread: threading.Thread | None = None
        self.command: Command | None = None
        self.host: EnvHost | None = None
        self.begin = 0.0
        #: CPU seconds of the thread, and what it was at, when the watchdog last looked.
        self.cpu_seen = 0.0
        self.command_seen: Command | None = None
        self.abandoned = False
        #: Leaves when its command is done.
        self.superseded = False

    def sleeps(self, command: Command) -> bool:
        """Whether it has used no CPU time in this command since the last look."""
        before, self.command_seen = self.command_seen, command
        if self.thread is None or self.thread.ident is None:
            return False
        if not hasattr(time, "pthread_getcpuclockid"):  # macOS: take it for sleeping
            return before is command
        cpu = time.clock_gettime(time.pthread_getcpuclockid(self.thread.ident))
        used, self.cpu_seen = cpu - self.cpu_seen, cpu
        return before is command and used < 0.0002


class Engine:
    """Runs commands; thread-safe.

    Args:
        hosts: The environments by index; more may be added by :meth:`add`.
        emit: Takes replies, from any thread.
        steppers: Threads to start with.
        most_steppers: Threads that there may be, those stuck past a time limit not counted.
        step_timeout_s: None = no limit.
        reset_timeout_s: For resets, builds and calls.
        flush_s: See :data:`FLUSH_S`; 0 = every reply by itself.
        heartbeat_s: While steps run, ``emit([])`` at least this often.
        interrupt: Raise :class:`GivenUp` in threads past their limit.
    """

    def __init__(
        self,
        hosts: dict[int, EnvHost],
        emit: Callable[[Sequence[Reply]], None],
        *,
        steppers: int = 1,
        most_steppers: int | None = None,
        step_timeout_s: float | None = None,
        reset_timeout_s: float | None = None,
        flush_s: float = 0.0,
        heartbeat_s: float | None = None,
        interrupt: bool = True,
    ) -> None:
        self._hosts = hosts
        self._emit = emit
        self._limits = {"step": step_timeout_s}
        self._reset_limit = reset_timeout_s
        self._flush_s = flush_s
        self._heartbeat_s = heartbeat_s
        self._interrupt = interrupt
        self._most = max(steppers, most_steppers or steppers)
        self._base = steppers
        self._queue: queue.SimpleQueue[Command | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._outbox: list[Reply] = []
        self._last_emit = time.perf_counter()
        self._steppers: list[_Stepper] = []
        self._stuck: list[_Stepper] = []
        self._closed = threading.Event()
        self._retiring = False
        for _ in range(steppers):
            self._start_stepper()
        self._watchdog: threading.Thread | None = None
        handover = self._most > self._base
        limits = [x for x in (step_timeout_s, reset_timeout_s) if x is not None]
        if handover or limits or heartbeat_s:
            tick = HANDOVER_S if handover else 0.05
            tick = min([tick, *(x / 5 for x in limits)])
            self._watchdog = threading.Thread(target=self._watch, args=(tick,), name="gem-watchdog", daemon=True)
            self._watchdog.start()

    def put(self, commands: Sequence[Command]) -> None:
        for command in commands:
            self._queue.put(command)

    def add(self, index: int, host: EnvHost) -> None:
        host.autoreset_here = not self._retiring
        self._hosts[index] = host

    def retire(self) -> None:
        """From now on environments are not reset here after their last step, so that they can move."""
        self._retiring = True
        for host in list(self._hosts.values()):
            host.autoreset_here = False

    def close(self, wait_s: float = 5.0, wait_given_up_s: float = 5.0) -> None:
        """Ends the threads and closes the environments.

        Args:
            wait_s: For steps under way; then they are interrupted, and what does not end then ends alone.
            wait_given_up_s: For steps that passed their limit.
        """
        self._closed.set()
        with self._lock:
            steppers, stuck = list(self._steppers), list(self._stuck)
        for _ in steppers:
            self._queue.put(None)
        now = time.monotonic()
        _join(steppers, now + min(1.0, wait_s / 2))
        if self._interrupt:
            for stepper in [*steppers, *stuck]:
                if stepper.command is not None:
                    _raise_in(stepper.thread)
        _join(steppers, now + wait_s)
        _join(stuck, now + wait_given_up_s)
        busy = {id(s.host) for s in [*steppers, *stuck] if s.command is not None}
        for host in list(self._hosts.values()):
            if id(host) not in busy:  # never close an environment under a step; its own thread does that
                host.close()
        if self._watchdog is not None and self._watchdog is not threading.current_thread():
            self._watchdog.join(1.0)

    # -- steppers ---------------------------------------------------------------------------------------------

    def _start_stepper(self) -> None:
        stepper = _Stepper()
        stepper.thread = threading.Thread(target=self._run, args=(stepper,), name="gem-stepper", daemon=True)
        self._steppers.append(stepper)
        stepper.thread.start()

    def _run(self, me: _Stepper) -> None:
        with contextlib.suppress(GivenUp):  # it may come late, when the step has just returned
            try:
                self._step(me)
            finally:
                with self._lock:
                    for threads in (self._steppers, self._stuck):
                        if me in threads:
                            threads.remove(me)
                host = me.host
                if host is not None and (me.abandoned or self._closed.is_set()):
                    host.close()
                me.command = None

    def _step(self, me: _Stepper) -> None:
        clock, flush_s = time.perf_counter, self._flush_s
        get, hosts, lock = self._queue.get, self._hosts, self._lock
        while True:
            command = get()
            if command is None or self._closed.is_set():
                return
            me.begin = clock()
            me.host = host = hosts[command.slot]
            me.command = command
            reply = host.run(command)
            with lock:
                if me.abandoned:
                    return
                me.command = me.host = None
                self._outbox.append(reply)
                now = clock()
                batch: list[Reply] = []
                if flush_s == 0.0 or now - self._last_emit >= flush_s or self._queue.qsize() <= len(self._outbox):
                    batch, self._outbox = self._outbox, []
                    self._last_emit = now
            if batch:
                self._emit(batch)
            if me.superseded:
                return

    # -- the watchdog -----------------------------------------------------------------------------------------

    def _watch(self, tick: float) -> None:
        handover = self._most > self._base
        last_beat = time.perf_counter()
        while not self._closed.wait(tick):
            now = time.perf_counter()
            late: list[tuple[_Stepper, Command, float]] = []
            batch: list[Reply] = []
            with self._lock:
                sleeping = computing = 0
                for stepper in list(self._steppers):
                    command = stepper.command
                    if command is None:
                        continue
                    limit = self._limits.get(command.op, self._reset_limit)
                    age = now - stepper.begin
                    if limit is not None and age > limit:
                        stepper.abandoned = True
                        self._steppers.remove(stepper)
                        self._stuck.append(stepper)
                        late.append((stepper, command, limit))
                    elif handover:
                        asleep = stepper.sleeps(command)
                        sleeping += asleep
                        computing += not asleep and age > LONG_STEP_S
                n = len(self._steppers)
                if handover and sleeping + computing == n < self._most and not self._queue.empty():
                    if computing:
                        for stepper in self._steppers:
                            stepper.superseded = True
                    # Twice as many where all sleep: environments that wait without declaring it are soon all served.
                    for _ in range(1 if computing else min(n, self._most - n, self._queue.qsize())):
                        self._start_stepper()
                for stepper, command, _ in late:
                    assert stepper.host is not None
                    self._replace_host(command.slot, stepper.host)
                    if len(self._steppers) < self._base:
                        self._start_stepper()
                if self._outbox and now - self._last_emit >= self._flush_s:
                    batch, self._outbox = self._outbox, []
                    self._last_emit = now
            batch += [self._give_up(command, limit) for _, command, limit in late]
            if self._interrupt:
                for stepper, _, _ in late:
                    _raise_in(stepper.thread)
            if batch:
                self._emit(batch)
                last_beat = now
            elif self._heartbeat_s is not None and now - last_beat >= self._heartbeat_s and self._steppers:
                self._emit([])
                last_beat = now

    def _replace_host(self, index: int, old: EnvHost) -> None:
        host = old.successor()
        host.autoreset_here = not self._retiring
        self._hosts[index] = host

    def _give_up(self, command: Command, limit: float) -> Reply:
        where = "step" if command.op == "step" else "reset"
        message = f"the {command.op} took longer than {limit:g} s"
        value = TimeoutError(message) if command.op in ("build", "call") else failure("timeout", message, where)
        return Reply(command.slot, command.ticket, HUNG, value)


def _join(steppers: Sequence[_Stepper], deadline: float) -> None:
    own = threading.current_thread()
    for stepper in steppers:
        if stepper.thread is not None and stepper.thread is not own:
            stepper.thread.join(max(0.0, deadline - time.monotonic()))


def _raise_in(thread: threading.Thread | None) -> None:
    if thread is not None and thread.ident is not None:
        ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread.ident), ctypes.py_object(GivenUp))
