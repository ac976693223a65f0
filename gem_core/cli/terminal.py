"""What ``gem play`` shows and asks."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gem_core.core import Env
    from gem_core.episode import Episode, Turn
    from gem_core.session import Prompt


class Screen:
    """Writes an episode to the terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(highlight=False)
        self._total = 0.0

    def title(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, style="bold"))

    def note(self, text: str) -> None:
        from rich.text import Text

        self._console.print(Text(text, style="dim"))

    def observation(self, text: str, turn: int) -> None:
        """Never as markup: an observation is full of brackets."""
        from rich.text import Text

        self._console.rule(f"turn {turn}", style="dim")
        self._console.print(Text(text))

    def turn(self, turn: Turn, *, show_action: bool) -> None:
        from rich.text import Text

        self._total += turn.reward
        if show_action:
            self._console.print(Text(f"> {turn.action}", style="cyan"))
        self._console.print(Text(f"reward {turn.reward:g}, so far {self._total:g}", style="dim"))

    def end(self, episode: Episode) -> None:
        from rich.text import Text

        if episode.final_observation:
            self._console.rule(style="dim")
            self._console.print(Text(episode.final_observation))
        verdict = {True: "solved", False: "not solved", None: "over"}[episode.success]
        style = "green" if episode.success else "yellow"
        turns = f"{len(episode.turns)} turn{'s' if len(episode.turns) != 1 else ''}"
        reason = "" if episode.stop_reason is None else f" ({episode.stop_reason.value.replace('_', ' ')})"
        text = f"\n{verdict}{reason}: return {episode.total_reward:g} in {turns}"
        self._console.print(Text(text, style=style))
        if episode.error:
            self._console.print(Text(episode.error, style="red"))


def ask_person(env: Env, prompt: Prompt) -> str:
    """One line from the person, as an action.

    Raises:
        PlayerQuitError: ``/quit``, or the end of the input.
    """
    from gem_core.evaluation import PlayerQuitError

    if os.isatty(0):
        import contextlib

        with contextlib.suppress(ImportError):  # arrow keys and history in input()
            import readline  # noqa: F401
    boxes = r"\boxed{" in "".join(m["content"] for m in prompt.messages if m["role"] != "assistant")
    while True:
        try:
            line = input("> ").strip()
        except EOFError:
            raise PlayerQuitError("the input ended") from None
        if line in ("/quit", "/q"):
            raise PlayerQuitError("the player quit")
        if line == "/random":
            return env.sample_random_action()
        if line.startswith("/raw "):
            return line.removeprefix("/raw ")
        if line.startswith("/"):
            print(r"a line is an action (put into \boxed{} if it has none); /raw TEXT, /random, /quit")
        elif line:
            return line if not boxes or r"\boxed" in line else rf"\boxed{{{line}}}"
