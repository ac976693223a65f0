"""A small OpenEnv server: count down from a number drawn by the seed. Arguments: a port, and ``text`` or ``pair``."""

from __future__ import annotations

import random
import sys
from typing import Any

import uvicorn
from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app


class SayAction(Action):
    text: str


class MoveAction(Action):
    by: int
    reason: str


class CountObservation(Observation):
    text: str


class PairObservation(Observation):
    left: int
    hint: str


class Countdown(Environment[Any, Any, State]):
    """Say the number that is left, minus one; -0.5 for anything else."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    pair = False

    def __init__(self) -> None:
        super().__init__()
        self._state = State(episode_id="e", step_count=0)
        self.left = 0

    def reset(self, seed: int | None = None, episode_id: str | None = None, **kwargs: Any) -> Any:
        self.left = kwargs.get("start") or random.Random(seed).randint(3, 5)
        return self._observe(None)

    def step(self, action: Any, timeout_s: float | None = None, **kwargs: Any) -> Any:
        said = self.left - action.by if self.pair else int(action.text) if action.text.isdigit() else -1
        if said != self.left - 1:
            return self._observe(-0.5)
        self.left = said
        return self._observe(1.0 if said == 0 else 0.0)

    def _observe(self, reward: float | None) -> Any:
        common: dict[str, Any] = {"done": self.left == 0, "reward": reward, "metadata": {"left": self.left}}
        if self.pair:
            return PairObservation(left=self.left, hint="by one", **common)
        return CountObservation(text=f"{self.left} left.", **common)

    @property
    def state(self) -> State:
        return self._state


class PairCountdown(Countdown):
    pair = True


if __name__ == "__main__":
    pair = sys.argv[2] == "pair"
    app = create_fastapi_app(
        PairCountdown if pair else Countdown,
        MoveAction if pair else SayAction,
        PairObservation if pair else CountObservation,
        max_concurrent_envs=8,
    )
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
