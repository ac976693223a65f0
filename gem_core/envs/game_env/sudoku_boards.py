"""Sudoku boards: filling, digging with exactly one solution kept, solving.

A board is a flat row-major list of ``n * n`` digits, 0 for an empty cell, ``n = box * box``. Sets of digits are bit
masks (bit ``d - 1`` for digit ``d``), which is what makes pure Python fast enough here.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from functools import cache

#: Clue counts that random digging reaches reliably, by board side. 9x9 puzzles with 17 to 21 clues exist, but only
#: long searches find them.
CLUE_RANGE = {4: (4, 15), 9: (22, 80)}

_MAX_NODES = 400  # of one fill before it starts over; few fills need more, and those can need a great many
_MAX_TRIES = 5000  # grids to dig; the hardest clue count of CLUE_RANGE takes about 50


@dataclass(frozen=True)
class _Layout:
    """Index tables of one board side."""

    n: int
    row: tuple[int, ...]
    col: tuple[int, ...]
    box: tuple[int, ...]
    #: For each cell, the other cells of its row, column and box.
    units: tuple[tuple[tuple[int, ...], ...], ...]
    #: For each mask, its single-bit parts.
    bits: tuple[tuple[int, ...], ...]


@cache
def _layout(n: int) -> _Layout:
    side = {4: 2, 9: 3}[n]
    cells = range(n * n)
    row = tuple(c // n for c in cells)
    col = tuple(c % n for c in cells)
    box = tuple(row[c] // side * side + col[c] // side for c in cells)
    units = tuple(
        tuple(tuple(o for o in cells if o != c and group[o] == group[c]) for group in (row, col, box)) for c in cells
    )
    bits = tuple(tuple(1 << d for d in range(n) if mask >> d & 1) for mask in range(1 << n))
    return _Layout(n, row, col, box, units, bits)


def solved_grid(rng: random.Random, n: int) -> list[int]:
    """A random full board: cells in reading order, random digits, backtracking, a new start when stuck for long."""
    lay = _layout(n)
    row_of, col_of, box_of, bits, draw = lay.row, lay.col, lay.box, lay.bits, rng.random
    full, size = (1 << n) - 1, n * n
    while True:
        rows, cols, boxes = [0] * n, [0] * n, [0] * n
        left, used = [0] * size, [0] * size  # digits still to try in a cell; the digit now in it
        left[0] = full
        cell = nodes = 0
        while nodes < _MAX_NODES:
            mask = left[cell]
            if not mask:
                cell -= 1
                bit = used[cell]
                rows[row_of[cell]] ^= bit
                cols[col_of[cell]] ^= bit
                boxes[box_of[cell]] ^= bit
                continue
            nodes += 1
            choices = bits[mask]
            bit = choices[int(draw() * len(choices))]
            left[cell] = mask ^ bit
            used[cell] = bit
            rows[row_of[cell]] |= bit
            cols[col_of[cell]] |= bit
            boxes[box_of[cell]] |= bit
            cell += 1
            if cell == size:
                return [b.bit_length() for b in used]
            left[cell] = full & ~(rows[row_of[cell]] | cols[col_of[cell]] | boxes[box_of[cell]])


def puzzle(rng: random.Random, n: int, clues: int) -> tuple[list[int], list[int]]:
    """Draws a puzzle with exactly ``clues`` given digits and exactly one solution.

    Returns:
        The puzzle and its solution.
    """
    for _ in range(_MAX_TRIES):
        solution = solved_grid(rng, n)
        board = _dig(rng, solution, n, clues)
        if board is not None:
            return board, solution
    raise RuntimeError(f"no {n}x{n} Sudoku with {clues} clues in {_MAX_TRIES} tries")  # not seen in CLUE_RANGE


def _dig(rng: random.Random, solution: list[int], n: int, clues: int) -> list[int] | None:
    """Empties cells while the solution stays the only one; None where the grid does not go down to ``clues``."""
    lay = _layout(n)
    row_of, col_of, box_of = lay.row, lay.col, lay.box
    full = (1 << n) - 1
    rows, cols, boxes = [full] * n, [full] * n, [full] * n  # the given digits of each unit
    board = solution[:]
    holes = n * n - clues
    doubtful = []
    order = list(range(n * n))
    rng.shuffle(order)
    # First pass: a cell whose digit follows from the other givens, because no other digit fits it (naked single) or
    # no other cell of a unit can take that digit (hidden single), may go without any search.
    for cell in order:
        if not holes:
            return board
        r, c, b = row_of[cell], col_of[cell], box_of[cell]
        bit = 1 << (board[cell] - 1)
        rows[r] ^= bit
        cols[c] ^= bit
        boxes[b] ^= bit
        if (rows[r] | cols[c] | boxes[b]) == full ^ bit or _is_hidden_single(lay, cell, bit, board, rows, cols, boxes):
            board[cell] = 0
            holes -= 1
        else:
            rows[r] |= bit
            cols[c] |= bit
            boxes[b] |= bit
            doubtful.append(cell)
    # Second pass: what needs a search.
    for cell in doubtful:
        if not holes:
            return board
        digit = board[cell]
        board[cell] = 0
        if has_other_solution(board, n, cell, digit):
            board[cell] = digit
        else:
            holes -= 1
    return None if holes else board


def _is_hidden_single(
    lay: _Layout, cell: int, bit: int, board: list[int], rows: list[int], cols: list[int], boxes: list[int]
) -> bool:
    """Whether, in some unit of ``cell``, no other empty cell can take the digit."""
    row_of, col_of, box_of = lay.row, lay.col, lay.box
    for unit in lay.units[cell]:
        for other in unit:
            if not board[other] and not (rows[row_of[other]] | cols[col_of[other]] | boxes[box_of[other]]) & bit:
                break
        else:
            return True
    return False


def has_other_solution(board: list[int], n: int, cell: int, digit: int) -> bool:
    """Whether ``board`` has a solution in which the empty ``cell`` is not ``digit``."""
    return bool(solve(board, n, limit=1, forbidden=(cell, digit)))


def solve(board: list[int], n: int, limit: int = 2, forbidden: tuple[int, int] | None = None) -> list[list[int]]:
    """Up to ``limit`` solutions, by depth-first search on the cell with the fewest candidates.

    Args:
        board: Flat digits, 0 for empty.
        n: The side, 4 or 9.
        limit: Stop after so many.
        forbidden: A cell and a digit that it must not take.
    """
    lay = _layout(n)
    row_of, col_of, box_of, bits = lay.row, lay.col, lay.box, lay.bits
    full = (1 << n) - 1
    rows, cols, boxes = [0] * n, [0] * n, [0] * n
    empty = []
    for cell, digit in enumerate(board):
        if digit:
            bit = 1 << (digit - 1)
            if (rows[row_of[cell]] | cols[col_of[cell]] | boxes[box_of[cell]]) & bit:
                return []
            rows[row_of[cell]] |= bit
            cols[col_of[cell]] |= bit
            boxes[box_of[cell]] |= bit
        else:
            empty.append(cell)
    banned_cell, banned_bit = (forbidden[0], 1 << (forbidden[1] - 1)) if forbidden else (-1, 0)
    work, found = board[:], []

    def search() -> bool:
        best, best_mask, fewest = -1, 0, n + 1
        for i, cell in enumerate(empty):
            mask = full & ~(rows[row_of[cell]] | cols[col_of[cell]] | boxes[box_of[cell]])
            if cell == banned_cell:
                mask &= ~banned_bit
            count = len(bits[mask])
            if count < fewest:
                best, best_mask, fewest = i, mask, count
                if count < 2:
                    break
        if best < 0:
            found.append(work[:])
            return len(found) >= limit
        cell = empty[best]
        empty[best] = empty[-1]
        empty.pop()
        r, c, b = row_of[cell], col_of[cell], box_of[cell]
        for bit in bits[best_mask]:
            rows[r] |= bit
            cols[c] |= bit
            boxes[b] |= bit
            work[cell] = bit.bit_length()
            if search():
                return True
            rows[r] ^= bit
            cols[c] ^= bit
            boxes[b] ^= bit
        empty.append(cell)
        empty[best], empty[-1] = empty[-1], empty[best]
        return False

    search()
    return found
