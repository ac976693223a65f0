"""Find a hidden word from the marks of each guess."""

from __future__ import annotations

import re
from collections import Counter

from gem_core.envs.game_env.word_lists import is_word, words
from gem_core.envs.text_game import Outcome, TextGame, check_flag, check_range

_WORD = re.compile(r"[A-Za-z]+(?:\s+[A-Za-z]+)*")


class WordleEnv(TextGame[str]):
    """Rewards: 0.5 over the length for each place first marked G, and 0.5 for the whole word.

    Args:
        word_length: Letters, 3 to 10; None draws 3 to 5 at each reset.
        only_real_words: A guess must be a word of the list.
        max_turns: Guesses allowed; None = 5 a letter.
    """

    state_fields = ("word_length", "word", "green", "marks")

    def __init__(self, word_length: int | None = 5, only_real_words: bool = True, max_turns: int | None = 20) -> None:
        super().__init__(max_turns)
        check_range(3, 10, word_length=word_length)
        check_flag(only_real_words=only_real_words)
        self._fixed = (word_length, max_turns)
        self.only_real_words = only_real_words
        self.word_length = 0
        self.word = ""
        #: Places found so far, and each guess with its marks.
        self.green: list[int] = []
        self.marks: list[list[str]] = []

    def deal(self) -> None:
        length, turns = self._fixed
        self.word_length = length or self.rng.randint(3, 5)
        self.max_turns = turns or 5 * self.word_length
        self.word = self.rng.choice(words(self.word_length))
        self.green, self.marks = [], []

    def rules(self) -> str:
        real = " Guesses must be English words." if self.only_real_words else ""
        return (
            f"An English word of {self.word_length} letters is hidden. Each guess is marked letter by letter: G, the "
            "letter stands in this place; Y, it occurs in another place; X, it does not occur (a letter is marked Y "
            f"only as often as it remains).{real} You have {self.max_turns} guesses. Think as you like, then give each "
            rf"guess as {self.format_hint()}."
        )

    def request(self) -> str:
        board = "".join(f"{' '.join(guess.upper())}\n{' '.join(marks)}\n" for guess, marks in self.marks)
        return f"{board}Guess {self.turn + 1} of {self.max_turns}: enter a word as {self.format_hint()}."

    def format_hint(self) -> str:
        return r"\boxed{word}"

    def parse(self, content: str) -> str | None:
        return "".join(content.split()).lower() if _WORD.fullmatch(content) else None  # spelt out counts too

    def play(self, move: str) -> Outcome:
        if len(move) != self.word_length:
            text = f"That guess has {len(move)} letters, not {self.word_length}; it is lost."
            return Outcome(text, legal=False)
        shown = move.upper()
        if any(move == guess for guess, _ in self.marks):
            return Outcome(f"{shown} was guessed before; that guess is lost.", legal=False)
        if self.only_real_words and not is_word(move):
            return Outcome(f"{shown} is not in the word list; that guess is lost.", legal=False)
        marks = mark(self.word, move)
        self.marks.append([move, marks])
        new = [i for i, m in enumerate(marks) if m == "G" and i not in self.green]
        self.green += new
        reward = 0.5 * len(new) / self.word_length
        if move == self.word:
            return Outcome(f"{shown} is the word, found in {self.turn} guesses.", reward=reward + 0.5, success=True)
        return Outcome(f"{shown} is marked {marks}.", reward=reward)

    def sample_move(self) -> str:
        return self.action_rng.choice(words(self.word_length))


def mark(word: str, guess: str) -> str:
    """G, Y and X for each letter of ``guess``; a letter is Y only as often as the word has it besides its G's."""
    left = Counter(w for w, g in zip(word, guess, strict=True) if w != g)
    out = []
    for w, g in zip(word, guess, strict=True):
        if w == g:
            out.append("G")
        elif left[g] > 0:
            left[g] -= 1
            out.append("Y")
        else:
            out.append("X")
    return "".join(out)
