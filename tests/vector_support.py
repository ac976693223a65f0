"""An environment that does whatever its action says, for tests of the vectorised execution."""

from __future__ import annotations

import os
import signal
import sys
import time
from typing import Any

from gem_core.core import Env, StepTuple


class ObedientEnv(Env):
    """Observations are drawn from the seed; an episode ends after ``length`` steps.

    Actions: ``raise``, ``sleep SECONDS``, ``spin`` (Python for ever), ``exit``, ``os_exit``, ``kill``, ``print``,
    ``garbage`` (no five-tuple), ``unpicklable``, ``end``; anything else is played.
    """

    def __init__(self, length: int = 5, fail_resets: bool = False, label: str = "") -> None:
        if length < 1:
            raise ValueError(f"length must be positive, got {length}")
        self.length, self.fail_resets, self.label = length, fail_resets, label
        self.turn = 0
        self.closed = False

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        if self.fail_resets or (options or {}).get("fail"):
            raise OSError("no reset today")
        super().reset(seed)
        self.turn = 0
        return f"start {self.rng.randrange(10**6)}", {"options": options, "seed": seed, "pid": os.getpid()}

    def step(self, action: str) -> StepTuple:
        verb, _, rest = action.partition(" ")
        if verb == "raise":
            raise ValueError(f"cannot play {action!r}")
        if verb == "sleep":
            time.sleep(float(rest))
        if verb == "spin":
            while True:
                pass
        if verb == "exit":
            sys.exit(3)
        if verb == "os_exit":
            os._exit(7)
        if verb == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if verb == "print":
            print("out of the environment", flush=True)
        if verb == "garbage":
            return None  # type: ignore[return-value]
        self.turn += 1
        info: dict[str, Any] = {"turn": self.turn, "action": action}
        if verb == "unpicklable":
            info["odd"] = [lambda: 1]
        over = self.turn >= self.length or verb == "end"
        return f"{self.label}{self.turn}:{self.rng.randrange(10**6)}", float(self.turn), over, False, info

    def sample_random_action(self) -> str:
        return f"play {self.action_rng.randrange(100)}"

    def close(self) -> None:
        self.closed = True


class WaitingEnv(ObedientEnv):
    cost = "waits"


class ComputingEnv(ObedientEnv):
    cost = "computes"
