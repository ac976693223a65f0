"""Calling a policy from the rollout loop: plain, awaitable, or random."""

from __future__ import annotations

import abc
import asyncio
import contextlib
import inspect
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Any

from gem_core.session import Generation, Prompt

if TYPE_CHECKING:
    from gem_core.chat import Renderer
    from gem_core.rollout import AnyPolicy

#: Called with the slots that a call was for, and its answers or what it raised.
Done = Callable[[Sequence[int], Sequence[Generation] | None, Exception | None], None]


class Generating(abc.ABC):
    """Calls under way; used from one thread, ``done`` is called from others."""

    #: Many calls at once.
    many = False
    #: There is no policy: the environments draw the actions.
    random = False

    def __init__(self, done: Done) -> None:
        self._done = done
        self._lock = threading.Lock()
        self.under_way = 0
        #: Running mean of a call's seconds.
        self.mean_s = 0.0

    @property
    def free(self) -> bool:
        """A call may start."""
        return self.many or self.under_way == 0

    @abc.abstractmethod
    def start(self, slots: Sequence[int], prompts: list[Prompt]) -> None:
        """Starts a call and returns at once."""

    @abc.abstractmethod
    def close(self) -> None:
        """Ends it; a plain call that is under way runs to its end."""

    def answer(self, prompt: Prompt, text: str) -> Generation:
        """Makes a generation of a text."""
        raise NotImplementedError

    def _begin(self) -> float:
        with self._lock:
            self.under_way += 1
        return time.perf_counter()

    def _end(
        self, began: float, slots: Sequence[int], generations: Sequence[Generation] | None, error: Exception | None
    ) -> None:
        seconds = time.perf_counter() - began
        with self._lock:
            self.under_way -= 1
            self.mean_s = seconds if self.mean_s == 0.0 else 0.8 * self.mean_s + 0.2 * seconds
        self._done(slots, generations, error)


class PlainGenerating(Generating):
    """One call after the other, in one thread."""

    def __init__(self, policy: Any, done: Done) -> None:
        super().__init__(done)
        self._policy = policy
        self._calls: queue.SimpleQueue[tuple[float, Sequence[int], list[Prompt]] | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="gem-rollout-policy", daemon=True)
        self._thread.start()

    def start(self, slots: Sequence[int], prompts: list[Prompt]) -> None:
        self._calls.put((self._begin(), slots, prompts))

    def close(self) -> None:
        self._calls.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            began, slots, prompts = call
            try:
                generations, error = self._policy.generate(prompts), None
                if inspect.isawaitable(generations):  # generate() is plain, but returns something to await
                    generations = asyncio.run(_awaited(generations))
            except Exception as e:
                generations, error = None, e
            self._end(began, slots, generations, error)


class AsyncGenerating(Generating):
    """A task for every call, in the caller's event loop or in one of its own."""

    many = True

    def __init__(self, policy: Any, done: Done, loop: asyncio.AbstractEventLoop | None) -> None:
        super().__init__(done)
        self._policy = policy
        self._queued: list[tuple[float, Sequence[int], list[Prompt]]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread: threading.Thread | None = None
        if loop is None:
            loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=loop.run_forever, name="gem-rollout-loop", daemon=True)
            self._thread.start()
        self._loop = loop

    def start(self, slots: Sequence[int], prompts: list[Prompt]) -> None:
        began = self._begin()
        with self._lock:
            wake = not self._queued
            self._queued.append((began, slots, prompts))
        # Waking a loop gives up the interpreter to it, and this thread waits for it to come back: once for all calls.
        if wake:
            self._loop.call_soon_threadsafe(self._start_queued)

    def _start_queued(self) -> None:
        with self._lock:
            queued, self._queued = self._queued, []
        for call in queued:
            task = self._loop.create_task(self._call(*call))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _call(self, began: float, slots: Sequence[int], prompts: list[Prompt]) -> None:
        try:
            generations, error = await self._policy.generate(prompts), None
        except Exception as e:
            generations, error = None, e
        self._end(began, slots, generations, error)

    def close(self) -> None:
        with contextlib.suppress(RuntimeError):  # the caller has closed the loop
            self._loop.call_soon_threadsafe(self._cancel)
        if self._thread is not None:
            drained = asyncio.run_coroutine_threadsafe(_drain(), self._loop)
            drained.result(10.0)
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def _cancel(self) -> None:
        with self._lock:
            self._queued.clear()
        for task in list(self._tasks):
            task.cancel()


class RandomGenerating(Generating):
    """``policy="random"``: the driver asks the environments."""

    random = True

    def __init__(self, renderer: Renderer | None, done: Done) -> None:
        super().__init__(done)
        from gem_core.policies import TextPolicy

        self._text = ""
        self._policy = TextPolicy(lambda prompt: self._text, getattr(renderer, "tokenizer", None))

    def start(self, slots: Sequence[int], prompts: list[Prompt]) -> None:
        raise AssertionError("there is no policy to call")

    def answer(self, prompt: Prompt, text: str) -> Generation:
        self._text = text
        return self._policy.generate([prompt])[0]

    def close(self) -> None:
        pass


def make_generating(
    policy: AnyPolicy, renderer: Renderer | None, done: Done, loop: asyncio.AbstractEventLoop | None
) -> Generating:
    """Chooses by what the policy is.

    Raises:
        ValueError: neither ``"random"`` nor anything with a ``generate`` method.
    """
    if policy == "random":
        return RandomGenerating(renderer, done)
    generate = getattr(policy, "generate", None)
    if not callable(generate):
        raise ValueError(f"a policy has a method generate(prompts), or is 'random'; got {policy!r}")
    if inspect.iscoroutinefunction(generate):
        return AsyncGenerating(policy, done, loop)
    return PlainGenerating(policy, done)


async def _awaited(value: Any) -> Any:
    return await value


async def _drain() -> None:
    """Lets cancelled tasks of this loop come to their end."""
    others: list[Coroutine[Any, Any, Any] | asyncio.Task[Any]] = [
        t for t in asyncio.all_tasks() if t is not asyncio.current_task()
    ]
    await asyncio.gather(*others, return_exceptions=True)
