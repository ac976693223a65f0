"""Slide numbered tiles into order."""

from __future__ import annotations

import bisect
import itertools
from typing import ClassVar

from gem_core.envs.text_game import Outcome, TextGame, check_range

_SIZES = ((2, 10), (3, 20), (4, 50))
_SCRAMBLE = 100
#: Moves drawn at once; divides _SCRAMBLE.
_BLOCK = 5
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

    #: Where the tile that moves comes from, seen from the hole: a tile that goes up comes from below.
    _FROM: ClassVar[dict[str, tuple[int, int]]] = {"up": (1, 0), "down": (-1, 0), "left": (0, 1), "right": (0, -1)}
    _OPPOSITE: ClassVar[dict[str, str]] = {"up": "down", "down": "up", "left": "right", "right": "left"}
    #: size -> hole -> the moves that are possible there, as (name, cell that the tile comes from).
    _moves: ClassVar[dict[int, list[list[tuple[str, int]]]]] = {}
    #: size -> (hole, last move) -> the same without the one that undoes the last move.
    _onward: ClassVar[dict[int, dict[tuple[int, str], list[tuple[str, int]]]]] = {}
    #: (size, hole, last move) -> see _block.
    _blocks: ClassVar[dict[tuple[int, int, str], tuple[list[float], list[tuple[tuple[int, ...], str]]]]] = {}

    def __init__(self, max_turns: int | None = 20, num_rows: int | None = 2) -> None:
        super().__init__(max_turns)
        check_range(2, 20, num_rows=num_rows)
        self._fixed = (num_rows, max_turns)
        self.size = 0
        #: Row by row; 0 is the hole.
        self.cells: list[int] = []

    def deal(self) -> None:
        size = self.rng.choice(_SIZES)[0]
        self.size = self._fixed[0] or size
        self.max_turns = self._fixed[1] or dict(_SIZES).get(self.size, 4 * self.size**2)
        self._tables()
        solved = self.solved()
        self.cells = self._scramble()
        while self.cells == solved:
            self.cells = self._scramble()

    def _tables(self) -> None:
        n = self.size
        if n in self._onward:
            return
        moves: list[list[tuple[str, int]]] = []
        for hole in range(n * n):
            r, c = divmod(hole, n)
            moves.append(
                [
                    (name, (r + dr) * n + c + dc)
                    for name, (dr, dc) in self._FROM.items()
                    if 0 <= r + dr < n and 0 <= c + dc < n
                ]
            )
        onward = {
            (hole, last): [m for m in options if m[0] != self._OPPOSITE.get(last)]
            for hole, options in enumerate(moves)
            for last in ("", *self._FROM)
        }
        self._moves[n], self._onward[n] = moves, onward

    def _scramble(self) -> list[int]:
        cells, hole, last = self.solved(), self.size**2 - 1, ""
        draw, blocks, size = self.rng.random, self._blocks, self.size
        for _ in range(_SCRAMBLE // _BLOCK):
            bounds, walks = blocks.get((size, hole, last)) or self._block(hole, last)
            path, last = walks[bisect.bisect(bounds, draw())]
            for source in path:
                cells[hole] = cells[source]
                hole = source
        cells[hole] = 0
        return cells

    def _block(self, hole: int, last: str) -> tuple[list[float], list[tuple[tuple[int, ...], str]]]:
        """All walks of ``_BLOCK`` moves from here, with the bounds of their shares of 0 to 1: one draw for several
        moves, each of them uniform among those that do not undo the one before."""
        onward = self._onward[self.size]
        walks: list[tuple[float, tuple[int, ...], str]] = [(1.0, (), last)]
        for _ in range(_BLOCK):
            walks = [
                (share / len(options), (*path, source), name)
                for share, path, before in walks
                for options in (onward[path[-1] if path else hole, before],)
                for name, source in options
            ]
        bounds = list(itertools.accumulate(share for share, _, _ in walks))[:-1]
        block = bounds, [(path, name) for _, path, name in walks]
        self._blocks[self.size, hole, last] = block
        return block

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
        return move if move in self._FROM else None

    def play(self, move: str) -> Outcome:
        self._tables()
        hole = self.cells.index(0)
        source = dict(self._moves[self.size][hole]).get(move)
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
        self._tables()
        hole = self.cells.index(0)
        return self.action_rng.choice(self._moves[self.size][hole])[0]
