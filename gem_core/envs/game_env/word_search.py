"""Word search: words hidden across and down in a square of letters."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from functools import cache

from gem_core.envs.text_game import Outcome, TextGame, check_positive

_MOVE = re.compile(r"([0-9]{1,9})[\s,]+([0-9]{1,9})[\s,]+([0-9]{1,9})[\s,]+([0-9]{1,9})")
_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_LENGTHS = range(3, 13)
_MOST_WORDS = 100
_WORD_COUNTS = (3, 4, 5, 6, 7)  # of the -random id
_TURNS_PER_WORD = 4
_DRAWS = 40  # random places tried for a word before all are


@cache
def vocabulary(hard: bool) -> tuple[str, ...]:
    """The words that can be hidden, in capitals: those of 3 to 12 letters."""
    from gem_core.envs.game_env import word_lists  # a long list, only where this game is played

    return tuple(word.upper() for word in word_lists.vocabulary(hard) if len(word) in _LENGTHS)


def hide_words(rng: random.Random, words: Sequence[str]) -> tuple[int, str, list[list[int]]]:
    """Hides words in a square 1.5 times as wide as the longest (wider for many words), the rest random letters.

    About half of the words cross an earlier one where they can.

    Args:
        rng: The generator.
        words: Words in capitals.

    Returns:
        The side, the letters row by row, and ``[row, column, down]`` of each word.
    """
    order = sorted(range(len(words)), key=lambda i: -len(words[i]))
    side = max(round(1.5 * len(words[order[0]])), math.isqrt(3 * sum(map(len, words)) // 2))
    while True:
        cells = [""] * (side * side)
        places: list[list[int]] = [[] for _ in words]
        done: list[int] = []
        for i in order:
            word = words[i]
            place = _crossing(rng, cells, side, word, words, places, done) if done and rng.random() < 0.5 else None
            place = place or _anywhere(rng, cells, side, word)
            if place is None:
                break
            places[i] = place
            done.append(i)
            start, step = _span(place, side)
            cells[start : start + step * len(word) : step] = word
        else:
            fill = rng.choices(_ALPHABET, k=len(cells))
            return side, "".join(a or b for a, b in zip(cells, fill, strict=True)), places
        side += 1


def _span(place: Sequence[int], side: int) -> tuple[int, int]:
    row, col, down = place
    return row * side + col, side if down else 1


def _fits(cells: list[str], side: int, word: str, place: Sequence[int]) -> bool:
    row, col, down = place
    if row < 0 or col < 0 or (row if down else col) + len(word) > side:
        return False
    start, step = _span(place, side)
    there = cells[start : start + step * len(word) : step]
    return not any(there) or all(not a or a == b for a, b in zip(there, word, strict=True))


def _crossing(
    rng: random.Random,
    cells: list[str],
    side: int,
    word: str,
    words: Sequence[str],
    places: list[list[int]],
    done: list[int],
) -> list[int] | None:
    other = done[int(rng.random() * len(done))]
    row, col, down = places[other]
    found = []
    for j, letter in enumerate(words[other]):
        i = word.find(letter)
        if i >= 0:
            place = [row + j, col - i, 0] if down else [row - i, col + j, 1]
            if _fits(cells, side, word, place):
                found.append(place)
    return found[int(rng.random() * len(found))] if found else None


def _anywhere(rng: random.Random, cells: list[str], side: int, word: str) -> list[int] | None:
    draw, room = rng.random, side - len(word) + 1
    for _ in range(_DRAWS):
        down = int(draw() * 2)
        along, across = int(draw() * room), int(draw() * side)
        place = [along, across, 1] if down else [across, along, 0]
        if _fits(cells, side, word, place):
            return place
    every = [[r, c, down] for down in (0, 1) for r in range(side) for c in range(side)]
    fitting = [place for place in every if _fits(cells, side, word, place)]
    return rng.choice(fitting) if fitting else None


class WordSearchEnv(TextGame[tuple[int, int, int, int]]):
    """Rewards: each hidden word found earns 1 / words; anything else 0.0.

    As in GEM the words are not named, only their number. A guess is judged by the letters it covers, read across or
    down from either end: where a hidden word happens to stand a second time, that place counts as well. A vocabulary
    word that was not hidden does not count.

    Args:
        hardcore: True hides words of the hard vocabulary, False of the common one; None draws at each reset.
        max_turns: Turns allowed; None gives 4 a word.
        num_words: Words hidden; None draws 3 to 7 at each reset.
        show_words: Name the words to find, which makes the game much easier.

    Raises:
        ValueError: more than 100 words.
    """

    state_fields = ("hardcore", "side", "letters", "words", "places", "found", "marked", "guesses")

    def __init__(
        self,
        hardcore: bool | None = False,
        max_turns: int | None = 20,
        num_words: int | None = 5,
        show_words: bool = False,
    ) -> None:
        super().__init__(max_turns)
        check_positive(num_words=num_words)
        if hardcore not in (True, False, None):
            raise ValueError(f"hardcore must be True, False or None (drawn at each reset), got {hardcore!r}")
        if num_words is not None and num_words > _MOST_WORDS:
            raise ValueError(f"num_words={num_words} must be at most {_MOST_WORDS}")
        self._fixed = (hardcore, max_turns, num_words)
        self._show_words = show_words
        self.hardcore = False
        self.side = 0
        #: The letters, row by row.
        self.letters = ""
        self.words: list[str] = []
        #: ``[row, column, down]`` of each word where it was hidden.
        self.places: list[list[int]] = []
        self.found: list[str] = []
        #: Cells (row * side + column) of the words found.
        self.marked: list[int] = []
        #: ``[row, column, row, column]`` of earlier guesses, the end nearer the top left first.
        self.guesses: list[list[int]] = []

    def deal(self) -> None:
        hard, turns, count = self._fixed
        self.hardcore = self.rng.random() < 0.5 if hard is None else bool(hard)
        count = count or self.rng.choice(_WORD_COUNTS)
        self.max_turns = turns or _TURNS_PER_WORD * count
        self.words = self.rng.sample(vocabulary(self.hardcore), count)
        self.side, self.letters, self.places = hide_words(self.rng, self.words)
        self.found, self.marked, self.guesses = [], [], []

    def rules(self) -> str:
        n = len(self.words)
        named = f" They are: {', '.join(self.words)}." if self._show_words else ""
        return (
            f"This is a word search. {n} English word{'s are' if n > 1 else ' is'} hidden among the {self.side} by "
            f"{self.side} letters, written left to right or top to bottom; words may cross.{named} Each turn, give the "
            f"row and column of a word's first letter and of its last, all counted from 0 at the top left. Words found "
            f"are shown in square brackets. The same guess twice costs a turn. You have {self.max_turns} turns. Think "
            f"as you like, then answer with {self.format_hint()}, for example \\boxed{{2 1 2 5}} for the five letters "
            f"in row 2 from column 1 to column 5."
        )

    def request(self) -> str:
        found = f": {', '.join(self.found)}" if self.found else ""
        return (
            f"{self.render()}\nFound {len(self.found)} of {len(self.words)} words{found}. Turn {self.turn + 1} of "
            f"{self.max_turns}: answer with {self.format_hint()}."
        )

    def render(self) -> str:
        """The letters with row and column numbers, those of words found in brackets."""
        n, letters, marked = self.side, self.letters, frozenset(self.marked)
        lines = [_header(n)]
        for r in range(n):
            start = r * n
            if marked.isdisjoint(range(start, start + n)):
                lines.append(f"{r:>2}  {'  '.join(letters[start : start + n])}")
            else:
                row = (f"[{letters[c]}]" if c in marked else f" {letters[c]} " for c in range(start, start + n))
                lines.append(f"{r:>2} {''.join(row)}".rstrip())
        return "\n".join(lines)

    def format_hint(self) -> str:
        return r"\boxed{row column row column}"

    def parse(self, content: str) -> tuple[int, int, int, int] | None:
        match = _MOVE.fullmatch(content)
        return (int(match[1]), int(match[2]), int(match[3]), int(match[4])) if match else None

    def play(self, move: tuple[int, int, int, int]) -> Outcome:
        if max(move) >= self.side:
            return Outcome(f"Rows and columns go from 0 to {self.side - 1}.", legal=False)
        r0, c0, r1, c1 = move
        if r0 != r1 and c0 != c1:
            return Outcome("A word lies in one row or one column; these two cells share neither.", legal=False)
        guess = [*min((r0, c0), (r1, c1)), *max((r0, c0), (r1, c1))]
        if guess in self.guesses:
            return Outcome("You have made that guess before.", legal=False)
        self.guesses.append(guess)
        n = self.side
        step = 1 if r0 == r1 else n
        cells = range(guess[0] * n + guess[1], guess[2] * n + guess[3] + 1, step)
        text = "".join(self.letters[c] for c in cells)
        if text in self.found:
            return Outcome(f"{text} has been found before.", legal=False)
        if text not in self.words:
            return Outcome(f"{text} is none of the hidden words.")
        self.found.append(text)
        self.marked.extend(c for c in cells if c not in self.marked)
        done = len(self.found) == len(self.words)
        seen = f"{text} is one of the hidden words." + (" That was the last one." if done else "")
        return Outcome(seen, reward=1 / len(self.words), success=done)

    def sample_move(self) -> str:
        rng, n = self.action_rng, self.side
        length = rng.randint(min(3, n), n)
        along, across = rng.randrange(n - length + 1), rng.randrange(n)
        if rng.random() < 0.5:
            return f"{along} {across} {along + length - 1} {across}"
        return f"{across} {along} {across} {along + length - 1}"


@cache
def _header(side: int) -> str:
    return "   " + "".join(f"{c:>2} " for c in range(side)).rstrip()
