"""One episode as a background task that hands its prompts out and takes answers in.

RL2 owns the loop and comes back whenever it likes: after an aborted generation (repository), after every turn
(rl-square 0.0.2). The episode itself is :func:`gem_core.play.play`, which waits for its answers meanwhile.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from gem_core.core import Env, EnvWrapper, Info, StepTuple
from gem_core.episode import Episode
from gem_core.play import play
from gem_core.session import EpisodeSession, Generation, Prompt

logger = logging.getLogger(__name__)
T = TypeVar("T")

#: Episodes whose end RL2 has not seen, by the number that its sample carries. RL2 copies samples and writes them as
#: JSON, so environments live here and not in them.
PLAYERS: dict[int, Player] = {}
_numbers = itertools.count(1)


class Player:
    """Plays ``session``'s episode; between turns it waits for :meth:`answer`.

    Created within a running event loop. The environment is closed when the episode ends, fails or is cancelled.
    """

    def __init__(self, session: EpisodeSession, env_timeout_s: float) -> None:
        assert session.env is not None
        self.number = next(_numbers)
        self.session = session
        self.touched = time.monotonic()
        self._timeout_s = env_timeout_s
        session.env = self._env = BoundedEnv(session.env, env_timeout_s)
        self._prompts: asyncio.Queue[Prompt] = asyncio.Queue()
        self._answers: asyncio.Queue[Generation] = asyncio.Queue()
        self._task = asyncio.create_task(self._play())
        PLAYERS[self.number] = self

    @property
    def episode(self) -> Episode:
        return self.session.episode

    async def prompt(self) -> Prompt | None:
        """The next prompt; None when the episode is over.

        Raises what broke the episode where it is not the environment's fault.
        """
        self.touched = time.monotonic()
        waiting = asyncio.ensure_future(self._prompts.get())
        try:
            await asyncio.wait({waiting, self._task}, return_when=asyncio.FIRST_COMPLETED)
            if waiting.done():
                return waiting.result()
        finally:
            waiting.cancel()
        PLAYERS.pop(self.number, None)
        self._task.result()
        return None

    def answer(self, generation: Generation) -> None:
        """Answers the prompt that was handed out last."""
        self.touched = time.monotonic()
        self._answers.put_nowait(generation)

    async def close(self) -> None:
        """Ends the episode where it stands."""
        PLAYERS.pop(self.number, None)
        self._task.cancel()
        await asyncio.wait({self._task})

    async def _play(self) -> Episode:
        try:
            # BoundedEnv keeps the time; play's own limit is behind it.
            return await play(self.session, self._generate, env_timeout_s=None)
        finally:
            try:
                await asyncio.to_thread(self._env.close)
            except Exception as e:
                logger.warning("episode %s: close: %s: %s", self.episode.episode_id, type(e).__name__, e)

    async def _generate(self, prompt: Prompt) -> Generation:
        self._prompts.put_nowait(prompt)
        return await self._answers.get()


class BoundedEnv(EnvWrapper):
    """Gives up on a reset, step or close that takes longer than ``timeout_s``.

    Each call runs in a thread of its own. One that never comes back stays behind, but it neither takes a place in the
    event loop's pool of threads nor keeps the process from ending.
    """

    def __init__(self, env: Env, timeout_s: float) -> None:
        super().__init__(env)
        self._timeout_s = timeout_s
        self._lost = False

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        return self._bounded(lambda: super(BoundedEnv, self).reset(seed, options))

    def step(self, action: str) -> StepTuple:
        return self._bounded(lambda: self.env.step(action))

    def close(self) -> None:
        if not self._lost:  # an environment that hangs is not to be entered again
            self._bounded(self.env.close)

    def _bounded(self, call: Callable[[], T]) -> T:
        results: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                results.append(call())
            except BaseException as e:
                errors.append(e)

        thread = threading.Thread(target=run, name="gem-env", daemon=True)
        thread.start()
        thread.join(self._timeout_s)
        if errors:
            raise errors[0]
        if not results:
            self._lost = True
            raise TimeoutError(f"no answer within {self._timeout_s} s")
        return results[0]
