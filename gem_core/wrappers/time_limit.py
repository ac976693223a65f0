"""A limit on the turns of an episode."""

from __future__ import annotations

from typing import Any

from gem_core.core import Env, EnvWrapper, Info, StepTuple, reset_env


class TimeLimit(EnvWrapper):
    """Truncates an episode that has not ended after ``max_turns`` steps.

    Outside a tool wrapper every tool use counts as a turn; inside it, only the environment's own turns do.

    Args:
        env: The environment.
        max_turns: Most steps of an episode, at least 1.
    """

    def __init__(self, env: Env, max_turns: int) -> None:
        super().__init__(env)
        if isinstance(max_turns, bool) or not isinstance(max_turns, int) or max_turns < 1:
            raise ValueError(f"max_turns must be a positive integer, got {max_turns!r}")
        self.max_turns = max_turns
        self.turns_taken = 0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        self.turns_taken = 0
        return reset_env(self.env, seed, options)

    def step(self, action: str) -> StepTuple:
        if self.turns_taken >= self.max_turns:
            raise RuntimeError(f"the episode was truncated after {self.max_turns} turns; call reset()")
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.turns_taken += 1
        if self.turns_taken >= self.max_turns and not (terminated or truncated):
            truncated = True
            info = {k: v for k, v in info.items() if k != "suffix"}  # it would ask for a turn that never comes
        return observation, reward, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        return {**super().get_state(), "turns_taken": self.turns_taken}

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.turns_taken = state["turns_taken"]
