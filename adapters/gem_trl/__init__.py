"""TRL: multi-turn environments in the GRPO trainer, with one advantage a turn."""

from __future__ import annotations

from gem_trl._compat import check_version

check_version()

from gem_trl.callbacks import ProgressBar  # noqa: E402 - an unsupported version must be named before anything fails
from gem_trl.config import GemConfig  # noqa: E402
from gem_trl.ppo import GemPPOTrainer  # noqa: E402
from gem_trl.tool_environment import ToolEnvironment, environment_factory  # noqa: E402
from gem_trl.trainer import GemGRPOTrainer, rollout  # noqa: E402

__all__ = [
    "GemConfig",
    "GemGRPOTrainer",
    "GemPPOTrainer",
    "ProgressBar",
    "ToolEnvironment",
    "environment_factory",
    "rollout",
]
