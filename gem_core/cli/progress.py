"""The progress bar of ``gem eval`` and ``gem rollout``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_core.episode import Episode


class EvalProgress:
    """A bar on standard error, where that is a terminal.

    Args:
        total: Episodes.
        quiet: No bar.
    """

    def __init__(self, total: int, quiet: bool) -> None:
        self._total = total
        self._bar: Any = None
        self._task: Any = None
        self._seen = self._failed = 0
        self._sum = 0.0
        if quiet or not sys.stderr.isatty():
            return
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.description}"),
            TimeRemainingColumn(),
        )
        self._bar = Progress(*columns, console=Console(stderr=True), transient=True)

    def __enter__(self) -> EvalProgress:
        if self._bar is not None:
            self._bar.start()
            self._task = self._bar.add_task("", total=self._total)
        return self

    def __exit__(self, *exc: object) -> None:
        if self._bar is not None:
            self._bar.stop()

    def add(self, episode: Episode) -> None:
        """One more episode."""
        self._seen += 1
        self._failed += episode.failed
        self._sum += episode.total_reward
        if self._bar is not None:
            text = f"return {self._sum / self._seen:.3f}" + (f", {self._failed} failed" if self._failed else "")
            self._bar.update(self._task, advance=1, description=text)
