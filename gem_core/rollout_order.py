"""In which order finished episodes come out of a rollout."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Literal

from gem_core.episode import Episode


class Arranger:
    """Holds episodes back until it is their turn.

    Args:
        order: See :data:`gem_core.rollout.Order`.
        deliver: Gets each episode when it may go out.
    """

    def __init__(self, order: Literal["done", "group", "task"], deliver: Callable[[Episode], None]) -> None:
        self._order = order
        self._deliver = deliver
        self._finished: dict[int, Episode] = {}
        #: Tasks in the order they were started, "task" order.
        self._expected: deque[int] = deque()
        #: Of each open group (a stretch of tasks with one group id) the tasks, and those not finished yet.
        self._groups: dict[int, tuple[list[int], set[int]]] = {}
        self._group_of: dict[int, int] = {}
        self._current: tuple[str, int] | None = None

    @property
    def held(self) -> int:
        """Finished episodes that wait for one that is under way. (Those of an open group may wait for tasks that were
        not started yet, so holding them must not hold up the start of others.)"""
        return len(self._finished) if self._order == "task" else 0

    def expect(self, number: int, group_id: str) -> None:
        """A task is about to start."""
        if self._order == "task":
            self._expected.append(number)
        elif self._order == "group":
            if self._current is None or self._current[0] != group_id:
                self.close()
                self._current = (group_id, number)
                self._groups[number] = ([], set())
            key = self._current[1]
            self._groups[key][0].append(number)
            self._groups[key][1].add(number)
            self._group_of[number] = key

    def close(self) -> None:
        """The current group has no more tasks."""
        if self._current is not None:
            key, self._current = self._current[1], None
            self._release(key)

    def done(self, number: int, episode: Episode) -> None:
        """A task has finished."""
        if self._order == "done":
            self._deliver(episode)
            return
        self._finished[number] = episode
        if self._order == "task":
            while self._expected and self._expected[0] in self._finished:
                self._deliver(self._finished.pop(self._expected.popleft()))
            return
        key = self._group_of.pop(number)
        self._groups[key][1].discard(number)
        self._release(key)

    def flush(self) -> None:
        """The rollout is over; nothing is held any more."""
        self.close()
        assert not self._finished, "every task has finished"

    def _release(self, key: int) -> None:
        members, missing = self._groups[key]
        if missing or (self._current is not None and self._current[1] == key):
            return
        del self._groups[key]
        for number in members:
            self._deliver(self._finished.pop(number))
