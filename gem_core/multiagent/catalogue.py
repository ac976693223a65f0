"""The ids of the multi-agent games (``multi:``): one seat, with the others played by a named opponent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gem_core.core import Env
from gem_core.multiagent.multi_agent_env import MultiAgentEnv
from gem_core.registration import EnvSpec

_HERE = "gem_core.multiagent.catalogue"


def tic_tac_toe(seat: str = "random", opponent: str | Mapping[str, str] = "random", max_turns: int = 18) -> Env:
    """One seat of tic-tac-toe; ``seat="all"`` is the multi-agent environment itself."""
    from gem_core.multiagent.tic_tac_toe import TicTacToeEnv

    return _view(TicTacToeEnv(max_turns=max_turns), seat, opponent)


def rock_paper_scissors(seat: str = "random", opponent: str | Mapping[str, str] = "random", rounds: int = 5) -> Env:
    """One seat of rock, paper, scissors; ``seat="all"`` is the multi-agent environment itself."""
    from gem_core.multiagent.rock_paper_scissors import RockPaperScissorsEnv

    return _view(RockPaperScissorsEnv(rounds=rounds), seat, opponent)


def _view(game: MultiAgentEnv, seat: str, opponent: str | Mapping[str, str]) -> Env:
    from gem_core.multiagent.seat_view import SeatView

    return game if seat == "all" else SeatView(game, seat=seat, opponent=opponent)


_SPECS = [
    EnvSpec(
        id=f"multi:{name}-v0{ending}",
        entry_point=f"{_HERE}:{function}",
        kwargs={"opponent": opponent},
        max_turns=max_turns,
        reward_range=(-1.0, 1.0),
        summary=f"{summary}, against {against}",
    )
    for name, function, max_turns, summary, variants in (
        (
            "TicTacToe",
            "tic_tac_toe",
            9,
            "three in a row on a 3x3 board",
            (("", "random", "random moves"), ("-hard", "scripted", "a perfect player")),
        ),
        (
            "RockPaperScissors",
            "rock_paper_scissors",
            5,
            "five rounds of simultaneous choices",
            (("", "random", "random choices"), ("-habit", "scripted", "one who beats your last choice")),
        ),
    )
    for ending, opponent, against in variants
]
_BY_ID = {s.id: s for s in _SPECS}


def list_ids() -> Iterable[str]:
    return list(_BY_ID)


def find_spec(env_id: str) -> EnvSpec | None:
    return _BY_ID.get(env_id)
