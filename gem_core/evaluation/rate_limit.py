"""Client-side rate limits: requests and tokens a minute."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

#: A bucket holds what this many seconds let through, so that a burst never runs far ahead of the rate.
_BURST_S = 1.0


class RateLimiter:
    """Lets requests through in the order they came, at most so many a minute.

    A request's tokens are known only when its answer is there, so it is let through while the token balance is
    positive, charged an estimate, and settled afterwards; a debt holds up those that follow. (That is why this is not
    one of the packages for leaky buckets: they know no settling.)

    Args:
        requests_per_minute: None = no limit.
        tokens_per_minute: Prompt and completion together; None = no limit.
        clock: Seconds.
        sleep: Awaited to wait.

    Raises:
        ValueError: a rate that is not positive.
    """

    def __init__(
        self,
        requests_per_minute: float | None = None,
        tokens_per_minute: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        for name, rate in (("requests_per_minute", requests_per_minute), ("tokens_per_minute", tokens_per_minute)):
            if rate is not None and not rate > 0:
                raise ValueError(f"{name} must be positive or None, got {rate!r}")
        self._clock, self._sleep = clock, sleep
        self._requests = None if requests_per_minute is None else _Bucket(requests_per_minute / 60, 1.0, clock)
        self._tokens = None if tokens_per_minute is None else _Bucket(tokens_per_minute / 60, 0.0, clock)
        self._paused_until = float("-inf")
        self._turn = asyncio.Lock()
        #: Seconds that requests were held back, all together.
        self.waited_s = 0.0

    async def acquire(self, tokens: int = 0) -> None:
        """Waits until a request may go out; ``tokens`` is what it is expected to cost."""
        if self._requests is None and self._tokens is None and self._clock() >= self._paused_until:
            return
        async with self._turn:
            while (wait := self._wait_s()) > 0:
                self.waited_s += wait
                await self._sleep(wait)
            if self._requests is not None:
                self._requests.take(1.0)
            if self._tokens is not None:
                self._tokens.take(float(tokens))

    def settle(self, estimated: int, actual: int) -> None:
        """Corrects what :meth:`acquire` charged."""
        if self._tokens is not None:
            self._tokens.take(float(actual - estimated))

    def pause(self, seconds: float) -> None:
        """Holds back all requests: a server that says when to come again means the account, not one request."""
        self._paused_until = max(self._paused_until, self._clock() + seconds)

    def _wait_s(self) -> float:
        waits = [self._paused_until - self._clock()]
        waits += [b.wait_s() for b in (self._requests, self._tokens) if b is not None]
        return max(waits)


class _Bucket:
    """Fills at ``rate`` a second; a taker needs a balance of ``needs`` (or anything above zero) and may overdraw it."""

    def __init__(self, rate: float, needs: float, clock: Callable[[], float]) -> None:
        self._rate, self._needs, self._clock = rate, needs, clock
        self._most = max(rate * _BURST_S, needs)
        self._level = self._most
        self._at = clock()

    def take(self, amount: float) -> None:
        self._fill()
        self._level = min(self._level - amount, self._most)

    def wait_s(self) -> float:
        self._fill()
        # A hair above the need, so that rounding never asks for a wait that moves no clock.
        missing = self._needs - self._level if self._needs else 1e-6 - self._level
        return missing / self._rate + 1e-9 if missing > 1e-12 else 0.0

    def _fill(self) -> None:
        now = self._clock()
        self._level = min(self._most, self._level + (now - self._at) * self._rate)
        self._at = now
