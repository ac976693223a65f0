"""One asyncio loop in a thread of its own, for tools that speak network protocols from synchronous code."""

from __future__ import annotations

import asyncio
import contextlib
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, TypeVar

T = TypeVar("T")

#: How long a cancelled call may take to clean up before its caller goes on without it, in seconds.
_GRACE_S = 1.0


class LoopThread:
    """Runs coroutines from any thread, in a daemon thread that starts with the first."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._pid = 0

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None or self._pid != os.getpid():  # a fork inherits the loop but not its thread
                loop = asyncio.new_event_loop()
                thread = threading.Thread(target=_serve, args=(loop,), name=self._name, daemon=True)
                thread.start()
                self._loop, self._thread, self._pid = loop, thread, os.getpid()
            return self._loop

    def run(self, coroutine: Coroutine[Any, Any, T], timeout: float | None) -> T:
        """Runs ``coroutine`` to its end.

        Args:
            coroutine: What to run.
            timeout: Seconds for all of it; None waits for ever.

        Raises:
            TimeoutError: the time is up; the coroutine is cancelled.
        """
        loop = self.loop
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(coroutine, timeout), loop)
        try:
            # wait_for also waits for the cancelled coroutine's clean-up; that must not hold the caller up.
            return future.result(None if timeout is None else timeout + _GRACE_S)
        except (asyncio.TimeoutError, FutureTimeoutError):
            future.cancel()
            raise TimeoutError(f"no answer within {timeout:g} s") from None

    def stop(self) -> None:
        """Cancels what still runs and ends the thread; a later call starts another."""
        with self._lock:
            loop, self._loop, thread, self._thread = self._loop, None, self._thread, None
        if loop is None or thread is None or self._pid != os.getpid():
            return
        with contextlib.suppress(Exception):
            asyncio.run_coroutine_threadsafe(_wind_down(), loop).result(2 * _GRACE_S)
        loop.call_soon_threadsafe(loop.stop)
        if thread is not threading.current_thread():
            thread.join(_GRACE_S)


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    loop.run_forever()
    loop.close()


async def _wind_down() -> None:
    tasks = asyncio.all_tasks() - {asyncio.current_task()}
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks, timeout=_GRACE_S)


#: Shared by all tools that need a loop and hold nothing that would block it.
SHARED = LoopThread("gem-tools")
