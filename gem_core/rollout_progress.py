"""The progress bar of a rollout."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_core.rollout import RolloutStats

logger = logging.getLogger(__name__)

#: Seconds between two lines where there is no bar.
_LINE_S = 10.0


class Progress:
    """A bar of the package tqdm, or lines in the log without it; nothing where it is not ``shown``."""

    def __init__(self, shown: bool, total: int | None, stats: RolloutStats) -> None:
        self._shown, self._total, self._stats = shown, total, stats
        self._bar: Any = None
        self._last = time.monotonic()
        if shown:
            try:
                from tqdm.auto import tqdm
            except ImportError:
                return
            self._bar = tqdm(total=total, unit="ep", dynamic_ncols=True)

    def add(self) -> None:
        """One more episode."""
        if self._bar is not None:
            self._bar.update(1)

    def refresh(self) -> None:
        """Shows the figures, now and then."""
        if not self._shown:
            return
        now = time.monotonic()
        if now - self._last < (0.5 if self._bar is not None else _LINE_S):
            return
        self._last = now
        self._show()

    def close(self) -> None:
        if self._shown:
            self._show()
        if self._bar is not None:
            self._bar.close()

    def _show(self) -> None:
        figures = describe(self._stats)
        if self._bar is not None:
            self._bar.set_postfix_str(figures, refresh=False)
        else:
            logger.info("%d of %s episodes, %s", self._stats.episodes, self._total or "?", figures)


def describe(stats: RolloutStats) -> str:
    """Rates and waits in a few words."""
    return (
        f"{stats.episodes_per_s:.1f} ep/s, {stats.tokens_per_s:.0f} tok/s, env wait {stats.env_wait_s:.1f} s, "
        f"generation wait {stats.generation_wait_s:.1f} s, {stats.failed} failed"
    )
