"""Tic-tac-toe for two agents who take turns."""

from __future__ import annotations

import random
import re
from functools import cache

from gem_core.core import Info
from gem_core.envs.text_game import boxed_contents
from gem_core.multiagent.multi_agent_env import MultiAgentEnv, MultiStep

_LINES = ((0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6))
_CELL = re.compile(r"[1-9]")
_FORM = r"\boxed{cell}"


class TicTacToeEnv(MultiAgentEnv):
    r"""``player_0`` (X) begins; a cell is chosen by its number, ``\boxed{5}``.

    Rewards: 1.0 for the winner and -1.0 for the loser, 0.0 for both in a draw. An action without a cell in a box
    loses the game (-1.0; 0.0 for the other). A taken cell costs the turn; after ``max_turns`` turns of both together
    the game is truncated as a draw.

    Args:
        max_turns: Turns of both agents together, at least 9.
    """

    turn_mode = "sequential"
    state_fields = ("board", "turn")

    def __init__(self, max_turns: int = 18) -> None:
        super().__init__(["player_0", "player_1"])
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 9:
            raise ValueError(f"max_turns must be an integer of at least 9, got {max_turns!r}")
        self.max_turns = max_turns
        self.board = "." * 9
        self.turn = 0

    def deal(self) -> None:
        self.board, self.turn = "." * 9, 0
        for agent in self.agents:
            self.tell(
                agent,
                f"Tic-tac-toe against one opponent. You play {self._mark(agent)}; X begins. Whoever first has three "
                "marks in a row, column or diagonal wins. The cells are numbered 1 to 9, left to right and top to "
                f"bottom. Think as you like, then give each move as {_FORM}.",
            )

    def _process_actions(self, actions: dict[str, str]) -> MultiStep:
        ((agent, action),) = actions.items()
        other = self.possible_agents[1 - self.possible_agents.index(agent)]
        self.turn += 1
        both = (agent, other)
        rewards, over, limit = dict.fromkeys(both, 0.0), False, False
        infos: dict[str, Info] = {agent: {"action_is_valid": True}, other: {}}
        cell = next((int(c) - 1 for c in boxed_contents(action) if _CELL.fullmatch(c)), None)
        if cell is None:
            over, rewards[agent] = True, -1.0
            infos[agent] = {"action_is_valid": False}
            self.tell(agent, f"No move of the form {_FORM} was found, so you lose.")
            self.tell(other, "Your opponent gave no valid move, so the game ends here.")
        elif self.board[cell] != ".":
            infos[agent] = {"action_is_valid": False}
            self.tell(agent, f"Cell {cell + 1} is taken; your turn is lost.")
            self.tell(other, f"Your opponent tried the taken cell {cell + 1} and lost the turn.")
        else:
            self.board = self.board[:cell] + self._mark(agent) + self.board[cell + 1 :]
            self.tell(agent, f"You took cell {cell + 1}.")
            self.tell(other, f"Your opponent took cell {cell + 1}.")
            if _won(self.board, self._mark(agent)):
                over, rewards[agent], rewards[other] = True, 1.0, -1.0
                self.tell(agent, "You win.")
                self.tell(other, "You lose.")
            elif "." not in self.board:
                over = True
                self.tell(both, "The board is full: a draw.")
        if not over and self.turn >= self.max_turns:
            limit = True
            self.tell(both, "The turns are used up: a draw.")
        if over or limit:
            self.tell(both, f"The final board:\n{self._drawn()}")
            for a in both:
                infos[a]["success"] = rewards[a] > 0
        return {}, rewards, dict.fromkeys(both, over), dict.fromkeys(both, limit), infos

    def _info(self, agent: str) -> Info:
        if agent not in self.acting_agents():
            return {}
        return {"suffix": f"The board:\n{self._drawn()}\nYou are {self._mark(agent)}. Give your move as {_FORM}."}

    def sample_random_action(self, agent: str | None = None, rng: random.Random | None = None) -> str:
        free = [i for i, mark in enumerate(self.board) if mark == "."]
        return f"\\boxed{{{(rng or self.action_rng).choice(free or [0]) + 1}}}"

    def scripted_action(self, agent: str, rng: random.Random | None = None) -> str:
        """A perfect move, drawn among the equally good ones."""
        best = _best_moves(self.board, self._mark(agent))
        return f"\\boxed{{{(rng or self.action_rng).choice(best) + 1}}}"

    def _mark(self, agent: str) -> str:
        return "XO"[self.possible_agents.index(agent)]

    def _drawn(self) -> str:
        cells = [str(i + 1) if mark == "." else mark for i, mark in enumerate(self.board)]
        return "\n".join(" ".join(cells[row : row + 3]) for row in (0, 3, 6))


def _won(board: str, mark: str) -> bool:
    return any(all(board[i] == mark for i in line) for line in _LINES)


@cache  # at most 3^9 boards
def _value(board: str, mark: str) -> int:
    """What the game is worth to ``mark``, who is to move: 1, 0 or -1."""
    other = "O" if mark == "X" else "X"
    if _won(board, other):
        return -1
    if "." not in board:
        return 0
    return max(-_value(board[:i] + mark + board[i + 1 :], other) for i in range(9) if board[i] == ".")


def _best_moves(board: str, mark: str) -> list[int]:
    other = "O" if mark == "X" else "X"
    values = {i: -_value(board[:i] + mark + board[i + 1 :], other) for i in range(9) if board[i] == "."}
    best = max(values.values())
    return [i for i, v in values.items() if v == best]
