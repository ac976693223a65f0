"""GEM environments in RL2.

RL2 loads one module, named by ``rollout.env_path``: here :data:`ENV_PATH`, which has what the installed RL2 asks for
(``generate`` in its repository, ``reset`` and ``step`` in rl-square 0.0.2). Rows of :mod:`gem_rl2.dataset` say which
environment and seed an episode plays. :mod:`gem_rl2.trainer` is RL2's trainer with advantages for each turn.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gem_rl2._compat import REPOSITORY_COMMIT, SUPPORTED, check_version, contract
from gem_rl2.settings import GemSettings, configure

if TYPE_CHECKING:
    from gem_rl2.release import reset as reset
    from gem_rl2.release import step as step
    from gem_rl2.repository import generate as generate

check_version()

#: For ``rollout.env_path``.
ENV_PATH = str(Path(__file__).with_name("env.py"))

_LAZY = {"generate": "gem_rl2.repository", "reset": "gem_rl2.release", "step": "gem_rl2.release"}

__all__ = [
    "ENV_PATH",
    "REPOSITORY_COMMIT",
    "SUPPORTED",
    "GemSettings",
    "configure",
    "contract",
    "generate",
    "reset",
    "step",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gem_rl2' has no attribute {name!r}")
