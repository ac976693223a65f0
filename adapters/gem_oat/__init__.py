"""GEM environments in Oat, the framework of the paper's own baselines.

:class:`GemActor` plays episodes through :class:`gem_core.EpisodeSession` against the actor's vLLM engine and hands
over one sample a turn; :class:`GemLearner` is Oat's PPO learner with return batch normalization over the global batch.
Both go into ``oat.interface.get_program``; :class:`GemArgs` are Oat's arguments with the environment's beside them.

Nothing of Oat is imported before one of these names is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gem_oat._compat import SUPPORTED, check_version

if TYPE_CHECKING:
    from gem_oat.actor import GemActor as GemActor
    from gem_oat.args import GemArgs as GemArgs
    from gem_oat.args import prepare_args as prepare_args
    from gem_oat.learner import GemLearner as GemLearner
    from gem_oat.transitions import GemTransition as GemTransition

check_version()

_LAZY = {
    "GemActor": "gem_oat.actor",
    "GemArgs": "gem_oat.args",
    "GemLearner": "gem_oat.learner",
    "GemTransition": "gem_oat.transitions",
    "prepare_args": "gem_oat.args",
}

__all__ = ["SUPPORTED", "GemActor", "GemArgs", "GemLearner", "GemTransition", "prepare_args"]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gem_oat' has no attribute {name!r}")
