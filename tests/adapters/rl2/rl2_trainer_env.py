"""An environment module for whole runs: ``gem_rl2``'s own, and an environment that fails in every third episode."""

from __future__ import annotations

from typing import Any

from gem_rl2.env import *  # noqa: F403
from rl2_helpers import TalkEnv

import gem_core as gem
from gem_core.core import StepTuple


class FlakyTalk(TalkEnv):
    """The reset fails for every sixth seed, and the second step for every sixth."""

    def reset(self, seed: int | None = None, *, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        self.seed_ = seed or 0
        if self.seed_ % 6 == 1:
            raise OSError("the disk is full")
        return super().reset(seed)

    def step(self, action: str) -> StepTuple:
        result = super().step(action)
        if self._turn == 2 and self.seed_ % 6 == 3:
            raise RuntimeError("the connection broke")
        return result


if "test:FlakyTalk-v0" not in gem.list_envs():
    gem.register("test:FlakyTalk-v0", FlakyTalk)
