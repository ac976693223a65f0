"""Keeps libraries that draw from the global generators apart from each other and from everybody else."""

from __future__ import annotations

import contextlib
import random
import sys
import threading
from collections.abc import Iterator
from typing import Any

_lock = threading.RLock()


class ForeignRandom:
    """The global ``random`` and NumPy state of one foreign environment.

    Inside :meth:`swapped_in` the global generators are that environment's; afterwards they are as they were. One
    environment of this kind runs at a time in a process; threads that draw from the global generators meanwhile are
    outside what can be kept apart (run the environments in processes where that matters).
    """

    def __init__(self) -> None:
        self._states: tuple[Any, Any] | None = None

    def seed(self, seed: int) -> None:
        """Starts over from ``seed``."""
        numpy = sys.modules.get("numpy")
        with _lock:
            outside = _capture(numpy)
            random.seed(seed)
            if numpy is not None:
                numpy.random.seed(seed % 2**32)
            self._states = _capture(numpy)
            _restore(outside, numpy)

    @contextlib.contextmanager
    def swapped_in(self) -> Iterator[None]:
        numpy = sys.modules.get("numpy")
        with _lock:
            outside = _capture(numpy)
            if self._states is not None:
                _restore(self._states, numpy)
            try:
                yield
            finally:
                self._states = _capture(numpy)
                _restore(outside, numpy)


def _capture(numpy: Any) -> tuple[Any, Any]:
    return random.getstate(), numpy.random.get_state() if numpy is not None else None


def _restore(states: tuple[Any, Any], numpy: Any) -> None:
    random.setstate(states[0])
    if numpy is not None and states[1] is not None:
        numpy.random.set_state(states[1])
