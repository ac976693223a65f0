"""Everything that depends on verl's version."""

from __future__ import annotations

import functools
from typing import Any

from gem_core._versions import require_framework

#: Releases this adapter is tested with.
SUPPORTED = ("0.9.1", "0.9.0", "0.8.0")


def check_version() -> str:
    """Returns verl's version.

    Raises:
        ImportError: verl is missing, or a version this adapter does not serve; both name what is served.
    """
    return require_framework("verl", "gem_verl", "verl", served=SUPPORTED)


@functools.cache
def installed() -> str:
    """verl's version, read once; it is asked for in every episode."""
    return check_version()


def has_trainer_modes() -> bool:
    """Whether verl has a registry of trainer modes and a platform registry, which the ``gem_*`` modes and
    :mod:`gem_verl.cpu` need. 0.8.0 has one trainer, ``verl.trainer.main_ppo_sync``."""
    return installed() != "0.8.0"


def agent_loop_manager() -> Any:
    """The manager whose workers write their rows into TransferQueue."""
    if has_trainer_modes():
        from verl.trainer.ppo.v1 import AgentLoopManagerTQ
    else:
        from verl.trainer.main_ppo_sync import AgentLoopManagerTQ
    return AgentLoopManagerTQ


def agent_loop_kwargs(kwargs: dict[str, Any]) -> dict[str, Any]:
    """Keyword arguments for ``AgentLoopBase.__init__``.

    0.9.1 picks a token builder of its own by model type, which asks for that family's special tokens; contexts are
    written by :mod:`gem_core.chat` here, for any template.
    """
    return {**kwargs, "hf_model_type": None} if installed() == "0.9.1" else kwargs
