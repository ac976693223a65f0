"""Searches shared by the experts and oracles of the sliding puzzle, the towers and 2048."""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence

from gem_core.envs.game_env.fifteen_puzzle import sources
from gem_core.envs.game_env.game_2048 import slide

#: Board -> next move, of every board on a solution found; so that a player who asks turn by turn searches once.
_known_moves: dict[tuple[int, ...], str] = {}
_MOST_KNOWN = 100_000


def next_slide(cells: Sequence[int], most: int = 300_000) -> str | None:
    """The next move of a solution of the sliding puzzle: a shortest one up to 3x3, a short one above.

    Args:
        cells: Row by row, 0 is the hole.
        most: Boards looked at before giving up (None).
    """
    board = tuple(cells)
    if board not in _known_moves:
        size = math.isqrt(len(board))
        # On larger boards the remaining distance weighs more: far fewer boards, solutions a little longer.
        tries = (1.0,) if size <= 3 else (2.0, 4.0)
        path = next((path for weight in tries if (path := solve_slides(board, weight, most))), [])
        if len(_known_moves) > _MOST_KNOWN:
            _known_moves.clear()
        _known_moves.update(path)
    return _known_moves.get(board)


def solve_slides(board: tuple[int, ...], weight: float, most: int) -> list[tuple[tuple[int, ...], str]] | None:
    """A* with ``weight`` times the sum of the tiles' distances: every board on the way, with the move made there."""
    size = math.isqrt(len(board))
    goal = (*range(1, size * size), 0)
    #: Tile and cell -> steps home; the hole has none.
    far = [[0] * size**2] + [
        [abs(k // size - home // size) + abs(k % size - home % size) for k in range(size**2)]
        for home in range(size**2 - 1)
    ]
    left = sum(far[tile][k] for k, tile in enumerate(board))
    came: dict[tuple[int, ...], tuple[tuple[int, ...], str] | None] = {board: None}
    steps_to = {board: 0}
    queue = [(weight * left, 0, left, board)]
    while queue and len(came) < most:
        _, steps, left, now = heapq.heappop(queue)
        if now == goal:
            path = []
            while step := came[now]:
                path.append(step)
                now = step[0]
            return path[::-1]
        if steps > steps_to[now]:
            continue
        hole = now.index(0)
        for name, source in sources(size, hole).items():
            tile = now[source]
            after = list(now)
            after[hole], after[source] = tile, 0
            found = tuple(after)
            if steps + 1 < steps_to.get(found, 1 << 30):
                steps_to[found], came[found] = steps + 1, (now, name)
                further = left + far[tile][hole] - far[tile][source]
                heapq.heappush(queue, (steps + 1 + weight * further, steps + 1, further, found))
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
