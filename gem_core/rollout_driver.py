"""The loop behind :mod:`gem_core.rollout`: one thread that moves episodes between the policy and the environments."""

from __future__ import annotations

import asyncio
import itertools
import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gem_core.core import StepTuple
from gem_core.episode import Episode, StopReason
from gem_core.rollout_envs import Envs, env_factory
from gem_core.rollout_generation import Generating, make_generating
from gem_core.rollout_log import RolloutLog
from gem_core.rollout_order import Arranger
from gem_core.rollout_progress import Progress
from gem_core.session import EpisodeSession, Generation, Prompt
from gem_core.vector.executors import Executor
from gem_core.vector.types import RAISED, VALUE, Command, Op, Reply, fault_of

if TYPE_CHECKING:
    from gem_core.chat import Renderer
    from gem_core.rollout import AnyPolicy, RolloutOptions, RolloutStats, Task

logger = logging.getLogger(__name__)

#: Prompts that are ready wait for more, at most for this part of the time that a generation takes ...
_GATHER_PART = 0.05
#: ... and never longer than so many seconds.
_GATHER_MOST_S = 0.05


@dataclass
class _Running:
    """An episode in flight."""

    number: int
    session: EpisodeSession
    ticket: int = 0


@dataclass
class _Event:
    """Something happened: replies came, a generation ended, or (neither) somebody wants the driver to look up."""

    replies: Sequence[Reply] = ()
    slots: Sequence[int] = ()
    generations: Sequence[Generation] | None = None
    error: Exception | None = None
    generated: bool = False


@dataclass
class _Work:
    """What waits to be done."""

    commands: list[Command] = field(default_factory=list)
    prompts: deque[int] = field(default_factory=deque)
    first_prompt: float = 0.0
    env_inflight: int = 0


