"""Shorter observations."""

from __future__ import annotations

from typing import Any

from gem_core.core import Env, EnvWrapper, Info, StepTuple


class RequestOnce(EnvWrapper):
    """Shows ``info["suffix"]``, the request for a move, with the first observation only.

    In a growing conversation the agent has read the request already; where it never changes but for a counter, the
    repetition only costs tokens. Not for games whose suffix carries the state (a board), which the agent needs.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)

    def step(self, action: str) -> StepTuple:
        observation, reward, terminated, truncated, info = self.env.step(action)
        return observation, reward, terminated, truncated, _without_suffix(info)


def _without_suffix(info: Info) -> dict[str, Any]:
    return {k: v for k, v in info.items() if k != "suffix"}
