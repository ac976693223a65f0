"""The asynchronous driver: faults and hangs cost their own episode only."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from support import ScriptEnv

from gem_core import EpisodeSession, Generation, Limits, StopReason
from gem_core.play import MAX_THREADS, Timing, play


async def say_hello(prompt: Any) -> Generation:
    await asyncio.sleep(0)
    return Generation(text=f"hello {prompt.turn}")


def test_an_episode_is_played_to_its_end() -> None:
    env = ScriptEnv([("a", 0.5, False, False, {}), ("b", 1.0, True, False, {"success": True})])
    timing = Timing()
    episode = asyncio.run(play(EpisodeSession(env), say_hello, timing=timing))
    assert env.actions == ["hello 0", "hello 1"]
    assert episode.rewards == [0.5, 1.0]
    assert episode.stop_reason is StopReason.TERMINATED
    assert timing.env_s > 0.0


@pytest.mark.parametrize("where", ["reset", "step"])
def test_a_hang_and_an_exception_end_only_their_own_episode(where: str) -> None:
    release = threading.Event()

    class Hanging(ScriptEnv):
        def reset(self, seed: int | None = None, options: Any = None) -> Any:
            if where == "reset":
                release.wait(5)
            return super().reset(seed)

        def step(self, action: str) -> Any:
            release.wait(5)
            return super().step(action)

    async def both() -> Any:
        bad = EpisodeSession(Hanging([("x", 0.0, True, False, {})]))
        raising = EpisodeSession(ScriptEnv([ValueError("broken")]))
        good = EpisodeSession(ScriptEnv([("x", 1.0, True, False, {})]))
        result = await asyncio.gather(*(play(s, say_hello, env_timeout_s=0.1) for s in (bad, raising, good)))
        release.set()
        return result

    started = time.perf_counter()
    hung, raised, good = asyncio.run(both())
    assert time.perf_counter() - started < 3
    assert hung.stop_reason is StopReason.ENV_ERROR
    assert hung.error == f"{where}: no answer within 0.1 s"
    assert raised.error == "step: ValueError: broken"
    assert good.total_reward == 1.0


def test_an_engines_exception_propagates_and_is_recorded() -> None:
    async def broken(prompt: Any) -> Generation:
        raise ConnectionError("engine gone")

    session = EpisodeSession(ScriptEnv([]))
    with pytest.raises(ConnectionError):
        asyncio.run(play(session, broken))
    assert session.episode.stop_reason is StopReason.POLICY_ERROR


def test_aborted_generations_are_asked_for_again() -> None:
    answers = iter([Generation(text="he", finish_reason="abort"), Generation(text="llo")])

    async def interrupted(prompt: Any) -> Generation:
        return next(answers)

    env = ScriptEnv([("b", 1.0, True, False, {})])
    asyncio.run(play(EpisodeSession(env, limits=Limits(max_turns=3)), interrupted))
    assert env.actions == ["hello"]


def test_steps_that_never_return_do_not_use_up_the_threads_of_others() -> None:
    release = threading.Event()

    class Hanging(ScriptEnv):
        def step(self, action: str) -> Any:
            release.wait(20)
            return super().step(action)

    async def many() -> Any:
        hung = [EpisodeSession(Hanging([("x", 0.0, True, False, {})])) for _ in range(2 * MAX_THREADS)]
        good = [EpisodeSession(ScriptEnv([("x", 1.0, True, False, {})])) for _ in range(8)]
        first = await asyncio.gather(*(play(s, say_hello, env_timeout_s=0.3) for s in hung))
        return first, await asyncio.gather(*(play(s, say_hello, env_timeout_s=5.0) for s in good))

    started = time.perf_counter()
    hung, good = asyncio.run(many())
    assert time.perf_counter() - started < 10
    release.set()
    assert all(e.error == "step: no answer within 0.3 s" for e in hung)
    assert all(e.total_reward == 1.0 for e in good)


def test_an_env_may_raise_stop_iteration() -> None:
    class Exhausted(ScriptEnv):
        def step(self, action: str) -> Any:
            return next(iter([]))

    episode = asyncio.run(play(EpisodeSession(Exhausted([])), say_hello))
    assert episode.stop_reason is StopReason.ENV_ERROR
    assert episode.error is not None
    assert "StopIteration" in episode.error
