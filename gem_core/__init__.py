"""A minimal core for training LLM agents on Gym-like environments.

Importing this package imports nothing heavy: environments, tools and everything that needs NumPy, PyTorch or another
package load when they are first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from gem_core.core import Env, EnvWrapper
from gem_core.registration import (
    EnvSpec,
    list_envs,
    make,
    make_vec,
    print_envs,
    register,
    register_spec,
    spec,
    unregister,
)

if TYPE_CHECKING:
    from gem_core.episode import Episode as Episode
    from gem_core.episode import StopReason as StopReason
    from gem_core.episode import TokenSequence as TokenSequence
    from gem_core.episode import Turn as Turn
    from gem_core.session import EpisodeSession as EpisodeSession
    from gem_core.session import Generation as Generation
    from gem_core.session import Limits as Limits
    from gem_core.session import Prompt as Prompt

__version__ = "0.1.0"

_LAZY = {
    "Episode": "gem_core.episode",
    "StopReason": "gem_core.episode",
    "TokenSequence": "gem_core.episode",
    "Turn": "gem_core.episode",
    "EpisodeSession": "gem_core.session",
    "Generation": "gem_core.session",
    "Limits": "gem_core.session",
    "Prompt": "gem_core.session",
}

__all__ = [
    "Env",
    "EnvSpec",
    "EnvWrapper",
    "Episode",
    "EpisodeSession",
    "Generation",
    "Limits",
    "Prompt",
    "StopReason",
    "TokenSequence",
    "Turn",
    "__version__",
    "list_envs",
    "make",
    "make_vec",
    "print_envs",
    "register",
    "register_spec",
    "spec",
    "unregister",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module 'gem_core' has no attribute {name!r}")
