"""Find a hidden word letter by letter."""

from __future__ import annotations

import re

from gem_core.envs.game_env.word_lists import words
from gem_core.envs.text_game import Outcome, TextGame, check_flag, check_range

_WORD = re.compile(r"[A-Za-z]+")
_SIZES = ((3, 10), (5, 15), (7, 20))


class HangmanEnv(TextGame[str]):
    """Rewards: newly shown places over the length, times 0.5; the whole word: 0.5, and 0.5 times the share that was
    hidden still. Showing the last letter ends the game with the remaining 0.5.

    Args:
        word_length: Letters, 3 to 10; None draws length and turns at each reset.
        hardcore: Hide rarer words too; None draws this at each reset.
        max_turns: Guesses allowed.
    """

    state_fields = ("word", "guessed")

    def __init__(self, word_length: int | None = 5, hardcore: bool | None = False, max_turns: int | None = 20) -> None:
        super().__init__(max_turns)
        check_range(3, 10, word_length=word_length)
        if hardcore is not None:
            check_flag(hardcore=hardcore)
        self._fixed = (word_length, max_turns)
        self._hardcore = hardcore
        self.word = ""
        self.guessed: list[str] = []

    def deal(self) -> None:
        length = self._fixed[0] or self.rng.choice(_SIZES)[0]
        self.max_turns = self._fixed[1] or dict(_SIZES).get(length, 3 * length)
        rare = self.rng.random() < 0.5 if self._hardcore is None else self._hardcore
        self.word = self.rng.choice(words(length, common=not rare))
        self.guessed = []

    def rules(self) -> str:
        return (
            f"An English word of {len(self.word)} letters is hidden. Guess a letter, and every place where it stands "
            "is shown; or guess the whole word. You have "
            f"{self.max_turns} guesses. Think as you like, then give each guess as {self.format_hint()}."
        )

    def request(self) -> str:
        tried = f" Letters tried: {' '.join(sorted(self.guessed)).upper()}." if self.guessed else ""
        return (
            f"{self.pattern()}{tried}\nGuess {self.turn + 1} of {self.max_turns}: enter a letter or the word as "
            r"\boxed{...}."
        )

    def pattern(self) -> str:
        """The word with ``_`` for hidden letters, separated by spaces."""
        return " ".join(c.upper() if c in self.guessed else "_" for c in self.word)

    def format_hint(self) -> str:
        return r"\boxed{letter} or \boxed{word}"

    def parse(self, content: str) -> str | None:
        return content.lower() if _WORD.fullmatch(content) else None

    def play(self, move: str) -> Outcome:
        hidden = sum(c not in self.guessed for c in self.word)
        size = len(self.word)
        if len(move) > 1:
            if move == self.word:
                text = f"{move.upper()} is the word, found in {self.turn} guesses."
                return Outcome(text, reward=0.5 + 0.5 * hidden / size, success=True)
            if len(move) != size:
                return Outcome(f"That guess has {len(move)} letters, not {size}; it is lost.", legal=False)
            return Outcome(f"{move.upper()} is not the word.")
        if move in self.guessed:
            return Outcome(f"{move.upper()} was tried before; that guess is lost.", legal=False)
        self.guessed.append(move)
        new = self.word.count(move)
        if not new:
            return Outcome(f"There is no {move.upper()} in the word.")
        reward = 0.5 * new / size
        if new == hidden:
            text = f"{move.upper()} completes the word {self.word.upper()}, found in {self.turn} guesses."
            return Outcome(text, reward=reward + 0.5, success=True)
        return Outcome(f"{move.upper()} stands in {new} place{'s' if new > 1 else ''}.", reward=reward)

    def sample_move(self) -> str:
        left = [c for c in "abcdefghijklmnopqrstuvwxyz" if c not in self.guessed]
        return self.action_rng.choice(left or ["a"])
