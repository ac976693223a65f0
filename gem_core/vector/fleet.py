"""Environments spread over workers that may die: who runs where, what is in flight, what a death means.

A worker (a process or a Ray actor) holds several environments. When it dies, those in the middle of an episode have
lost it: a step under way is reported as failed, an environment that waited for an action fails at its next step. A
reset that was under way is started again elsewhere. When one environment's step passes its time limit, that episode is
reported as failed at once and the environment goes on in another worker, but its companions stay where they are until
their own episodes end; then the old worker is killed. Nobody else loses an episode to a step that hangs.
"""

from __future__ import annotations

import abc
import logging
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from gem_core.core import Cost, StepTuple
from gem_core.vector.executors import Executor, VectorOptions, check_process
from gem_core.vector.host import EnvFactory
from gem_core.vector.types import (
    HUNG,
    RAISED,
    RESULT,
    UNRESET,
    AutoresetMode,
    Command,
    FaultKind,
    Reply,
    after_autoreset,
    failure,
)

logger = logging.getLogger(__name__)

#: Seconds that a worker may take to start.
START_S = 120.0
#: Seconds for which the companions of a hung environment may go on in its worker.
DRAIN_S = 30.0


@dataclass
class Worker:
    """One worker as its owner sees it."""

    #: What the subclass needs to talk to it.
    link: Any
    indices: set[int]
    #: Sent and not yet answered.
    pending: int = 0
    #: When anything was last heard from it (or it was sent work while idle).
    heard: float = field(default_factory=time.monotonic)
    #: When it began to be given up.
    retiring: float | None = None
    #: Takes over from one that is given up.
    heir: Worker | None = None
    gone: bool = False
    #: It has been heard from.
    started: bool = False
    #: Steps in it that passed their limit.
    hung: int = 0


@dataclass
class Slot:
    """One environment."""

    factory: EnvFactory | None
    worker: Worker
    #: What the workers get of the factory.
    parcel: Any = None
    #: The worker has the factory.
    known: bool = False
    #: In the middle of an episode, so that a death loses one.
    playing: bool = False
    inflight: Command | None = None
    #: The fault that the next step reports.
    lost: StepTuple | None = None
    #: A reset was started again once after its worker died.
    retried: bool = False
    #: Same-step mode: the last result, while the reset runs elsewhere.
    final: StepTuple | None = None


