"""Slide numbered tiles into order."""

from __future__ import annotations

import itertools
from bisect import bisect
from collections.abc import Callable
from functools import cache

from gem_core.envs.text_game import Outcome, TextGame, check_range

_SIZES = ((2, 10), (3, 20), (4, 50))
_SCRAMBLE = 100
#: Where the tile that moves comes from, seen from the hole: a tile that goes up comes from below.
_FROM = {"up": (1, 0), "down": (-1, 0), "left": (0, 1), "right": (0, -1)}
_OPPOSITE = {"up": "down", "down": "up", "left": "right", "right": "left"}
_TILES = ("__", *(f"{x:2d}" for x in range(1, 400)))


class FifteenPuzzleEnv(TextGame[str]):
    """Rewards: 1.0 when solved; on the last turn, the share of cells in place, the hole included.

    The start is 100 random legal moves from the solved board, none of which undoes the one before, and never solved. On
    2x2 such a walk only goes round, so there are just two starts.

    Args:
        max_turns: Moves allowed.
        num_rows: Rows and columns; None draws size and turns at each reset.
    """

    state_fields = ("size", "cells")

    def __init__(self, max_turns: int | None = 20, num_rows: int | None = 2) -> None:
        super().__init__(max_turns)
        check_range(2, 20, num_rows=num_rows)
        self._fixed = (num_rows, max_turns)
        self.size = 0
        #: Row by row; 0 is the hole.
        self.cells: list[int] = []

    def deal(self) -> None:
        self.size = self._fixed[0] or self.rng.choice(_SIZES)[0]
        self.max_turns = self._fixed[1] or dict(_SIZES).get(self.size, 4 * self.size**2)
        solved = self.solved()
        self.cells = solved
        while self.cells == solved:
            self.cells = scramble(self.size, self.rng.random)

    def solved(self) -> list[int]:
        """The board to reach: 1, 2, 3, ... and the hole last."""
        return [*range(1, self.size**2), 0]

    def rules(self) -> str:
        n = self.size
        return (
            f"This is the sliding puzzle on {n}x{n} cells: tiles 1 to {n * n - 1} and one hole, shown as __. Solved "
            "means the tiles in order, row by row, with the hole at the bottom right. A move slides one tile into the "
            "hole: up means that the tile below the hole moves up, and so on. You have "
            f"{self.max_turns} moves. Think as you like, then answer with {self.format_hint()}."
        )

    def request(self) -> str:
        return f"{self.board()}\nMove {self.turn + 1} of {self.max_turns}: enter {self.format_hint()}."

    def board(self) -> str:
        n = self.size
        text = [_TILES[x] for x in self.cells]
        return "\n".join([" ".join(text[k : k + n]) for k in range(0, n * n, n)])

    def format_hint(self) -> str:
        return r"\boxed{up}, \boxed{down}, \boxed{left} or \boxed{right}"

    def parse(self, content: str) -> str | None:
        move = content.lower()
        return move if move in _FROM else None

    def play(self, move: str) -> Outcome:
        hole = self.cells.index(0)
        source = sources(self.size, hole).get(move)
        if source is None:
            return Outcome(f"No tile can move {move}; that move is lost.", legal=False)
        tile = self.cells[source]
        self.cells[hole], self.cells[source] = tile, 0
        if self.cells == self.solved():
            return Outcome(f"Tile {tile} moved {move}. The puzzle is solved.", reward=1.0, success=True)
        return Outcome(f"Tile {tile} moved {move}.")

    def soft_reward(self, outcome: Outcome) -> float:
        return sum(a == b for a, b in zip(self.cells, self.solved(), strict=True)) / self.size**2

    def sample_move(self) -> str:
        return self.action_rng.choice(list(sources(self.size, self.cells.index(0))))


@cache
def sources(size: int, hole: int) -> dict[str, int]:
    """The moves that are possible with the hole at ``hole``, each with the cell that its tile comes from."""
    r, c = divmod(hole, size)
    return {
        name: (r + dr) * size + c + dc for name, (dr, dc) in _FROM.items() if 0 <= r + dr < size and 0 <= c + dc < size
    }


class Walks:
    """All walks of ``moves`` moves from one place of the hole that never step straight back.

    Attributes:
        at: The hole's cell and the last move ("" at the start).
        bounds: Where one walk's share of 0 to 1 ends and the next one's begins.
        ways: For each walk, the cells that the hole goes to, and the walks from where it ends.
    """

    __slots__ = ("at", "bounds", "moves", "size", "ways")

    def __init__(self, size: int, moves: int, at: tuple[int, str]) -> None:
        self.size, self.moves, self.at = size, moves, at
        self.bounds: list[float] = []
        self.ways: list[tuple[tuple[int, ...], Walks]] = []

    def look_ahead(self) -> None:
        """Fills ``bounds`` and ``ways``."""
        start, last = self.at
        found: list[tuple[float, tuple[int, ...], str]] = [(1.0, (start,), last)]
        for _ in range(self.moves):
            longer = []
            for share, path, before in found:
                options = [(n, s) for n, s in sources(self.size, path[-1]).items() if n != _OPPOSITE.get(before)]
                longer += [(share / len(options), (*path, source), name) for name, source in options]
            found = longer
        self.bounds = list(itertools.accumulate(share for share, _, _ in found))[:-1]
        # On 2x2 every twelve moves lead back to the same board: only what remains need be played.
        played = self.moves % 12 if self.size == 2 else self.moves
        for _, path, name in found:
            self.ways.append((path[1 : 1 + played], walks(self.size, self.moves, (path[-1], name))))


#: The same object for the same arguments, so that nothing is worked out twice.
walks = cache(Walks)


def scramble(size: int, draw: Callable[[], float]) -> list[int]:
    """The board after ``_SCRAMBLE`` moves, each uniform among those that do not undo the one before."""
    # One draw for several moves: as many as keep the tables small. On 2x2 there is a choice only at the start.
    moves = 5 if size > 2 else _SCRAMBLE
    cells, hole = [*range(1, size * size), 0], size * size - 1
    now = walks(size, moves, (hole, ""))
    for _ in range(_SCRAMBLE // moves):
        if not now.ways:
            now.look_ahead()
        path, now = now.ways[bisect(now.bounds, draw())]
        for source in path:
            cells[hole] = cells[source]
            hole = source
    cells[hole] = 0
    return cells
