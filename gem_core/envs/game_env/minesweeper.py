"""Reveal every cell that holds no mine."""

from __future__ import annotations

import re

from gem_core.envs.text_game import Outcome, TextGame, check_range

_MOVE = re.compile(r"(reveal|flag)[\s,]+([0-9]{1,6})[\s,]+([0-9]{1,6})", re.IGNORECASE)
Move = tuple[str, int, int]


class MinesweeperEnv(TextGame[Move]):
    """Reward of a move: newly revealed cells over all cells without a mine; a mine: 0.0 and the end.

    The first reveal and its neighbours are safe: mines are laid then. The board is solved when every safe cell is
    revealed.

    Args:
        rows: Height; None draws the board at each reset (5 to 8 a side, a fifth of it mines, a turn a cell).
        cols: Width.
        num_mines: Mines.
        max_turns: Moves allowed.
    """

    state_fields = ("rows", "cols", "num_mines", "mines", "shown", "flags")

    def __init__(
        self,
        rows: int | None = 8,
        cols: int | None = 8,
        num_mines: int | None = 10,
        max_turns: int | None = 20,
    ) -> None:
        super().__init__(max_turns)
        check_range(1, 50, rows=rows, cols=cols)
        check_range(1, 2500, num_mines=num_mines)
        self._fixed = (rows, cols, num_mines, max_turns)
        if num_mines:
            _check_size(rows or 5, cols or 5, num_mines)  # 5 is the smallest that is drawn
        self.rows = self.cols = self.num_mines = 0
        #: Cells are numbered row by row. No mines yet: the first reveal lays them.
        self.mines: list[int] = []
        self.shown: list[int] = []
        self.flags: list[int] = []

    def deal(self) -> None:
        rows, cols, num_mines, turns = self._fixed
        n = 0 if rows and cols else self.rng.randint(5, 8)
        self.rows, self.cols = rows or n, cols or n
        self.num_mines = num_mines or max(1, self.rows * self.cols // 5)
        _check_size(self.rows, self.cols, self.num_mines)
        self.max_turns = turns or self.rows * self.cols
        self.mines, self.shown, self.flags = [], [], []

    def rules(self) -> str:
        return (
            f"This is Minesweeper on {self.rows} rows and {self.cols} columns with {self.num_mines} mines. A revealed "
            "cell shows how many of its up to eight neighbours hold a mine; one that shows 0 reveals its neighbours "
            "too, flagged ones aside. Revealing a mine ends the game; the first cell you reveal and its neighbours are "
            f"safe. You win when every cell without a mine is revealed, within {self.max_turns} moves. Flags are "
            "notes: flagging a cell again takes the flag away. Rows and columns count from 0 at the top left. Think as "
            r"you like, then answer with \boxed{reveal row col} or \boxed{flag row col}."
        )

    def request(self) -> str:
        return (
            f"{self.board()}\n{len(self.shown)} of {self.rows * self.cols - self.num_mines} safe cells are revealed. "
            rf"Move {self.turn + 1} of {self.max_turns}: \boxed{{reveal row col}} or \boxed{{flag row col}}."
        )

    def board(self) -> str:
        """The board as the player sees it: ``.`` hidden, ``F`` flagged, digits revealed."""
        n = self.cols
        cells = [" ."] * (self.rows * n)
        for k in self.flags:
            cells[k] = " F"
        for k in self.shown:
            cells[k] = f" {self.count(k)}"
        lines = ["    " + " ".join([f"{c:2d}" for c in range(n)])]
        lines += [f"{r:2d}  " + " ".join(cells[r * n : (r + 1) * n]) for r in range(self.rows)]
        return "\n".join(lines)

    def format_hint(self) -> str:
        return r"\boxed{reveal row col} or \boxed{flag row col}"

    def parse(self, content: str) -> Move | None:
        found = _MOVE.fullmatch(content)
        return (found[1].lower(), int(found[2]), int(found[3])) if found else None

    def play(self, move: Move) -> Outcome:
        what, r, c = move
        if r >= self.rows or c >= self.cols:
            return Outcome(f"Row {r}, column {c} is not on the board; that move is lost.", legal=False)
        cell = r * self.cols + c
        if cell in self.shown:
            return Outcome(f"Row {r}, column {c} is revealed already; that move is lost.", legal=False)
        if what == "flag":
            if cell in self.flags:
                self.flags.remove(cell)
                return Outcome(f"The flag on row {r}, column {c} is gone.")
            self.flags.append(cell)
            return Outcome(f"Row {r}, column {c} is flagged.")
        if cell in self.flags:
            return Outcome(f"Row {r}, column {c} is flagged; take the flag away first. That move is lost.", legal=False)
        if not self.mines:
            safe = {cell, *self.neighbours(cell)}
            self.mines = sorted(
                self.rng.sample([k for k in range(self.rows * self.cols) if k not in safe], self.num_mines)
            )
        if cell in self.mines:
            return Outcome(f"Row {r}, column {c} holds a mine. The game is over.", over=True)
        new = self._reveal(cell)
        safe_cells = self.rows * self.cols - self.num_mines
        won = len(self.shown) == safe_cells
        text = f"Row {r}, column {c} is safe; {new} cell{'s' if new > 1 else ''} revealed."
        return Outcome(f"{text} Every safe cell is revealed." if won else text, reward=new / safe_cells, success=won)

    def neighbours(self, cell: int) -> list[int]:
        r, c = divmod(cell, self.cols)
        return [
            y * self.cols + x
            for y in range(max(0, r - 1), min(self.rows, r + 2))
            for x in range(max(0, c - 1), min(self.cols, c + 2))
            if (y, x) != (r, c)
        ]

    def count(self, cell: int) -> int:
        """Mines around a cell."""
        return sum(k in self.mines for k in self.neighbours(cell))

    def _reveal(self, cell: int) -> int:
        """Reveals a cell, and around zeros all that touches them but flagged cells; returns how many are new."""
        seen, flags, queue = set(self.shown), set(self.flags), [cell]
        before = len(seen)
        while queue:
            k = queue.pop()
            if k in seen:
                continue
            seen.add(k)
            if self.count(k) == 0:
                queue += [n for n in self.neighbours(k) if n not in seen and n not in flags]
        self.shown = sorted(seen)
        return len(seen) - before

    def sample_move(self) -> str:
        hidden = sorted(set(range(self.rows * self.cols)) - set(self.shown) - set(self.flags))
        cell = self.action_rng.choice(hidden or [0])
        return f"reveal {cell // self.cols} {cell % self.cols}"


def _check_size(rows: int, cols: int, num_mines: int) -> None:
    # The safe zone of a first reveal in the middle takes up to nine cells.
    most = rows * cols - min(rows, 3) * min(cols, 3)
    if num_mines > most:
        raise ValueError(
            f"a {rows}x{cols} board holds at most {most} mines beside the safe first reveal, got num_mines={num_mines}"
        )
