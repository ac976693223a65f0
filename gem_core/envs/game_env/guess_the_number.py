"""Guess a hidden number from "higher" and "lower"."""

from __future__ import annotations

import math
import re

from gem_core.envs.text_game import Outcome, TextGame, check_range

#: int() refuses more digits than 4300.
_INTEGER = re.compile(r"[+-]?\d{1,4000}")
_FARTHEST = 10**15


class GuessTheNumberEnv(TextGame[int]):
    """Rewards: 1.0 for the number; a legal wrong guess on the last turn earns ``1 - distance / (max - min)``.

    Args:
        min_number: Smallest possible number; None draws the range at each reset.
        max_number: Largest possible number.
        max_turns: Guesses allowed; None = one more than the square root of the range, rounded up.
    """

    state_fields = ("low", "high", "target", "guesses")

    def __init__(self, min_number: int | None = 1, max_number: int | None = 20, max_turns: int | None = 20) -> None:
        super().__init__(max_turns)
        check_range(-_FARTHEST, _FARTHEST, min_number=min_number, max_number=max_number)
        if (min_number is None) != (max_number is None):
            raise ValueError(f"give both of min_number={min_number!r} and max_number={max_number!r}, or neither")
        if min_number is not None and max_number is not None and min_number >= max_number:
            raise ValueError(f"min_number={min_number} must be below max_number={max_number}")
        self._fixed = (min_number, max_number, max_turns)
        self.low = self.high = self.target = 0
        self.guesses: list[int] = []

    def deal(self) -> None:
        low, high, turns = self._fixed
        self.low = self.rng.randint(1, 10) if low is None else low
        self.high = self.low + self.rng.randint(5, 50) if high is None else high
        self.max_turns = turns or math.isqrt(self.high - self.low - 1) + 2
        self.target = self.rng.randint(self.low, self.high)
        self.guesses = []

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
            shown = move if abs(move) <= _FARTHEST else "That"
            return Outcome(f"{shown} is outside {self.low} to {self.high}; that guess is lost.", legal=False)
        if move == self.target:
            return Outcome(f"{move} is right, found in {self.turn} guesses.", reward=1.0, success=True)
        repeated = move in self.guesses
        self.guesses.append(move)
        # A repeated guess gets its hint again: it costs the turn, and on the last turn the soft reward.
        return Outcome(f"The number is {'higher' if move < self.target else 'lower'} than {move}.", legal=not repeated)

    def soft_reward(self, outcome: Outcome) -> float:
        if not outcome.legal:
            return 0.0
        return 1.0 - abs(self.guesses[-1] - self.target) / (self.high - self.low)

    def sample_move(self) -> str:
        return str(self.action_rng.randint(self.low, self.high))
