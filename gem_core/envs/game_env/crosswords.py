"""Crosswords: a small grid of crossing words, a clue for each, one letter a turn."""

from __future__ import annotations

import random
import re
from functools import cache
from importlib import resources
from typing import NamedTuple

from gem_core.envs.text_game import Outcome, TextGame, check_positive

_MOVE = re.compile(r"([0-9]{1,9})[\s,]+([0-9]{1,9})[\s,]+([A-Za-z])")
_WORD_COUNTS = (2, 3, 4)  # of the -random id
_DRAWS = 60  # words tried for one place before the layout starts over
_STARTS = 12
_SHORTEST = 3

_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_HIDE = str.maketrans(_ALPHABET, "_" * 26)


@cache
def clue_table(hard: bool) -> dict[str, str]:
    """Word, in capitals -> clue, as they ship with the package."""
    name = f"crossword_clues_{'hard' if hard else 'easy'}.tsv"
    text = (resources.files("gem_core") / "data" / name).read_text(encoding="utf-8")
    pairs = (line.split("\t") for line in text.splitlines())
    return {word.upper(): clue for word, clue in pairs}


@cache
def _words(hard: bool) -> tuple[str, ...]:
    return tuple(clue_table(hard))


@cache
def _header(width: int) -> str:
    return "    " + " ".join(f"{c:>2}" for c in range(width))


class Placement(NamedTuple):
    """A word on the grid; ``row`` and ``col`` are those of its first letter."""

    row: int
    col: int
    down: bool
    word: str


# While words are laid out a cell is the int row * _STRIDE + col (either may be negative), and a word goes on by
# _STRIDE (down) or 1 (across).
_STRIDE = 1 << 20
_Cells = dict[int, str]
_Laid = tuple[str, int, int]  # word, first cell, step


def lay_out(rng: random.Random, words: tuple[str, ...], count: int, max_cells: int | None) -> list[Placement]:
    """Draws ``count`` of ``words`` and crosses them as a crossword does.

    Every word after the first crosses an earlier one, and letters touch only inside words. A word that crosses
    nothing is drawn again; where that leads nowhere the layout starts over, and after several such starts the words
    that cross nothing are set below the rest.

    Args:
        rng: The generator.
        words: What to draw from, at least ``count``.
        count: Words to place.
        max_cells: Where possible, no more letter cells than that; None = any number.

    Returns:
        Placements in reading order, the smallest row and column 0.
    """
    laid = None
    for start in range(_STARTS):
        laid = _lay_once(rng, words, count, max_cells, set_apart=start == _STARTS - 1)
        if laid is not None:
            break
    assert laid is not None  # the last start always ends
    top, left = _corner(laid)
    placements = []
    for word, cell, step in laid:
        row, col = _cell(cell)
        placements.append(Placement(row - top, col - left, step != 1, word))
    return sorted(placements)


def _lay_once(
    rng: random.Random, words: tuple[str, ...], count: int, max_cells: int | None, set_apart: bool
) -> list[_Laid] | None:
    draw = rng.random
    laid: list[_Laid] = []
    grid: _Cells = {}
    used: set[str] = set()
    for rest in range(count - 1, -1, -1):
        room = None if max_cells is None else max_cells - rest * _SHORTEST - len(grid)
        choice = None
        for attempt in range(2 * _DRAWS):
            word = words[int(draw() * len(words))]
            if word in used:
                continue
            # A crossing shares a cell. What does not fit max_cells is taken only where nothing else is found.
            if room is not None and attempt < _DRAWS and len(word) > room + bool(laid):
                continue
            if not laid:
                choice = (word, 0, _STRIDE if draw() < 0.5 else 1)
            else:
                choice = _cross(rng, grid, laid, word)
            if choice:
                break
        if choice is None:
            if not set_apart:
                return None
            shortest = min((w for w in words if w not in used), key=lambda w: (len(w), w))
            last_row = max((_cell(cell + step * (len(word) - 1))[0] for word, cell, step in laid), default=-2)
            choice = (shortest, (last_row + 2) * _STRIDE + _corner(laid)[1], 1)
        word, cell, step = choice
        laid.append(choice)
        used.add(word)
        for letter in word:
            grid[cell] = letter
            cell += step
    return laid


