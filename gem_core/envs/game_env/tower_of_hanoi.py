"""Move a tower of disks from A to C."""

from __future__ import annotations

import re

from gem_core.envs.text_game import Outcome, TextGame, check_range

_MOVE = re.compile(r"([ABCabc])(?:[\s,]+|\s*->\s*|)([ABCabc])")
_SIZES = ((3, 10), (4, 20), (5, 35))
_SHOWN = tuple(map(str, range(21)))


class TowerofHanoiEnv(TextGame[tuple[str, str]]):
    """Rewards: 1.0 when solved; on the last turn, the share of disks on C.

    Args:
        num_disks: Disks; None draws disks and turns at each reset.
        max_turns: Moves allowed; the shortest solution takes ``2 ** num_disks - 1``.
    """

    state_fields = ("num_disks", "towers")

    def __init__(self, num_disks: int | None = 3, max_turns: int | None = 100) -> None:
        super().__init__(max_turns)
        check_range(1, 20, num_disks=num_disks)
        self._fixed = (num_disks, max_turns)
        self.num_disks = 0
        #: From the bottom up; a larger number is a larger disk.
        self.towers: dict[str, list[int]] = {}

    def deal(self) -> None:
        self.num_disks = self._fixed[0] or self.rng.choice(_SIZES)[0]
        self.max_turns = self._fixed[1] or dict(_SIZES).get(self.num_disks, 2**self.num_disks + 3)
        self.towers = {"A": list(range(self.num_disks, 0, -1)), "B": [], "C": []}

    def rules(self) -> str:
        return (
            f"There are three towers, A, B and C, and {self.num_disks} disks on A, the largest (number "
            f"{self.num_disks}) at the bottom. A move takes the top disk of one tower to another, never onto a smaller "
            f"disk. Bring all disks to C within {self.max_turns} moves. Think as you like, then answer with "
            r"\boxed{from to}, for example \boxed{A C}."
        )

    def request(self) -> str:
        a, b, c = [" ".join([_SHOWN[disk] for disk in disks]) or "-" for disks in self.towers.values()]
        return f"A: {a}\nB: {b}\nC: {c}\nMove {self.turn + 1} of {self.max_turns}: " + r"enter \boxed{from to}."

    def format_hint(self) -> str:
        return r"\boxed{from to}"

    def parse(self, content: str) -> tuple[str, str] | None:
        found = _MOVE.fullmatch(content)
        return (found[1].upper(), found[2].upper()) if found else None

    def play(self, move: tuple[str, str]) -> Outcome:
        source, target = move
        if source == target:
            return Outcome(f"A move from {source} to itself moves nothing; that move is lost.", legal=False)
        if not self.towers[source]:
            return Outcome(f"Tower {source} is empty; that move is lost.", legal=False)
        disk = self.towers[source][-1]
        if self.towers[target] and self.towers[target][-1] < disk:
            text = f"Disk {disk} is larger than the top of {target}; that move is lost."
            return Outcome(text, legal=False)
        self.towers[target].append(self.towers[source].pop())
        text = f"Disk {disk} went from {source} to {target}."
        if len(self.towers["C"]) == self.num_disks:
            return Outcome(f"{text} All disks are on C.", reward=1.0, success=True)
        return Outcome(text)

    def soft_reward(self, outcome: Outcome) -> float:
        return len(self.towers["C"]) / self.num_disks

    def sample_move(self) -> str:
        return " ".join(self.action_rng.sample("ABC", 2))
