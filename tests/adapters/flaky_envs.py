"""Environments that fail; the trainer's processes import this module through ``VERL_USE_EXTERNAL_MODULES``."""

from __future__ import annotations

from typing import Any

import gem_core as gem
from gem_core.core import Env, StepTuple


class FlakyEnv(Env):
    """Raises in every third reset and in every third second step."""

    def __init__(self) -> None:
        self._seed = 0
        self._turn = 0

    def reset(self, seed: int | None = None, *, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self._seed, self._turn = seed or 0, 0
        if self._seed % 3 == 0:
            raise OSError("the disk is full")
        return "Say a number.", {}

    def step(self, action: str) -> StepTuple:
        self._turn += 1
        if self._turn == 2 and self._seed % 3 == 1:
            raise RuntimeError("the connection broke")
        return "Again.", 0.1 * self._turn, self._turn == 3, False, {"success": True}

    def sample_random_action(self) -> str:
        return "1"


if "test:Flaky-v0" not in gem.list_envs():
    gem.register("test:Flaky-v0", FlakyEnv)
