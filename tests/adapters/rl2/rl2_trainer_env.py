"""An environment module for whole runs: ``gem_rl2``'s, and an environment that fails in every third episode."""

from __future__ import annotations

import sys
from typing import Any

from gem_rl2.env import *  # noqa: F403

import gem_core as gem
from gem_core.core import Env, StepTuple

# RL2 loads this file by its path.
sys.modules.setdefault("rl2_trainer_env", sys.modules.get(__name__, sys))


class FlakyGuess(Env):
    """GuessTheNumber; the reset fails for every sixth seed, the second step raises for every sixth too."""

    def __init__(self) -> None:
        self._env = gem.make("game:GuessTheNumber-v0", max_turns=4)
        self._seed, self._turn = 0, 0

    def reset(self, seed: int | None = None, *, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._seed, self._turn = seed or 0, 0
        if self._seed % 6 == 0:
            raise OSError("the disk is full")
        return self._env.reset(seed)

    def step(self, action: str) -> StepTuple:
        self._turn += 1
        if self._turn == 2 and self._seed % 6 == 3:
            raise RuntimeError("the connection broke")
        return self._env.step(action)

    def sample_random_action(self) -> str:
        return self._env.sample_random_action()


if "test:FlakyGuess-v0" not in gem.list_envs():
    gem.register("test:FlakyGuess-v0", FlakyGuess)
