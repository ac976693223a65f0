"""Sudoku on 4x4 and 9x9 boards, always with exactly one solution."""

from __future__ import annotations

import re

from gem_core.envs.game_env import sudoku_boards
from gem_core.envs.text_game import Outcome, TextGame, check_positive

_MOVE = re.compile(r"([0-9]{1,9})[\s,]+([0-9]{1,9})[\s,]+([0-9]{1,9})")
_SETTINGS = {4: (10, 15), 9: (50, 50)}  # side -> clues and turns of the -easy and -hard ids
_SPARE_TURNS = {4: 9, 9: 19}  # what those turns leave beyond one a cell


class SudokuEnv(TextGame[tuple[int, int, int]]):
    """Rewards: each right digit earns 1 / empty cells at the start; anything else 0.0.

    Args:
        clues: Digits given; None draws (or takes the side's usual count where only the side is fixed).
        max_turns: Turns allowed; None gives one a cell and some to spare (9 on a 4x4 board, 19 on a 9x9 board).
        scale: Side of the board, 4 or 9; None draws it at each reset.

    Raises:
        ValueError: a side other than 4 or 9, or a clue count outside ``sudoku_boards.CLUE_RANGE``.
    """

    state_fields = ("scale", "clues", "solution", "board")

    def __init__(self, clues: int | None = 30, max_turns: int | None = 100, scale: int | None = 9) -> None:
        super().__init__(max_turns)
        check_positive(clues=clues)
        if scale is not None and (isinstance(scale, bool) or scale not in _SETTINGS):
            raise ValueError(f"scale must be 4, 9 or None (drawn at each reset), got {scale!r}")
        self._sides = [side for side in ([scale] if scale else _SETTINGS) if clues is None or _fits(side, clues)]
        if not self._sides:
            ranges = ", ".join(
                f"{low} to {high} for scale={side}"
                for side, (low, high) in sudoku_boards.CLUE_RANGE.items()
                if scale in (None, side)
            )
            raise ValueError(f"clues={clues} leaves no puzzle that can be drawn with one solution; give {ranges}")
        self._fixed = (clues, max_turns)
        self.scale = self._sides[0]
        self.clues = 0
        self.solution: list[int] = []
        self.board: list[int] = []

    def deal(self) -> None:
        clues, turns = self._fixed
        self.scale = self.rng.choice(self._sides) if len(self._sides) > 1 else self._sides[0]
        self.clues = _SETTINGS[self.scale][0] if clues is None else clues
        self.max_turns = turns or self.scale**2 - self.clues + _SPARE_TURNS[self.scale]
        self.board, self.solution = sudoku_boards.puzzle(self.rng, self.scale, self.clues)

    def rules(self) -> str:
        n, box = self.scale, _box(self.scale)
        return (
            f"This is a {n}x{n} Sudoku with {self.clues} digits given. Fill every empty cell, shown as a dot, with a "
            f"digit from 1 to {n} so that no digit appears twice in a row, in a column or in one of the {box}x{box} "
            f"boxes. There is exactly one solution. Each turn fills one cell: name its row and column, both counted "
            f"from 1 at the top left, and the digit. Only the digit of the solution is accepted; any other costs the "
            f"turn. You have {self.max_turns} turns. Think as you like, then answer with {self.format_hint()}, for "
            r"example \boxed{2 1 4} for a 4 in row 2, column 1."
        )

    def request(self) -> str:
        return (
            f"{self.render()}\n{self.board.count(0)} cells are empty. Turn {self.turn + 1} of {self.max_turns}: "
            f"fill one as {self.format_hint()}."
        )

    def render(self) -> str:
        """The board with row and column numbers, boxes apart."""
        n, box = self.scale, _box(self.scale)
        lines = ["    " + "   ".join(" ".join(map(str, range(i + 1, i + box + 1))) for i in range(0, n, box))]
        text = "".join(map(str, self.board)).replace("0", ".")
        for r in range(n):
            if r and r % box == 0:
                lines.append("    " + "-+-".join(["-" * (2 * box - 1)] * box))
            row = text[r * n : r * n + n]
            lines.append(f"{r + 1:>2}  " + " | ".join(" ".join(row[i : i + box]) for i in range(0, n, box)))
        return "\n".join(lines)

    def format_hint(self) -> str:
        return r"\boxed{row column digit}"

    def parse(self, content: str) -> tuple[int, int, int] | None:
        match = _MOVE.fullmatch(content)
        return (int(match[1]), int(match[2]), int(match[3])) if match else None

    def play(self, move: tuple[int, int, int]) -> Outcome:
        row, col, digit = move
        n = self.scale
        if not (1 <= row <= n and 1 <= col <= n and 1 <= digit <= n):
            text = f"Row {row}, column {col}, digit {digit}: all three must be from 1 to {n}. That turn is lost."
            return Outcome(text, legal=False)
        cell = (row - 1) * n + col - 1
        if self.board[cell]:
            return Outcome(f"Row {row}, column {col} already holds {self.board[cell]}.", legal=False)
        if digit != self.solution[cell]:
            return Outcome(f"{digit} is not the digit of row {row}, column {col}; the cell stays empty.")
        self.board[cell] = digit
        done = self.board == self.solution
        text = f"Right: row {row}, column {col} is {digit}." + (" The Sudoku is solved." if done else "")
        return Outcome(text, reward=1 / (n * n - self.clues), success=done)

    def sample_move(self) -> str:
        n = self.scale
        open_cells = [c for c, digit in enumerate(self.board) if not digit] or [0]
        cell = self.action_rng.choice(open_cells)
        return f"{cell // n + 1} {cell % n + 1} {self.action_rng.randint(1, n)}"


def _fits(side: int, clues: int) -> bool:
    low, high = sudoku_boards.CLUE_RANGE[side]
    return low <= clues <= high


def _box(side: int) -> int:
    return 2 if side == 4 else 3
