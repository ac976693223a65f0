"""Environments with several agents, and the views that let one policy learn one seat or all of them."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gem_core.multiagent.multi_agent_env import AgentSelector as AgentSelector
    from gem_core.multiagent.multi_agent_env import MultiAgentEnv as MultiAgentEnv
    from gem_core.multiagent.rock_paper_scissors import RockPaperScissorsEnv as RockPaperScissorsEnv
    from gem_core.multiagent.seat_sessions import SeatSessions as SeatSessions
    from gem_core.multiagent.seat_sessions import play_seats as play_seats
    from gem_core.multiagent.seat_view import SeatView as SeatView
    from gem_core.multiagent.tic_tac_toe import TicTacToeEnv as TicTacToeEnv

_LAZY = {
    "AgentSelector": "multi_agent_env",
    "MultiAgentEnv": "multi_agent_env",
    "RockPaperScissorsEnv": "rock_paper_scissors",
    "SeatSessions": "seat_sessions",
    "SeatView": "seat_view",
    "TicTacToeEnv": "tic_tac_toe",
    "play_seats": "seat_sessions",
}
__all__ = list(_LAZY)


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(f"gem_core.multiagent.{_LAZY[name]}"), name)
    raise AttributeError(f"module 'gem_core.multiagent' has no attribute {name!r}")
