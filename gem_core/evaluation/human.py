"""A person as the policy."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from gem_core.session import Generation, Prompt


class PlayerQuitError(Exception):
    """The person wants to stop."""


def ask_in_terminal(prompt: Prompt) -> str:
    """Shows the observation and reads one line; an empty one is asked for again.

    Raises:
        PlayerQuitError: ``/quit``, or the end of the input.
    """
    print(f"\n[{prompt.episode_id}, turn {prompt.turn + 1}]\n{prompt.messages[-1]['content']}")
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            raise PlayerQuitError("the input ended") from None
        if line == "/quit":
            raise PlayerQuitError("the player quit")
        if line:
            return line


class HumanPolicy:
    """Asks a person, one prompt after the other.

    Args:
        ask: From a prompt to the answer.
    """

    def __init__(self, ask: Callable[[Prompt], str] = ask_in_terminal) -> None:
        self._ask = ask

    async def generate(self, prompts: list[Prompt]) -> list[Generation]:
        """See :class:`~gem_core.rollout.AsyncPolicy`.

        Raises:
            PlayerQuitError: the person wants to stop.
        """
        return [Generation(text=await _in_daemon_thread(self._ask, p)) for p in prompts]


async def _in_daemon_thread(ask: Callable[[Prompt], str], prompt: Prompt) -> str:
    """Not ``asyncio.to_thread``: whoever presses Ctrl-C would still have to answer before the program ends."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[str] = loop.create_future()

    def tell(text: str | None, error: BaseException | None) -> None:
        if answer.done():  # cancelled
            return
        if error is not None:
            answer.set_exception(error)
        else:
            answer.set_result(text or "")

    def run() -> None:
        try:
            text = ask(prompt)
        except BaseException as e:
            loop.call_soon_threadsafe(tell, None, e)
        else:
            loop.call_soon_threadsafe(tell, text, None)

    threading.Thread(target=run, name="gem-human", daemon=True).start()
    return await answer
