from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gem_core.evaluation.rate_limit import RateLimiter


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


def limiter(clock: Clock, requests: float | None = None, tokens: float | None = None) -> RateLimiter:
    return RateLimiter(requests, tokens, clock=clock, sleep=clock.sleep)


@given(rate=st.floats(1, 6000), n=st.integers(2, 60))
def test_no_stretch_of_time_sees_more_requests_than_the_rate_allows(rate: float, n: int) -> None:
    clock = Clock()
    limit = limiter(clock, requests=rate)

    async def run() -> list[float]:
        times = []
        for _ in range(n):
            await limit.acquire()
            times.append(clock.now)
        return times

    times = asyncio.run(run())
    burst = max(rate / 60, 1.0)  # one second's worth, at least one request
    for i in range(n):
        for j in range(i + 1, n):
            assert j - i + 1 <= burst + rate / 60 * (times[j] - times[i]) + 1e-6


def test_the_rate_is_used_up() -> None:
    clock = Clock()
    limit = limiter(clock, requests=600)

    async def run() -> None:
        for _ in range(101):
            await limit.acquire()

    asyncio.run(run())
    assert clock.now == pytest.approx(91 / 10, rel=0.01)  # ten at once, then ten a second
    assert limit.waited_s == pytest.approx(clock.now)


@given(costs=st.lists(st.integers(1, 5000), min_size=5, max_size=40))
def test_tokens_are_charged_as_they_turn_out(costs: list[int]) -> None:
    clock = Clock()
    limit = limiter(clock, tokens=6000)  # 100 a second

    async def run() -> None:
        for cost in costs:
            await limit.acquire(50)
            limit.settle(50, cost)
        await limit.acquire(0)

    asyncio.run(run())
    assert sum(costs) <= 100 * clock.now + 100 + 1e-3  # what came back never runs ahead by more than a second


def test_a_pause_holds_back_all_requests_in_their_order() -> None:
    clock = Clock()
    limit = limiter(clock)
    limit.pause(5.0)
    order: list[int] = []

    async def one(i: int) -> None:
        await limit.acquire()
        order.append(i)

    async def run() -> None:
        await asyncio.gather(*(one(i) for i in range(4)))

    asyncio.run(run())
    assert clock.now >= 5.0
    assert order == [0, 1, 2, 3]


def test_a_rate_of_zero_is_refused() -> None:
    with pytest.raises(ValueError, match="tokens_per_minute"):
        RateLimiter(None, 0)
