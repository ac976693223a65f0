"""An environment whose first step never comes back in time."""

from __future__ import annotations

import time
from typing import Any

import gem_core as gem


class HangingEnv(gem.Env):
    def reset(self, seed: int | None = None, *, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        return "Say something.", {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        time.sleep(30)
        return "Too late.", 0.0, True, False, {}


if "test:Hanging-v0" not in gem.list_envs():
    gem.register("test:Hanging-v0", HangingEnv)
