"""Guess a hidden number from "higher" and "lower"."""

from __future__ import annotations

import re

from gem_core.envs.text_game import Outcome, TextGame, check_positive

_INTEGER = re.compile(r"[+-]?\d{1,18}")


class GuessTheNumberEnv(TextGame[int]):
    """Rewards: 1.0 for the number; a legal wrong guess on the last turn earns ``1 - distance / (max - min)``.

    Args:
        min_number: Smallest possible number; None draws the range at each reset.
        max_number: Largest possible number.
        max_turns: Guesses allowed; None draws them at each reset: as many as bisection can need, and up to three more.
    """

    state_fields = ("low", "high", "target", "last_guess")

    def __init__(self, min_number: int | None = 1, max_number: int | None = 20, max_turns: int | None = 10) -> None:
        super().__init__(max_turns)
        if (min_number is None) != (max_number is None):
            raise ValueError(f"give both of min_number={min_number!r} and max_number={max_number!r}, or neither")
        if min_number is not None and max_number is not None and min_number >= max_number:
            raise ValueError(f"min_number={min_number} must be below max_number={max_number}")
        check_positive(max_turns=max_turns)
        self._fixed = (min_number, max_number, max_turns)
        self.low = self.high = self.target = self.last_guess = 0

    def deal(self) -> None:
        low, high, turns = self._fixed
        self.low = self.rng.randint(1, 10) if low is None else low
        self.high = self.low + self.rng.choice((9, 19, 29, 49)) if high is None else high
        # Bisection of n numbers needs at most n.bit_length() guesses.
        self.max_turns = turns or (self.high - self.low + 1).bit_length() + self.rng.randint(0, 3)
        self.target = self.last_guess = self.rng.randint(self.low, self.high)

    def rules(self) -> str:
        return (
            f"A number between {self.low} and {self.high} (both included) is hidden. Find it in at most "
            f"{self.max_turns} guesses; after each guess you learn whether the number is higher or lower. "
            f"Think as you like, then give each guess as {self.format_hint()}."
        )

    def request(self) -> str:
        return f"Guess {self.turn + 1} of {self.max_turns}: enter a number as {self.format_hint()}."

    def format_hint(self) -> str:
        return r"\boxed{number}"

    def parse(self, content: str) -> int | None:
        return int(content) if _INTEGER.fullmatch(content) else None

    def play(self, move: int) -> Outcome:
        if not self.low <= move <= self.high:
            text = f"{move} is outside {self.low} to {self.high}; that guess is lost."
            return Outcome(text, legal=False)
        self.last_guess = move
        if move == self.target:
            return Outcome(f"{move} is right, found in {self.turn} guesses.", reward=1.0, success=True)
        return Outcome(f"The number is {'higher' if move < self.target else 'lower'} than {move}.")

    def soft_reward(self, outcome: Outcome) -> float:
        if not outcome.legal:
            return 0.0
        return 1.0 - abs(self.last_guess - self.target) / (self.high - self.low)

    def sample_move(self) -> str:
        return str(self.action_rng.randint(self.low, self.high))
