"""Searches shared by the experts and oracles of the sliding puzzle, the towers and 2048."""

from __future__ import annotations

import heapq
from collections.abc import Mapping, Sequence

from gem_core.envs.game_env.game_2048 import slide

#: From the hole to the cell that the tile comes from.
_FROM = {"up": (1, 0), "down": (-1, 0), "left": (0, 1), "right": (0, -1)}


def next_slide(cells: Sequence[int], weight: float = 1.0, most: int = 400_000) -> str | None:
    """The first move of a solution of the sliding puzzle: shortest for ``weight=1.0``, found faster above it.

    Args:
        cells: Row by row, 0 is the hole.
        weight: Of the remaining distance in the search.
        most: States looked at before giving up (None).
    """
    n = round(len(cells) ** 0.5)
    start, goal = tuple(cells), (*range(1, n * n), 0)
    if start == goal:
        return None
    home = {tile: divmod(k, n) for k, tile in enumerate(goal)}

    def distance(state: tuple[int, ...]) -> int:
        total = 0
        for k, tile in enumerate(state):
            if tile:
                r, c = home[tile]
                total += abs(r - k // n) + abs(c - k % n)
        return total

    queue = [(weight * distance(start), 0, start, "")]
    known = {start: 0}
    while queue and len(known) < most:
        _, steps, state, first = heapq.heappop(queue)
        if state == goal:
            return first
        if steps > known[state]:
            continue
        hole = state.index(0)
        r, c = divmod(hole, n)
        for name, (dr, dc) in _FROM.items():
            if not (0 <= r + dr < n and 0 <= c + dc < n):
                continue
            source = (r + dr) * n + c + dc
            after = list(state)
            after[hole], after[source] = after[source], 0
            found = tuple(after)
            if steps + 1 < known.get(found, 1 << 30):
                known[found] = steps + 1
                heapq.heappush(queue, (steps + 1 + weight * distance(found), steps + 1, found, first or name))
    return None


def next_disk(towers: Mapping[str, Sequence[int]]) -> tuple[str, str] | None:
    """The first move of the shortest solution from any legal state: all disks to C."""
    where = {disk: name for name, disks in towers.items() for disk in disks}
    target, move = "C", None
    for disk in sorted(where, reverse=True):  # the largest that is not home yet decides what must go where
        if where[disk] != target:
            move = (where[disk], target)
            target = next(t for t in "ABC" if t not in move)
    return move


def best_slide(cells: Sequence[int], depth: int = 2) -> str:
    """A good move in 2048: many empty cells, large tiles in one corner, neighbours alike; looks ``depth`` moves on,
    without the new tiles."""
    return max(("down", "left", "right", "up"), key=lambda d: _value_after(list(cells), d, depth))


def _value_after(cells: list[int], direction: str, depth: int) -> float:
    after = slide(cells, direction)
    if after == cells:
        return -1e9
    value = _value(after)
    if depth > 1:
        value += max(_value_after(after, d, depth - 1) for d in ("down", "left", "right", "up"))
    return value


def _value(cells: Sequence[int]) -> float:
    empty = sum(not x for x in cells)
    rough = 0
    for k, x in enumerate(cells):
        if k % 4 < 3:
            rough += abs(x.bit_length() - cells[k + 1].bit_length())
        if k < 12:
            rough += abs(x.bit_length() - cells[k + 4].bit_length())
    corner = max(cells).bit_length() if max(cells) == cells[12] else 0
    return 3.0 * empty - rough + 2.0 * corner + 4.0 * max(cells).bit_length()
