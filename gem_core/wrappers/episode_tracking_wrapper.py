"""Counts the steps of an episode and adds up its rewards."""

from __future__ import annotations

from typing import Any

from gem_core.core import Env, EnvWrapper, Info, StepTuple, reset_env


class EpisodeTrackingWrapper(EnvWrapper):
    """Puts ``step_counter`` and ``cumulative_rewards`` into ``info``; the outermost wrapper, so that it sees all.

    ``reset`` adds ``prev_ep_step_counter`` and ``prev_ep_cumulative_rewards``, those of the episode before.
    """

    def __init__(self, env: Env) -> None:
        super().__init__(env)
        self.step_counter = 0
        self.cumulative_rewards = 0.0

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, Info]:
        observation, info = reset_env(self.env, seed, options)
        info = {
            **info,
            "step_counter": 0,
            "prev_ep_step_counter": self.step_counter,
            "cumulative_rewards": 0.0,
            "prev_ep_cumulative_rewards": self.cumulative_rewards,
        }
        self.step_counter, self.cumulative_rewards = 0, 0.0
        return observation, info

    def step(self, action: str) -> StepTuple:
        observation, reward, terminated, truncated, info = self.env.step(action)
        self.step_counter += 1
        self.cumulative_rewards += float(reward)
        info = {**info, "step_counter": self.step_counter, "cumulative_rewards": self.cumulative_rewards}
        return observation, reward, terminated, truncated, info

    def get_state(self) -> dict[str, Any]:
        return {
            **super().get_state(),
            "step_counter": self.step_counter,
            "cumulative_rewards": self.cumulative_rewards,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        super().set_state(state)
        self.step_counter = state["step_counter"]
        self.cumulative_rewards = state["cumulative_rewards"]
