"""Find a code of digits from counts of exact and misplaced ones."""

from __future__ import annotations

import re
from collections import Counter

from gem_core.envs.text_game import Outcome, TextGame, check_flag, check_range

_DIGITS = re.compile(r"[0-9]{1,18}(?:[\s,]+[0-9]{1,18})*")
_SPACE = re.compile(r"[\s,]+")

#: (code_length, num_numbers, max_turns) that the random variant draws from.
_SIZES = ((2, 4, 10), (4, 6, 20), (4, 8, 30))


class MastermindEnv(TextGame[list[int]]):
    """Reward of a guess: how much it betters the best number of exact digits so far, over the code's length.

    Args:
        code_length: Digits in the code; None draws length, numbers and turns at each reset.
        num_numbers: Digits run from 1 to this.
        duplicate_numbers: The code may repeat a digit.
        max_turns: Guesses allowed.
    """

    state_fields = ("code_length", "num_numbers", "code", "best", "guesses")

    def __init__(
        self,
        code_length: int | None = 4,
        num_numbers: int | None = 6,
        duplicate_numbers: bool = False,
        max_turns: int | None = 20,
    ) -> None:
        super().__init__(max_turns)
        check_range(1, 26, code_length=code_length)
        check_range(1, 999, num_numbers=num_numbers)
        check_flag(duplicate_numbers=duplicate_numbers)
        self._fixed = (code_length, num_numbers, max_turns)
        self.duplicate_numbers = duplicate_numbers
        if code_length and num_numbers and not duplicate_numbers and code_length > num_numbers:
            raise ValueError(
                f"code_length={code_length} without duplicates needs num_numbers of at least that, got {num_numbers}"
            )
        self.code_length = self.num_numbers = self.best = 0
        self.code: list[int] = []
        self.guesses: list[list[int]] = []

    def deal(self) -> None:
        length, numbers, turns = self._fixed
        if not (length and numbers and turns):
            sizes = [s for s in _SIZES if length in (None, s[0]) and numbers in (None, s[1])]
            drawn = self.rng.choice(sizes or _SIZES)
            numbers = numbers or (drawn[1] if self.duplicate_numbers else max(drawn[1], length or 0))
            length = length or (drawn[0] if self.duplicate_numbers else min(drawn[0], numbers))
            turns = turns or drawn[2]
        self.code_length, self.num_numbers, self.max_turns = length, numbers, turns
        digits = range(1, self.num_numbers + 1)
        if self.duplicate_numbers:
            self.code = self.rng.choices(digits, k=self.code_length)
        else:
            self.code = self.rng.sample(digits, self.code_length)
        self.best, self.guesses = 0, []

    def rules(self) -> str:
        repeats = "may repeat" if self.duplicate_numbers else "are all different"
        return (
            f"A code of {self.code_length} digits from 1 to {self.num_numbers} is hidden; its digits {repeats}. After "
            "each guess you learn how many digits are exact (right digit, right place) and how many are misplaced "
            "(right digit, wrong place), each digit of the code counted once. A guess made before is lost. You have "
            f"{self.max_turns} guesses. Think as you like, then give each guess as {self.format_hint()}."
        )

    def request(self) -> str:
        return f"Guess {self.turn + 1} of {self.max_turns}: enter {self.code_length} digits as {self.format_hint()}."

    def format_hint(self) -> str:
        return rf"\boxed{{{' '.join('abcdefghijklmnopqrstuvwxyz'[: self.code_length or 4])}}}"

    def parse(self, content: str) -> list[int] | None:
        return [int(d) for d in _SPACE.split(content)] if _DIGITS.fullmatch(content) else None

    def play(self, move: list[int]) -> Outcome:
        if len(move) != self.code_length:
            text = f"That guess has {len(move)} digits, not {self.code_length}; it is lost."
            return Outcome(text, legal=False)
        shown = " ".join(map(str, move))
        if any(not 1 <= d <= self.num_numbers for d in move):
            return Outcome(f"{shown} has a digit outside 1 to {self.num_numbers}; that guess is lost.", legal=False)
        if move in self.guesses:
            return Outcome(f"{shown} was guessed before; that guess is lost.", legal=False)
        self.guesses.append(move)
        exact, misplaced = score(self.code, move)
        reward = max(0, exact - self.best) / self.code_length
        self.best = max(self.best, exact)
        if exact == self.code_length:
            return Outcome(f"{shown} is the code, found in {self.turn} guesses.", reward=reward, success=True)
        return Outcome(f"{shown}: {exact} exact, {misplaced} misplaced.", reward=reward)

    def sample_move(self) -> str:
        digits = range(1, self.num_numbers + 1)
        if self.duplicate_numbers:
            return " ".join(map(str, self.action_rng.choices(digits, k=self.code_length)))
        return " ".join(map(str, self.action_rng.sample(digits, self.code_length)))


def score(code: list[int], guess: list[int]) -> tuple[int, int]:
    """``(exact, misplaced)``; each digit of the code is counted once."""
    exact = sum(c == g for c, g in zip(code, guess, strict=True))
    common = sum((Counter(code) & Counter(guess)).values())
    return exact, common - exact
