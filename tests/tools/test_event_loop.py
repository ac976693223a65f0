from __future__ import annotations

import asyncio
import threading
import time

import pytest

from gem_core.tools.event_loop import LoopThread


def test_coroutines_run_from_any_thread_and_time_out_hard() -> None:
    loop = LoopThread("gem-test-loop")

    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    async def stubborn() -> None:
        try:
            await asyncio.sleep(30)
        except asyncio.CancelledError:
            await asyncio.sleep(30)  # a clean-up that hangs

    assert loop.run(double(4), 5) == 8
    start = time.perf_counter()
    with pytest.raises(TimeoutError, match=r"within 0\.1 s"):
        loop.run(asyncio.sleep(30), 0.1)
    assert time.perf_counter() - start < 0.8
    with pytest.raises(TimeoutError):
        loop.run(stubborn(), 0.1)
    assert time.perf_counter() - start < 2.5
    assert loop.run(double(5), 5) == 10
    loop.stop()
    loop.stop()
    assert [t for t in threading.enumerate() if t.name == "gem-test-loop"] == []
    assert loop.run(double(6), 5) == 12
    loop.stop()


def test_errors_reach_the_caller() -> None:
    loop = LoopThread("gem-test-loop")

    async def fail() -> None:
        raise KeyError("x")

    with pytest.raises(KeyError, match="x"):
        loop.run(fail(), None)
    loop.stop()
