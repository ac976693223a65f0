"""Tasks that are solved with shell commands (``terminal:``)."""

from __future__ import annotations

from gem_core.envs.terminal.task import TerminalTask
from gem_core.envs.terminal.terminal_env import TerminalEnv

__all__ = ["TerminalEnv", "TerminalTask"]