def _cell(key: int) -> tuple[int, int]:
    row = (key + _STRIDE // 2) // _STRIDE
    return row, key - row * _STRIDE


def _corner(laid: list[_Laid]) -> tuple[int, int]:
    """Smallest row and smallest column in use."""
    starts = [_cell(start) for _, start, _ in laid]
    return min((r for r, _ in starts), default=0), min((c for _, c in starts), default=0)


def _cross(rng: random.Random, grid: _Cells, laid: list[_Laid], word: str) -> _Laid | None:
    """A random place where ``word`` crosses an earlier one and touches nothing else; None where there is none."""
    places: list[_Laid] = []
    for other, cell, step in laid:
        across = 1 if step == _STRIDE else _STRIDE
        for letter in other:
            at = word.find(letter)
            while at >= 0:
                places.append((word, cell - at * across, across))
                at = word.find(letter, at + 1)
            cell += step
    while places:
        i = int(rng.random() * len(places))
        if _fits(grid, places[i]):
            return places[i]
        places[i] = places[-1]
        places.pop()
    return None


def _fits(grid: _Cells, place: _Laid) -> bool:
    """Whether the word's letters agree with the grid and touch no other word from the side or end on."""
    word, cell, step = place
    side = 1 if step == _STRIDE else _STRIDE
    if cell - step in grid or cell + step * len(word) in grid:
        return False
    was_filled = False
    for letter in word:
        there = grid.get(cell)
        if there is None:
            if cell + side in grid or cell - side in grid:
                return False
            was_filled = False
        elif there != letter or was_filled:
            return False  # two filled cells in a row belong to a word of the same direction
        else:
            was_filled = True
        cell += step
    return True


class CrosswordsEnv(TextGame[tuple[int, int, str]]):
    """Rewards: each right letter earns 1 / letter cells; a wrong one 0.0.

    The words are chosen so that there are no more letter cells than turns, where the words allow it.

    Args:
        hardcore: True takes the hard words and clues, False the easy ones; None draws at each reset.
        max_turns: Turns allowed; None draws 6 to 16 more than there are letter cells.
        num_words: Words in the grid; None draws 2 to 4 at each reset.

    Raises:
        ValueError: more words than the table has.
    """

    state_fields = ("hardcore", "num_words", "height", "width", "solution", "board", "clues")

    def __init__(self, hardcore: bool | None = False, max_turns: int | None = 100, num_words: int | None = 5) -> None:
        super().__init__(max_turns)
        check_positive(num_words=num_words)
        if hardcore not in (True, False, None):
            raise ValueError(f"hardcore must be True, False or None (drawn at each reset), got {hardcore!r}")
        if num_words is not None:
            most = min(len(clue_table(hard)) for hard in ((False, True) if hardcore is None else (bool(hardcore),)))
            if num_words > most:
                raise ValueError(f"num_words={num_words} is more than the {most} words of the clue table")
        self._fixed = (hardcore, max_turns, num_words)
        self.hardcore = False
        self.num_words = self.height = self.width = 0
        #: Row-major letters, "." outside the words.
        self.solution = ""
        #: The same with "_" for a letter still to be filled in.
        self.board = ""
        #: ``[number, "across" or "down", row, column, length, clue]`` for each word.
        self.clues: list[list[int | str]] = []

    def deal(self) -> None:
        hard, turns, count = self._fixed
        self.hardcore = self.rng.random() < 0.5 if hard is None else bool(hard)
        self.num_words = self.rng.choice(_WORD_COUNTS) if count is None else count
        placed = lay_out(self.rng, _words(self.hardcore), self.num_words, turns)
        self.height = max(p.row + (len(p.word) if p.down else 1) for p in placed)
        self.width = width = max(p.col + (1 if p.down else len(p.word)) for p in placed)
        cells = ["."] * (self.height * width)
        clues, numbers = clue_table(self.hardcore), dict[int, int]()
        self.clues = []
        for row, col, down, word in placed:
            start, step = row * width + col, width if down else 1
            cells[start : start + step * len(word) : step] = word
            number = numbers.setdefault(start, len(numbers) + 1)
            self.clues.append([number, "down" if down else "across", row, col, len(word), clues[word]])
        self.solution = "".join(cells)
        self.board = self.solution.translate(_HIDE)
        self.max_turns = turns or self.board.count("_") + self.rng.randint(6, 16)

    def rules(self) -> str:
        return (
            f"This is a crossword of {self.num_words} {'hard' if self.hardcore else 'easy'} word"
            f"{'s' if self.num_words > 1 else ''}. In the grid, _ is a letter to fill in and a dot is no part of any "
            f"word; where words cross they share a letter. Each turn fills one cell: name its row and column, both "
            f"counted from 0 at the top left, and the letter. A wrong letter is not written down but costs the turn. "
            f"You have {self.max_turns} turns. Think as you like, then answer with {self.format_hint()}, for example "
            r"\boxed{0 2 E} for an E in row 0, column 2."
        )

    def request(self) -> str:
        lines = [
            f"{number} {way}, {length} letters from row {row}, column {col}: {clue}"
            for number, way, row, col, length, clue in self.clues
        ]
        return (
            f"{self.render()}\nClues:\n" + "\n".join(lines) + f"\n{self.board.count('_')} letters are missing. "
            f"Turn {self.turn + 1} of {self.max_turns}: fill one as {self.format_hint()}."
        )

    def render(self) -> str:
        """The grid with row and column numbers."""
        w = self.width
        lines = [_header(w)]
        for r in range(self.height):
            lines.append(f"{r:>2}   " + "  ".join(self.board[r * w : r * w + w]))
        return "\n".join(lines)

    def format_hint(self) -> str:
        return r"\boxed{row column letter}"

    def parse(self, content: str) -> tuple[int, int, str] | None:
        match = _MOVE.fullmatch(content)
        return (int(match[1]), int(match[2]), match[3].upper()) if match else None

    def play(self, move: tuple[int, int, str]) -> Outcome:
        row, col, letter = move
        if row >= self.height or col >= self.width:
            text = f"Row {row}, column {col} is off the grid of {self.height} rows and {self.width} columns."
            return Outcome(text, legal=False)
        cell = row * self.width + col
        now = self.board[cell]
        if now == ".":
            return Outcome(f"Row {row}, column {col} is no part of any word.", legal=False)
        if now != "_":
            return Outcome(f"Row {row}, column {col} already holds {now}.", legal=False)
        if letter != self.solution[cell]:
            return Outcome(f"{letter} is not the letter of row {row}, column {col}.")
        self.board = self.board[:cell] + letter + self.board[cell + 1 :]
        done = self.board == self.solution
        text = f"Right: row {row}, column {col} is {letter}." + (" The crossword is complete." if done else "")
        total = len(self.solution) - self.solution.count(".")
        return Outcome(text, reward=1 / total, success=done)

    def sample_move(self) -> str:
        cell = self.action_rng.choice([c for c, sign in enumerate(self.board) if sign == "_"] or [0])
        row, col = divmod(cell, self.width or 1)
        return f"{row} {col} {self.action_rng.choice(_ALPHABET)}"