class Fleet(Executor):
    """See the module. Subclasses know how to start, reach and end workers."""

    def __init__(
        self, factories: Sequence[EnvFactory | None], options: VectorOptions, costs: Sequence[Cost], workers: int
    ) -> None:
        super().__init__()
        self.mode = options.mode
        self.options = options
        self._waits = "waits" in costs
        self._lock = threading.RLock()
        self._ready: list[Reply] = []
        self._lives = [0] * len(factories)
        self._pid = os.getpid()
        self.workers: list[Worker] = []
        self.restarts = 0
        limits = [x for x in (options.step_timeout_s, options.reset_limit_s) if x is not None]
        self._heartbeat_s = min(1.0, min(limits) / 2) if limits else None
        #: A worker that owes an answer and has not said a word for so long is stuck as a whole.
        self._silent_s = max(limits) * 1.5 + 2.0 if limits else None
        self._start_s: float | None = START_S
        #: Hung steps after which a worker is given up.
        self._most_hung = 1
        self._next_check = time.monotonic()
        n = len(factories)
        parts = [set(range(w, n, workers)) for w in range(workers)]
        self._slots: list[Slot] = []
        started = [self._start(part) for part in parts if part]
        for i, factory in enumerate(factories):
            self._slots.append(Slot(factory, started[i % workers], self._parcel(factory)))

    # -- for subclasses ---------------------------------------------------------------------------------------

    @abc.abstractmethod
    def _open_link(self, config: dict[str, Any]) -> Any:
        """Starts a worker."""

    @abc.abstractmethod
    def _send(self, worker: Worker, message: Any) -> None:
        """Sends commands (or ``"retire"``) without waiting; a failure is noticed by :meth:`_wait`."""

    @abc.abstractmethod
    def _kill(self, worker: Worker) -> None:
        """Ends a worker at once."""

    @abc.abstractmethod
    def _wait(self, timeout: float) -> None:
        """Waits for something to happen and calls :meth:`_on_replies` and :meth:`_on_death`, holding the lock."""

    def _parcel(self, factory: EnvFactory | None) -> Any:
        """What is sent of a factory."""
        return factory

    # -- the executor -----------------------------------------------------------------------------------------

    def submit(self, commands: Sequence[Command]) -> None:
        check_process(self._pid)
        with self._lock:
            messages: dict[int, tuple[Worker, list[Command]]] = {}
            for command in commands:
                sent = self._route(command)
                if sent is not None:
                    worker = self._slots[command.slot].worker
                    messages.setdefault(id(worker), (worker, []))[1].append(sent)
            for worker, batch in messages.values():
                if not worker.pending:
                    worker.heard = time.monotonic()
                worker.pending += len(batch)
                self._send(worker, batch)

    def poll(self, timeout: float | None) -> list[Reply]:
        check_process(self._pid)
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            with self._lock:
                now = time.monotonic()
                if now >= self._next_check:
                    self._check(now)
                ready, self._ready = self._ready, []
            if ready:
                return ready
            wait = max(0.0, self._next_check - now)
            if deadline is not None:
                if now > deadline:
                    return []
                wait = min(wait, max(0.0, deadline - now))
            self._wait(wait)
            if deadline is not None and time.monotonic() >= deadline:
                with self._lock:
                    ready, self._ready = self._ready, []
                return ready

    # -- inside; all under the lock ---------------------------------------------------------------------------

    def _route(self, command: Command) -> Command | None:
        """What is sent for a command; None where it is answered here."""
        slot = self._slots[command.slot]
        slot.retried = False
        index, ticket, op, payload = command
        if op in ("open", "build"):
            factory = payload[0] if op == "open" else payload
            if factory is not slot.factory:
                slot.factory, slot.parcel, slot.known = factory, self._parcel(factory), False
        if op == "step" and slot.lost is not None:
            lost, slot.lost = slot.lost, None
            if self.mode is AutoresetMode.SAME_STEP:
                slot.final = lost
                slot.inflight = Command(index, ticket, "step", payload)
                return self._to_send(slot, Command(index, ticket, "reset", (None, None)))
            self._ready.append(Reply(index, ticket, RESULT, lost))
            return None
        if op != "step":
            slot.lost = None
        slot.inflight = command
        return self._to_send(slot, command)

    def _to_send(self, slot: Slot, command: Command) -> Command:
        """Moves the environment out of a worker that is given up, and adds the factory where it is unknown."""
        index, ticket, op, payload = command
        if slot.worker.retiring is not None and (op in ("reset", "open", "build") or not slot.playing):
            self._move(index)
        if slot.known and op != "open":
            return command
        if op == "build":
            slot.known = True
            return Command(index, ticket, "build", slot.parcel)
        if op in ("reset", "open") or (op == "step" and not slot.playing and self.mode is not AutoresetMode.DISABLED):
            seed, options = (payload[1:] if op == "open" else payload) if op != "step" else (None, None)
            slot.known = True
            return Command(index, ticket, "open", (slot.parcel, seed, options))
        return command  # a call or step before any reset: the worker says what is wrong

    def _on_replies(self, worker: Worker, replies: Sequence[Sequence[Any]]) -> None:
        worker.heard, worker.started = time.monotonic(), True
        for index, ticket, flag, value in replies:
            worker.pending -= 1
            slot = self._slots[index]
            command = slot.inflight
            if command is None or command.ticket != ticket or slot.worker is not worker:
                continue
            self._settle_slot(slot, command, flag, value)

    def _settle_slot(self, slot: Slot, command: Command, flag: int, value: Any) -> None:
        index, ticket, op, _ = command
        if flag == HUNG:
            slot.worker.hung += 1
            if slot.worker.hung >= self._most_hung:
                self._retire(slot.worker)
                self._move(index)
            if isinstance(value, BaseException):
                flag = RAISED
            else:
                slot.playing = False
        if flag in (HUNG, UNRESET):
            flag = RESULT
            if self.mode is AutoresetMode.SAME_STEP and op == "step" and slot.final is None:
                self._reset_elsewhere(slot, command, value)
                return
        if flag == RESULT:
            _, _, terminated, truncated, info = value
            over = terminated or truncated
            # In same-step mode the environment is in a new episode, unless that could not be started.
            slot.playing = not over or ("final_obs" in info and "reset_error" not in info)
            if slot.final is not None:
                final, slot.final = slot.final, None
                value = after_autoreset(final, value)
        slot.inflight = None
        self._ready.append(Reply(index, ticket, flag, value))

    def _reset_elsewhere(self, slot: Slot, command: Command, final: StepTuple) -> None:
        slot.final = final
        slot.playing = False
        sent = self._to_send(slot, Command(command.slot, command.ticket, "reset", (None, None)))
        slot.worker.pending += 1
        self._send(slot.worker, [sent])

    def _on_death(self, worker: Worker, kind: FaultKind, message: str) -> None:
        """The worker has gone, its resources are released."""
        if worker.gone:
            return
        worker.gone = True
        self.workers.remove(worker)
        mine = [i for i, s in enumerate(self._slots) if s.worker is worker]
        if not mine:
            return
        logger.warning("a worker with %d environments %s; another takes over", len(mine), message)
        heir = worker.heir
        fresh = heir if heir is not None and not heir.gone and heir.retiring is None else self._start(set(mine))
        self.restarts += fresh is not heir
        for index in mine:
            slot = self._slots[index]
            slot.worker, slot.known = fresh, False
            command = slot.inflight
            playing, slot.playing = slot.playing, False
            if command is None:
                if playing:
                    text = f"the worker that this environment shared with others {message}"
                    slot.lost = failure("lost", text, "step")
            elif slot.final is not None or command.op == "reset" or command.op == "open":
                self._start_reset_again(slot, command, kind, message)
            elif command.op == "step":
                value = failure(kind, f"the worker process {message}", "step")
                self._settle_slot(slot, command, UNRESET, value)
            else:
                slot.inflight = None
                error = RuntimeError(f"the worker process {message} during {command.op}")
                self._ready.append(Reply(index, command.ticket, RAISED, error))

    def _start_reset_again(self, slot: Slot, command: Command, kind: FaultKind, message: str) -> None:
        """A reset loses nothing, so it is started again, once: it may be what kills its workers."""
        if slot.retried:
            self._settle_slot(slot, command, RESULT, failure(kind, f"the worker process {message}", "reset"))
            return
        slot.retried = True
        inner = command if command.op != "step" else Command(command.slot, command.ticket, "reset", (None, None))
        sent = self._to_send(slot, inner)
        slot.worker.pending += 1
        self._send(slot.worker, [sent])

    # -- workers ----------------------------------------------------------------------------------------------

    def _start(self, indices: set[int]) -> Worker:
        lives = {}
        for i in indices:
            lives[i] = self._lives[i]
            self._lives[i] += 1
        config = {
            "mode": self.mode.value,
            "lives": lives,
            "steppers": len(indices) if self._waits else 1,
            "step_timeout_s": self.options.step_timeout_s,
            "reset_timeout_s": self.options.reset_limit_s,
            "heartbeat_s": self._heartbeat_s,
        }
        worker = Worker(self._open_link(config), set(indices))
        self.workers.append(worker)
        return worker

    def _retire(self, worker: Worker) -> None:
        if worker.retiring is None:
            worker.retiring = time.monotonic()
            self._next_check = min(self._next_check, worker.retiring + 0.5)
            self._send(worker, "retire")

    def _move(self, index: int) -> None:
        """Gives the environment a place outside its worker, which is being given up."""
        slot, old = self._slots[index], self._slots[index].worker
        heir = old.heir
        if heir is None or heir.gone or heir.retiring is not None:
            # One heir takes all companions; the places of those that still play are theirs when they come.
            heir = old.heir = self._start({i for i, s in enumerate(self._slots) if s.worker is old})
            self.restarts += 1
        slot.worker, slot.known = heir, False
        if not any(s.worker is old for s in self._slots):
            self._give_up(old)

    def _give_up(self, worker: Worker) -> None:
        if not worker.gone:
            worker.gone = True
            self.workers.remove(worker)
            self._kill(worker)

    def _check(self, now: float) -> None:
        """Ends workers that are silent or have been given up for too long."""
        self._next_check = now + (0.5 if self._silent_s is not None else 5.0)
        for worker in list(self.workers):
            patience = self._silent_s if worker.started else self._start_s
            silent = patience is not None and worker.pending > 0 and now - worker.heard > patience
            drained = worker.retiring is not None and now - worker.retiring > DRAIN_S
            if silent or drained:
                self._kill(worker)
                what = "stopped answering" if silent else "was given up after another environment's step hung"
                self._on_death(worker, "killed" if silent else "lost", f"{what} and was killed")
