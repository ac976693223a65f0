"""Slide and merge tiles up to a target."""

from __future__ import annotations

import math
from functools import lru_cache

from gem_core.envs.text_game import Outcome, TextGame, check_range

_SIZES = ((16, 20), (32, 30), (64, 50))
_DIRECTIONS = ("up", "down", "left", "right")
_SHOWN = {0: "   .", **{2**k: f"{2**k:4d}" for k in range(1, 65)}}


class Game2048Env(TextGame[str]):
    """Reward of a move: the progress of the largest tile from the start's to the target, in powers of two, capped at
    the target. No legal move left: the end.

    Args:
        target_tile: A power of two from 8; None draws target and turns at each reset.
        max_turns: Moves allowed.
        board_size: Rows and columns.
    """

    state_fields = ("target_tile", "cells", "start_tile", "best")

    def __init__(self, target_tile: int | None = 2048, max_turns: int | None = 1000, board_size: int = 4) -> None:
        super().__init__(max_turns)
        check_range(2, 8, board_size=board_size)
        check_range(8, 2**17, target_tile=target_tile)
        if target_tile is not None and target_tile & (target_tile - 1):
            raise ValueError(f"target_tile must be a power of two, got {target_tile}")
        self.board_size = board_size
        self._fixed = (target_tile, max_turns)
        #: The largest tile at the start, and so far.
        self.target_tile = self.start_tile = self.best = 0
        #: Row by row; 0 is empty.
        self.cells: list[int] = []

    def deal(self) -> None:
        self.target_tile = self._fixed[0] or self.rng.choice(_SIZES)[0]
        self.max_turns = self._fixed[1] or dict(_SIZES).get(self.target_tile, self.target_tile)
        self.cells = [0] * self.board_size**2
        self._add_tile()
        self._add_tile()
        self.start_tile = self.best = max(self.cells)

    def _add_tile(self) -> None:
        empty = [k for k, x in enumerate(self.cells) if not x]
        if empty:
            draw = self.rng.random  # choice() takes three times as long, and this is most of a reset
            self.cells[empty[int(draw() * len(empty))]] = 2 if draw() < 0.9 else 4

    def rules(self) -> str:
        return (
            f"This is 2048 on {self.board_size}x{self.board_size} cells. A move slides all tiles one way as far as "
            "they go; two equal tiles that meet become one of their sum, once in a move. After each move a 2 (or "
            f"sometimes a 4) appears on an empty cell. Make a tile of {self.target_tile} within {self.max_turns} "
            "moves. A move that changes nothing costs the turn. Think as you like, then answer with "
            f"{self.format_hint()}."
        )

    def request(self) -> str:
        return f"{self.board()}\nMove {self.turn + 1} of {self.max_turns}: enter {self.format_hint()}."

    def board(self) -> str:
        n = self.board_size
        text = [_SHOWN[x] for x in self.cells]
        return "\n".join([" ".join(text[k : k + n]) for k in range(0, n * n, n)])

    def format_hint(self) -> str:
        return r"\boxed{up}, \boxed{down}, \boxed{left} or \boxed{right}"

    def parse(self, content: str) -> str | None:
        move = content.lower()
        return move if move in _DIRECTIONS else None

    def play(self, move: str) -> Outcome:
        cells = slide(self.cells, move)
        if cells == self.cells:
            return Outcome(f"Nothing can move {move}; that move is lost.", legal=False)
        self.cells = cells
        # A new 4 may be the largest tile: it counts from the move after, so that all progress is paid once.
        before, self.best = self.best, max(self.best, *cells)
        reward = self._progress(self.best) - self._progress(before)
        if max(cells) >= self.target_tile:
            return Outcome(f"You moved {move} and made {self.target_tile}.", reward=reward, success=True)
        self._add_tile()
        if not any(slide(self.cells, d) != self.cells for d in _DIRECTIONS):
            return Outcome(f"You moved {move}. No move is left, so the game is over.", reward=reward, over=True)
        return Outcome(f"You moved {move}.", reward=reward)

    def _progress(self, tile: int) -> float:
        start = math.log2(self.start_tile)
        return (math.log2(min(tile, self.target_tile)) - start) / (math.log2(self.target_tile) - start)

    def sample_move(self) -> str:
        possible = [d for d in _DIRECTIONS if slide(self.cells, d) != self.cells]
        return self.action_rng.choice(possible or _DIRECTIONS)


def slide(cells: list[int], direction: str) -> list[int]:
    """The board after a move, before a new tile appears."""
    out, n = list(cells), math.isqrt(len(cells))
    for i in range(n):
        if direction in ("left", "right"):
            line = [i * n + k for k in range(n)]
        else:
            line = [k * n + i for k in range(n)]
        if direction in ("right", "down"):
            line.reverse()
        for k, value in zip(line, _merge(tuple(cells[k] for k in line)), strict=True):
            out[k] = value
    return out


@lru_cache(maxsize=65536)
def _merge(line: tuple[int, ...]) -> tuple[int, ...]:
    """One line moved towards its start."""
    out: list[int] = []
    free = False  # the last tile may still merge
    for value in line:
        if not value:
            continue
        if free and out[-1] == value:
            out[-1] *= 2
            free = False
        else:
            out.append(value)
            free = True
    return (*out, *[0] * (len(line) - len(out)))
