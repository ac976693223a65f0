"""Drives one :class:`~gem_core.session.EpisodeSession` for frameworks that own an asynchronous loop.

verl's agent loops, OpenRLHF's agent executors and RL2's ``generate`` all give an adapter one coroutine an episode and
an engine to await; this is the loop between the two. Many episodes at once are :mod:`gem_core.rollout`'s business.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import logging
import threading
import time
import weakref
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from gem_core.core import reset_env
from gem_core.episode import Episode, StopReason
from gem_core.session import EpisodeSession, Generation, Prompt

logger = logging.getLogger(__name__)

T = TypeVar("T")
Generate = Callable[[Prompt], Awaitable[Generation]]

#: Environment calls that run at the same time in one event loop; the others wait, which does not count as their time.
MAX_THREADS = 64
_permits: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = weakref.WeakKeyDictionary()


@dataclass
class Timing:
    """Seconds spent waiting for the engine and for the environment."""

    generation_s: float = 0.0
    env_s: float = 0.0


async def play(
    session: EpisodeSession, generate: Generate, *, env_timeout_s: float | None = 60.0, timing: Timing | None = None
) -> Episode:
    """Plays the session's episode to its end.

    The environment runs in a thread, so a slow step holds up nothing else; a step (or reset) that raises or takes
    longer than ``env_timeout_s`` ends the episode as failed. A thread that never comes back cannot be stopped from
    outside: run such environments in the ``process`` executor of :mod:`gem_core.vector`. Cancellation and an exception
    of ``generate`` propagate; the latter ends the episode as failed first.

    Args:
        session: Not started yet.
        generate: Awaits the engine's answer for one prompt.
        env_timeout_s: For each reset and step; None = no limit.
        timing: Filled with where the time went.
    """
    env = session.env
    if env is None:
        raise ValueError("play() needs a session with an env")
    timing = timing if timing is not None else Timing()
    seed, options = session.episode.seed, session.options
    try:
        observation, info = await in_thread(lambda: reset_env(env, seed, options), env_timeout_s, timing)
    except Exception as e:
        session.begin_failed(_describe("reset", e, env_timeout_s))
        _log(session, e)
        return session.episode
    prompt = session.begin(observation, info)
    while prompt is not None:
        started = time.perf_counter()
        try:
            generation = await generate(prompt)
        except Exception as e:
            session.fail(StopReason.POLICY_ERROR, f"generate: {type(e).__name__}: {e}")
            raise
        finally:
            timing.generation_s += time.perf_counter() - started
        action = session.act(generation)
        if action is None:
            prompt = session.prompt
            continue
        try:
            result = await in_thread(lambda a=action: env.step(a), env_timeout_s, timing)  # type: ignore[misc]
        except Exception as e:
            session.fail(StopReason.ENV_ERROR, _describe("step", e, env_timeout_s))
            _log(session, e)
            break
        prompt = session.observe(*result)
    return session.episode


async def in_thread(call: Callable[[], T], timeout_s: float | None, timing: Timing | None = None) -> T:
    """Runs ``call`` in a thread of its own and awaits its result; raises TimeoutError after ``timeout_s`` seconds.

    Not in asyncio's pool: a few calls that never return would fill it, and then every other call would wait forever.
    Here a call that is given up leaves its (daemon) thread behind and its place to the next.
    """
    loop = asyncio.get_running_loop()
    permits = _permits.setdefault(loop, asyncio.Semaphore(MAX_THREADS))
    async with permits:
        result: asyncio.Future[T] = loop.create_future()
        context = contextvars.copy_context()

        def deliver(value: Any, error: BaseException | None) -> None:
            if result.done():  # given up
                return
            if error is None:
                result.set_result(value)
            else:
                result.set_exception(error)

        def work() -> None:
            value, error = None, None
            try:
                value = context.run(call)
            except BaseException as e:
                # A future takes no StopIteration.
                error = RuntimeError(f"StopIteration: {e}") if isinstance(e, StopIteration) else e
            with contextlib.suppress(RuntimeError):  # the loop was closed meanwhile
                loop.call_soon_threadsafe(deliver, value, error)

        started = time.perf_counter()
        threading.Thread(target=work, name="gem-env", daemon=True).start()
        try:
            return await asyncio.wait_for(result, timeout_s)
        finally:
            if timing is not None:
                timing.env_s += time.perf_counter() - started


def _describe(what: str, error: Exception, timeout_s: float | None) -> str:
    if isinstance(error, (asyncio.TimeoutError, TimeoutError)) and not str(error):
        return f"{what}: no answer within {timeout_s} s"
    return f"{what}: {type(error).__name__}: {error}"


def _log(session: EpisodeSession, error: Exception) -> None:
    episode = session.episode
    logger.warning("episode %s (%s): %s", episode.episode_id, episode.env_id, episode.error, exc_info=error)