class Driver:
    """See :class:`gem_core.rollout.Rollout`, which is its face."""

    def __init__(
        self,
        tasks: Iterable[Task],
        policy: AnyPolicy,
        renderer: Renderer | None,
        options: RolloutOptions,
        stats: RolloutStats,
        loop: asyncio.AbstractEventLoop | None,
    ) -> None:
        self._options, self._stats, self._renderer = options, stats, renderer
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        self._out: queue.SimpleQueue[Episode | Exception | None] = queue.SimpleQueue()
        self._buffered = 0
        self._buffer_lock = threading.Lock()
        self._most_buffered = options.max_buffered or options.concurrency
        self._stopping = threading.Event()
        self._tickets = itertools.count(1)
        self._running: dict[int, _Running] = {}
        self._envs = Envs()
        self._work = _Work()
        self._log = RolloutLog(options.log) if options.log is not None else None
        self._arrange = Arranger(options.order, self._deliver)
        self._progress = Progress(options.progress, len(tasks) if isinstance(tasks, Sized) else None, stats)
        self._seen: set[str] = set()
        self._tasks = self._numbered(tasks)
        self._more = True
        try:
            self._executor = self._make_executor()
            self._generating = self._make_generating(policy, loop)
        except BaseException:
            self._close_log()
            raise
        self._thread = threading.Thread(target=self._run, name="gem-rollout", daemon=True)
        self._pump = threading.Thread(target=self._pump_replies, name="gem-rollout-envs", daemon=True)

    # -- from the caller's thread -----------------------------------------------------------------------------

    def start(self) -> None:
        self._thread.start()
        if not self._inline:
            self._pump.start()

    def take(self) -> Episode | Exception | None:
        """The next episode; what ended the rollout instead (None = all are done)."""
        item = self._out.get()
        if isinstance(item, Episode):
            with self._buffer_lock:
                self._buffered -= 1
                wake = self._buffered == self._most_buffered - 1
            if wake:
                self._events.put(_Event())
        return item

    def stop(self) -> None:
        self._stopping.set()
        self._events.put(_Event())
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._out.put(None)  # whoever still waits in take()

    # -- the driver's thread ----------------------------------------------------------------------------------

    def _run(self) -> None:
        end: Exception | None = None
        try:
            self._loop()
            if not self._stopping.is_set():
                self._arrange.flush()
        except Exception as e:
            end = e
        finally:
            self._stopping.set()
            try:
                self._generating.close()
                self._executor.close()
                if self._pump.is_alive():
                    self._pump.join(5.0)
            finally:
                self._close_log()
                self._progress.close()
                self._out.put(end)

    def _loop(self) -> None:
        started = last = time.perf_counter()
        while not self._stopping.is_set():
            self._start_episodes()
            self._submit()
            self._generate()
            if self._stopping.is_set() or not (self._running or self._more):
                return
            generating, acting = self._generating.under_way > 0, self._work.env_inflight > 0
            before = time.perf_counter()
            if generating or not acting:  # an environment's turn in this thread counts as waiting for it
                last = before
            event = self._next_event()
            now = time.perf_counter()
            if generating and not acting:
                self._stats.generation_wait_s += now - last
            elif acting and not generating:
                self._stats.env_wait_s += now - last
            last = now
            self._stats.wall_s = now - started
            while event is not None:
                self._handle(event)
                event = self._poll_event()
            self._progress.refresh()

    def _next_event(self) -> _Event | None:
        work = self._work
        if self._inline and work.env_inflight:
            return _Event(replies=self._executor.poll(0))
        timeout = None
        if work.prompts and self._generating.free:
            timeout = max(0.0, work.first_prompt + self._gather_s() - time.perf_counter())
        try:
            return self._events.get(timeout=timeout)
        except queue.Empty:
            return None

    def _poll_event(self) -> _Event | None:
        try:
            return self._events.get_nowait()
        except queue.Empty:
            return None

    def _handle(self, event: _Event) -> None:
        for reply in event.replies:
            self._work.env_inflight -= 1
            self._take_reply(reply)
        if event.generated:
            self._take_generations(event)

    # -- episodes ---------------------------------------------------------------------------------------------

    def _numbered(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Task, str]]:
        unnamed = bytearray()  # whether each task goes by its number; a run may have millions
        for number, task in enumerate(tasks):
            name = task.episode_id or str(number)
            taken = name.isdecimal() and str(int(name)) == name and int(name) < number and unnamed[int(name)]
            if taken or name in self._seen:
                raise ValueError(f"two tasks have the episode id {name!r}")
            unnamed.append(not task.episode_id)
            if task.episode_id:
                self._seen.add(name)
            yield number, task, name

    def _start_episodes(self) -> None:
        while self._more and self._envs.free and not self._stopping.is_set():
            if self._buffered + self._arrange.held >= self._most_buffered:
                return
            item = next(self._tasks, None)
            if item is None:
                self._more = False
                self._arrange.close()
                return
            number, task, name = item
            self._arrange.expect(number, task.group_id or name)
            if self._log is not None and name in self._log:
                self._finish(number, self._resumed(task, name), resumed=True)
            else:
                self._start(number, task, name)

    def _start(self, number: int, task: Task, name: str) -> None:
        options, factory = self._options, self._envs.factory(task)
        slot = self._envs.take(factory)
        session = EpisodeSession(
            None,
            self._renderer,
            seed=task.seed,
            options=task.options,
            limits=options.limits,
            context=options.context,
            system_prompt=options.system_prompt,
            length_stop=options.length_stop,
            episode_id=name,
            group_id=task.group_id or name,
            env_id=factory.env_id or getattr(task.env, "__name__", type(task.env).__name__),
            metadata=dict(task.metadata),
        )
        self._running[slot] = _Running(number, session)
        self._command(slot, "open", (factory, task.seed, task.options))

    def _resumed(self, task: Task, name: str) -> Episode:
        assert self._log is not None
        episode = self._log.read(name)
        env_id = env_factory(task).env_id
        if episode.seed != task.seed or (env_id and episode.env_id != env_id):
            raise ValueError(
                f"{self._log.path} holds episode {name!r} of {episode.env_id!r} with seed {episode.seed!r}, but the "
                f"task of that id is {task.env!r} with seed {task.seed!r}; use another log for another run"
            )
        return episode

    def _finish(self, number: int, episode: Episode, resumed: bool = False) -> None:
        stats = self._stats
        stats.episodes += 1
        stats.failed += episode.failed
        if resumed:
            stats.resumed += 1
        else:
            stats.turns += len(episode.turns)
            stats.sampled_tokens += episode.num_sampled_tokens
            if self._log is not None:
                self._log.append(episode)
        self._arrange.done(number, episode)
        self._progress.add()

    def _deliver(self, episode: Episode) -> None:
        with self._buffer_lock:
            self._buffered += 1
        self._out.put(episode)

    # -- environments -----------------------------------------------------------------------------------------

    def _command(self, slot: int, op: Op, payload: Any) -> None:
        ticket = next(self._tickets)
        self._running[slot].ticket = ticket
        self._work.commands.append(Command(slot, ticket, op, payload))

    def _submit(self) -> None:
        commands, self._work.commands = self._work.commands, []
        if commands:
            self._work.env_inflight += len(commands)
            self._executor.submit(commands)

    def _pump_replies(self) -> None:
        try:
            while not self._stopping.is_set():
                if replies := self._executor.poll(0.2):
                    self._events.put(_Event(replies=replies))
        except Exception as e:
            if not self._stopping.is_set():
                self._events.put(_Event(error=e, generated=True))

    def _take_reply(self, reply: Reply) -> None:
        running = self._running.get(reply.slot)
        if running is None or running.ticket != reply.ticket:
            return
        session = running.session
        if reply.flag in (VALUE, RAISED):
            self._take_random_action(reply, session)
            return
        result: StepTuple = reply.value
        fault = fault_of(result[4])
        if fault is not None:
            text = f"{fault['where']}: {fault['message']}"
            if fault["where"] == "reset":
                session.begin_failed(text)
            else:
                session.fail(StopReason.ENV_ERROR, text)
        elif session.started:
            session.observe(*result)
        else:
            session.begin(result[0], result[4])
        self._continue(reply.slot)

    def _continue(self, slot: int) -> None:
        """After the session has changed: to the policy, or out."""
        session = self._running[slot].session
        if session.done:
            running = self._running.pop(slot)
            self._envs.free.append(slot)
            self._finish(running.number, session.episode)
        elif self._generating.random:
            self._command(slot, "call", ("sample_random_action", (), {}))
        else:
            if not self._work.prompts:
                self._work.first_prompt = time.perf_counter()
            self._work.prompts.append(slot)

    # -- the policy -------------------------------------------------------------------------------------------

    def _generate(self) -> None:
        work, generating = self._work, self._generating
        while work.prompts and generating.free:
            enough = self._options.max_batch is not None and len(work.prompts) >= self._options.max_batch
            waited = time.perf_counter() - work.first_prompt >= self._gather_s()
            if work.env_inflight and (self._inline or not (enough or waited)):
                return  # inline results are there already, only not taken yet
            size = self._options.max_batch or len(work.prompts)
            slots = [work.prompts.popleft() for _ in range(min(size, len(work.prompts)))]
            prompts: list[Prompt] = []
            for slot in slots:
                prompt = self._running[slot].session.prompt
                assert prompt is not None
                prompts.append(prompt)
            self._stats.generations += 1
            self._stats.prompts += len(prompts)
            generating.start(slots, prompts)

    def _gather_s(self) -> float:
        if self._generating.many:
            return 0.0  # each prompt goes at once, there is no batch to fill
        return min(_GATHER_MOST_S, _GATHER_PART * self._generating.mean_s)

    def _take_generations(self, event: _Event) -> None:
        slots, error = event.slots, event.error
        if error is None:
            generations = list(event.generations or ())
            if len(generations) != len(slots):
                error = ValueError(f"the policy gave {len(generations)} answers for {len(slots)} prompts")
        if error is not None:
            if not slots or self._options.on_policy_error == "raise":
                raise error
            logger.warning("the policy failed for %d episodes: %s", len(slots), error, exc_info=error)
            for slot in slots:
                text = f"generate: {type(error).__name__}: {error}"
                # An engine may know of a limit that the session does not (its context window, say).
                reason = getattr(error, "stop_reason", StopReason.POLICY_ERROR)
                self._running[slot].session.fail(reason, text)
                self._continue(slot)
            return
        for slot, generation in zip(slots, generations, strict=True):
            self._act(slot, generation)

    def _act(self, slot: int, generation: Generation) -> None:
        session = self._running[slot].session
        try:
            action = session.act(generation)
        except ValueError as e:
            if self._options.on_policy_error == "raise":
                raise
            session.fail(StopReason.POLICY_ERROR, f"generate: {e}")
            action = None
        if action is None:  # aborted, to be resumed; or over
            self._continue(slot)
        else:
            self._command(slot, "step", action)

    def _take_random_action(self, reply: Reply, session: EpisodeSession) -> None:
        if reply.flag == RAISED:
            session.fail(StopReason.ENV_ERROR, f"sample_random_action: {reply.value}")
            self._continue(reply.slot)
            return
        assert session.prompt is not None
        self._act(reply.slot, self._generating.answer(session.prompt, str(reply.value)))

    # -- set-up -----------------------------------------------------------------------------------------------

    def _make_executor(self) -> Executor:
        """Looks at the first tasks to choose, and to have their modules imported ahead."""
        first = list(itertools.islice(self._tasks, self._options.concurrency))
        self._tasks = itertools.chain(first, self._tasks)
        name, executor = self._envs.executor([task for _, task, _ in first], self._options)
        self._inline = name == "inline"
        return executor

    def _make_generating(self, policy: AnyPolicy, loop: asyncio.AbstractEventLoop | None) -> Generating:
        def done(slots: Sequence[int], generations: Sequence[Generation] | None, error: Exception | None) -> None:
            self._events.put(_Event(slots=slots, generations=generations, error=error, generated=True))

        return make_generating(policy, self._renderer, done, loop)

    def _close_log(self) -> None:
        if self._log is not None:
            self._log.close()
